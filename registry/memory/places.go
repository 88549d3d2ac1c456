package memory

import (
	"context"
	"errors"
	"time"

	"github.com/farhand/farhand/registry"
)

// maxPlaces is how many places are remembered. A store that is full makes no new ones.
const maxPlaces = 100_000

// place is a stored registry.Place. It is guarded by the lock of the conversations.
type place struct {
	life
	registry.Place
	kept map[string]keptAt // by kind
}

// keptAt says in which epochs something was kept.
type keptAt struct{ at, before int64 }

var errManyPlaces = errors.New("as many places are kept already as may be")

// ClaimPlace implements registry.PlaceStore.
func (m *Store) ClaimPlace(_ context.Context, c registry.PlaceClaim) (registry.Place, error) {
	m.mu.Lock()
	live := make(map[string]bool, len(m.pods))
	for _, pod := range m.livePodsLocked() {
		live[pod] = true
	}
	m.mu.Unlock()
	s := &m.conversations
	s.mu.Lock()
	defer s.mu.Unlock()
	now := m.opts.Now()
	p := s.places.get(c.Key, now)
	if p == nil {
		if len(s.places) >= maxPlaces && s.places.purge(now) == 0 {
			return registry.Place{}, registry.StoreUnavailable("claim place", errManyPlaces)
		}
		p = &place{Place: registry.Place{Key: c.Key}, kept: make(map[string]keptAt)}
		if _, ok := c.Key.Conversation(); ok {
			if p.Generation = c.Fence; p.Generation == 0 {
				p.Generation = s.clock(now)
			}
		}
		s.places[c.Key] = p
	}
	if c.Fence > 0 && p.Generation > c.Fence {
		return registry.Place{}, registry.ErrErased
	}
	if p.Pod == "" || p.Pod != c.Pod && !live[p.Pod] {
		p.Pod, p.Epoch = c.Pod, s.clock(now)
	}
	kept := p.kept[c.Kind]
	if kept.at != p.Epoch {
		kept = keptAt{at: p.Epoch, before: kept.at}
		p.kept[c.Kind] = kept
	}
	p.expires = now.Add(m.opts.PlaceTTL)
	claimed := p.Place
	claimed.Before = kept.before
	return claimed, nil
}

// clock returns a number that is larger than all it returned before.
func (s *conversations) clock(now time.Time) int64 {
	s.fence = max(s.fence+1, now.UnixMicro())
	return s.fence
}

// RefreshPlaces implements registry.PlaceStore.
func (m *Store) RefreshPlaces(_ context.Context, places []registry.Place) (gone []registry.Place, err error) {
	s := &m.conversations
	s.mu.Lock()
	defer s.mu.Unlock()
	now := m.opts.Now()
	for _, held := range places {
		p := s.places.get(held.Key, now)
		if p == nil {
			p = &place{Place: held, kept: make(map[string]keptAt)}
			p.Before = 0
			s.places[held.Key] = p
		}
		if p.Pod != held.Pod || p.Epoch != held.Epoch || p.Generation != held.Generation {
			gone = append(gone, held)
			continue
		}
		p.expires = now.Add(m.opts.PlaceTTL)
	}
	return gone, nil
}

// ReleasePlaces implements registry.PlaceStore.
func (m *Store) ReleasePlaces(_ context.Context, places []registry.Place) error {
	s := &m.conversations
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, held := range places {
		if p := s.places.get(held.Key, m.opts.Now()); p != nil && p.Pod == held.Pod && p.Epoch == held.Epoch {
			p.Pod = ""
		}
	}
	return nil
}

// PlaceGenerations implements registry.PlaceStore.
func (m *Store) PlaceGenerations(_ context.Context, keys []registry.Key) ([]int64, error) {
	s := &m.conversations
	s.mu.Lock()
	defer s.mu.Unlock()
	generations := make([]int64, len(keys))
	for i, key := range keys {
		if p := s.places.get(registry.PlaceKey{Tenant: key.Tenant, Session: key.Session}, m.opts.Now()); p != nil {
			generations[i] = p.Generation
		}
	}
	return generations, nil
}

// erasePlaceLocked gives the place of an erased conversation a new generation, and no owner.
func (m *Store) erasePlaceLocked(key registry.Key, now time.Time) {
	s := &m.conversations
	at := registry.PlaceKey{Tenant: key.Tenant, Session: key.Session}
	if len(s.places) >= maxPlaces && s.places[at] == nil {
		s.places.purge(now)
	}
	s.places[at] = &place{
		life:  life{now.Add(m.opts.PlaceTTL)},
		Place: registry.Place{Key: at, Generation: s.clock(now)}, kept: make(map[string]keptAt),
	}
}
