package memory

import (
	"bytes"
	"context"
	"sync"
	"time"

	"github.com/farhand/farhand/registry"
)

// memoryContinuations are the continuations of all holders.
type memoryContinuations struct {
	mu      sync.Mutex
	holders map[registry.Holder]*memoryHolder
	purged  time.Time
}

// memoryHolder is what one holder has.
type memoryHolder struct {
	kept  map[string]memoryContinuation
	bytes int
}

type memoryContinuation struct {
	data    []byte
	expires time.Time
}

var _ registry.ContinuationStore = (*Store)(nil)

// KeepContinuation implements ContinuationStore.
func (m *Store) KeepContinuation(
	_ context.Context, o registry.Holder, id string, data []byte, ttl time.Duration,
) error {
	if len(data) > registry.MaxContinuation {
		return registry.ErrContinuationTooLarge
	}
	s, now := &m.continuations, m.opts.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.holders == nil {
		s.holders = make(map[registry.Holder]*memoryHolder)
	}
	s.purgeLocked(now, ttl)
	holder := s.holders[o]
	if holder == nil {
		holder = &memoryHolder{kept: make(map[string]memoryContinuation)}
		s.holders[o] = holder
	}
	holder.drop(id)
	holder.kept[id] = memoryContinuation{data: bytes.Clone(data), expires: now.Add(ttl)}
	holder.bytes += len(data) + registry.ContinuationOverhead
	for holder.bytes > registry.MaxHeldContinuations {
		holder.drop(holder.oldest(id))
	}
	return nil
}

// Continuations implements ContinuationStore.
func (m *Store) Continuations(
	_ context.Context, o registry.Holder, limit int, ids ...string,
) (map[string][]byte, error) {
	s, now := &m.continuations, m.opts.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	holder := s.holders[o]
	found := make(map[string][]byte)
	if holder == nil {
		return found, nil
	}
	for _, id := range ids {
		c, ok := holder.kept[id]
		if _, twice := found[id]; !ok || twice || !now.Before(c.expires) {
			continue
		}
		if limit -= len(c.data); limit < 0 {
			break
		}
		found[id] = bytes.Clone(c.data)
	}
	return found, nil
}

// purgeLocked removes what has expired, now and then.
func (s *memoryContinuations) purgeLocked(now time.Time, ttl time.Duration) {
	if now.Sub(s.purged) < ttl/conversationsPurgeEvery {
		return
	}
	s.purged = now
	for o, holder := range s.holders {
		for id, c := range holder.kept {
			if !now.Before(c.expires) {
				holder.drop(id)
			}
		}
		if len(holder.kept) == 0 {
			delete(s.holders, o)
		}
	}
}

func (o *memoryHolder) drop(id string) {
	if c, ok := o.kept[id]; ok {
		o.bytes -= len(c.data) + registry.ContinuationOverhead
		delete(o.kept, id)
	}
}

// oldest returns the continuation that expires first, other than the one that is just being kept.
func (o *memoryHolder) oldest(but string) string {
	first, at := "", time.Time{}
	for id, c := range o.kept {
		if id != but && (first == "" || c.expires.Before(at)) {
			first, at = id, c.expires
		}
	}
	return first
}
