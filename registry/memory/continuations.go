package memory

import (
	"bytes"
	"context"
	"time"

	"github.com/farhand/farhand/registry"
)

// holder is the continuations of one owner.
type holder struct {
	life   // until the last of them expires
	kept   expiring[string, *continuation]
	bytes  int
	purges throttle
}

type continuation struct {
	life
	data []byte
}

func (m *Store) KeepContinuation(
	ctx context.Context, o registry.ContinuationOwner, id string, data []byte, ttl time.Duration,
) error {
	if len(data) > registry.MaxContinuation {
		return registry.ErrContinuationTooLarge
	}
	return m.keeper.write(ctx, func(tx *change) error {
		s := &m.continuations
		now := s.lock(m.opts.Now, tx)
		defer tx.unlock(&s.mu)
		h := s.all.get(o, now)
		if h == nil {
			s.forget(tx, o)
			h = &holder{kept: make(expiring[string, *continuation])}
			s.all[o] = h
		}
		if h.purges.due(now, ttl/purgesPerLife) {
			for id := range h.kept {
				if h.kept.get(id, now) == nil {
					h.drop(tx, o, id)
				}
			}
		}
		c := &continuation{life{now.Add(ttl)}, bytes.Clone(data)}
		h.add(id, c)
		tx.put(kindContinuation, continuationKey(o, id), packed(c.data, nanos(c.expires)))
		for h.bytes > registry.MaxHeldContinuations {
			h.drop(tx, o, h.oldest(id))
		}
		return nil
	})
}

func (m *Store) Continuations(
	_ context.Context, o registry.ContinuationOwner, limit int, ids ...string,
) (map[string][]byte, error) {
	s := &m.continuations
	now := s.lock(m.opts.Now, nil)
	defer s.mu.Unlock()
	found, h := make(map[string][]byte), s.all.get(o, now)
	if h == nil {
		return found, nil
	}
	for _, id := range ids {
		c := h.kept.get(id, now)
		if _, twice := found[id]; c == nil || twice {
			continue
		}
		if limit -= len(c.data); limit < 0 {
			break
		}
		found[id] = bytes.Clone(c.data)
	}
	return found, nil
}

// add adds a continuation, or replaces the one of this id.
func (h *holder) add(id string, c *continuation) {
	h.remove(id)
	h.kept[id] = c
	h.bytes += len(c.data) + registry.ContinuationOverhead
	if c.expires.After(h.expires) {
		h.expires = c.expires
	}
}

func (h *holder) remove(id string) {
	if c, ok := h.kept[id]; ok {
		h.bytes -= len(c.data) + registry.ContinuationOverhead
		delete(h.kept, id)
	}
}

// drop removes a continuation for good.
func (h *holder) drop(tx *change, o registry.ContinuationOwner, id string) {
	h.remove(id)
	tx.drop(kindContinuation, continuationKey(o, id))
}

// oldest returns the continuation that expires first, other than the one that is being stored.
func (h *holder) oldest(but string) string {
	first, at := "", time.Time{}
	for id, c := range h.kept {
		if id != but && (first == "" || c.expires.Before(at)) {
			first, at = id, c.expires
		}
	}
	return first
}

// erase removes the records of an owner's continuations.
func (h *holder) erase(tx *change, o registry.ContinuationOwner) {
	for id := range h.kept {
		tx.drop(kindContinuation, continuationKey(o, id))
	}
}

func continuationKey(o registry.ContinuationOwner, id string) string {
	return key(o.Tenant, o.User, id)
}

// loadContinuation takes a continuation into memory, or out of it.
func (m *Store) loadContinuation(r Record) error {
	var o registry.ContinuationOwner
	var id string
	if err := split(r.Key, &o.Tenant, &o.User, &id); err != nil {
		return err
	}
	s := &m.continuations
	s.lock(m.opts.Now, nil)
	defer s.mu.Unlock()
	h := s.all[o]
	if r.Value == nil {
		if h != nil {
			h.remove(id)
		}
		return nil
	}
	var expires int64
	data, err := unpack(r.Value, &expires)
	if err != nil {
		return err
	}
	if h == nil {
		h = &holder{kept: make(expiring[string, *continuation])}
		s.all[o] = h
	}
	h.add(id, &continuation{life{fromNanos(expires)}, data})
	return nil
}
