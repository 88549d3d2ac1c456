package memory

import (
	"context"
	"slices"
	"time"

	"github.com/farhand/farhand/registry"
)

const (
	// maxPlaces is the limit of places. maxTenantPlaces is the limit of one tenant's, in addition to its share. At a
	// limit, new places are rejected.
	maxPlaces       = 100_000
	maxTenantPlaces = maxPlaces / 4

	// placesPurge is the shortest pause between two searches for expired places if there is no room for a new one.
	placesPurge = time.Second
)

// places are the places of all tenants, guarded by the lock of the conversations.
type places struct {
	shared[registry.PlaceKey, *place]
	purges throttle
}

// get returns a place, nil if it is unknown.
func (s *places) get(key registry.PlaceKey, now time.Time) *place {
	return s.shared.get(key.Tenant, key, now)
}

// put stores a place and replaces the existing one. It fails if there is no room.
func (s *places) put(p *place, now time.Time) error {
	if s.lacks(p.Key.Tenant, p.Key, p) != nil && s.purges.due(now, placesPurge) {
		s.purge(now)
	}
	return s.shared.put(p.Key.Tenant, p.Key, p)
}

// place is a stored registry.Place. It is guarded by the lock of the conversations.
type place struct {
	life
	registry.Place
	kept map[string]keptAt // by kind
}

// keptAt has the current and the previous epoch in which state was kept.
type keptAt struct{ at, before int64 }

func (m *Store) ClaimPlace(ctx context.Context, c registry.PlaceClaim) (registry.Place, error) {
	live, _ := m.Live(ctx) // never fails
	s := &m.conversations
	s.mu.Lock()
	defer s.mu.Unlock()
	now := m.opts.Now()
	p := s.places.get(c.Key, now)
	if p == nil {
		p = &place{Place: registry.Place{Key: c.Key}, kept: make(map[string]keptAt)}
		if _, ok := c.Key.Conversation(); ok {
			if p.Generation = c.Fence; p.Generation == 0 {
				p.Generation = s.clock(now)
			}
		}
		if err := s.places.put(p, now); err != nil {
			return registry.Place{}, err
		}
	}
	if c.Fence > 0 && p.Generation > c.Fence {
		return registry.Place{}, registry.ErrErased
	}
	if p.Pod == "" || p.Pod != c.Pod && !slices.Contains(live, p.Pod) {
		p.Pod, p.Epoch = c.Pod, s.clock(now)
	}
	kept := p.kept[c.Kind]
	if kept.at != p.Epoch && c.Keep && p.Pod == c.Pod {
		kept = keptAt{at: p.Epoch, before: kept.at}
		p.kept[c.Kind] = kept
	}
	p.expires = now.Add(m.opts.PlaceTTL)
	claimed := p.Place
	if claimed.Before, claimed.Kept = kept.at, kept.at == p.Epoch; claimed.Kept {
		claimed.Before = kept.before
	}
	return claimed, nil
}

// clock returns a number that is larger than all earlier ones.
func (s *conversations) clock(now time.Time) int64 {
	s.fence = max(s.fence+1, now.UnixMicro())
	return s.fence
}

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
			if s.places.put(p, now) != nil {
				continue // a later refresh writes it again
			}
		}
		if p.Pod != held.Pod || p.Epoch != held.Epoch || p.Generation != held.Generation {
			gone = append(gone, held)
			continue
		}
		p.expires = now.Add(m.opts.PlaceTTL)
	}
	return gone, nil
}

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

// erasePlaceLocked gives the place of an erased conversation a new generation and no owner, if something may use it: a
// place, or a conversation with a running turn. If there is no room for it, that turn also gets no place.
func (m *Store) erasePlaceLocked(key registry.Key, c *conversation, now time.Time) {
	s := &m.conversations
	at := registry.PlaceKey{Tenant: key.Tenant, Session: key.Session}
	if c == nil && s.places.get(at, now) == nil {
		return
	}
	_ = s.places.put(&place{
		life:  life{now.Add(m.opts.PlaceTTL)},
		Place: registry.Place{Key: at, Generation: s.clock(now)}, kept: make(map[string]keptAt),
	}, now)
}
