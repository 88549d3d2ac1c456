package memory

import (
	"bytes"
	"context"
	"sync"
	"time"

	"github.com/farhand/farhand/registry"
)

// continuations are the continuations of all holders.
type continuations struct {
	mu      sync.Mutex
	holders map[registry.ContinuationOwner]*holder
	purges  throttle
}

// holder is what one holder has.
type holder struct {
	kept  expiring[string, *continuation]
	bytes int
}

type continuation struct {
	life
	data []byte
}

// KeepContinuation implements registry.ContinuationStore.
func (m *Store) KeepContinuation(
	_ context.Context, o registry.ContinuationOwner, id string, data []byte, ttl time.Duration,
) error {
	if len(data) > registry.MaxContinuation {
		return registry.ErrContinuationTooLarge
	}
	s, now := &m.continuations, m.opts.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.purges.due(now, ttl/purgesPerLife) {
		s.purge(now)
	}
	h := s.holders[o]
	if h == nil {
		h = &holder{kept: make(expiring[string, *continuation])}
		s.holders[o] = h
	}
	h.drop(id)
	h.kept[id] = &continuation{life{now.Add(ttl)}, bytes.Clone(data)}
	h.bytes += len(data) + registry.ContinuationOverhead
	for h.bytes > registry.MaxHeldContinuations {
		h.drop(h.oldest(id))
	}
	return nil
}

// Continuations implements registry.ContinuationStore.
func (m *Store) Continuations(
	_ context.Context, o registry.ContinuationOwner, limit int, ids ...string,
) (map[string][]byte, error) {
	s, now := &m.continuations, m.opts.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	found, h := make(map[string][]byte), s.holders[o]
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

// purge removes what has expired.
func (s *continuations) purge(now time.Time) {
	for o, h := range s.holders {
		for id := range h.kept {
			if h.kept.get(id, now) == nil {
				h.drop(id)
			}
		}
		if len(h.kept) == 0 {
			delete(s.holders, o)
		}
	}
}

func (h *holder) drop(id string) {
	if c, ok := h.kept[id]; ok {
		h.bytes -= len(c.data) + registry.ContinuationOverhead
		delete(h.kept, id)
	}
}

// oldest returns the continuation that expires first, other than the one that is just being kept.
func (h *holder) oldest(but string) string {
	first, at := "", time.Time{}
	for id, c := range h.kept {
		if id != but && (first == "" || c.expires.Before(at)) {
			first, at = id, c.expires
		}
	}
	return first
}
