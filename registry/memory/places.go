package memory

import (
	"context"
	"encoding/json"
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
func (s *places) put(tx *change, p *place, now time.Time) error {
	if s.lacks(p.Key.Tenant, p.Key, p) != nil && s.purges.due(now, placesPurge) {
		s.purge(tx, now)
	}
	return s.shared.put(p.Key.Tenant, p.Key, p)
}

// purge removes expired places.
func (s *places) purge(tx *change, now time.Time) {
	s.shared.purge(now, func(key registry.PlaceKey, p *place) {
		if !p.recorded.IsZero() {
			tx.drop(kindPlace, placeKey(key))
		}
	})
}

// place is a stored registry.Place. It is guarded by the lock of the conversations.
type place struct {
	life
	registry.Place
	kept     map[string]keptAt // by kind
	recorded time.Time         // when a journal got it last
}

// keptAt has the current and the previous epoch in which state was kept.
type keptAt struct{ At, Before int64 }

func (m *Store) ClaimPlace(ctx context.Context, c registry.PlaceClaim) (claimed registry.Place, err error) {
	live, _ := m.Live(ctx) // never fails
	err = m.keeper.touch(ctx, func(tx *change) error {
		s := &m.conversations
		s.mu.Lock()
		defer tx.unlock(&s.mu)
		claimed, err = m.claimLocked(tx, c, live)
		return err
	})
	return claimed, err
}

func (m *Store) claimLocked(tx *change, c registry.PlaceClaim, live []string) (registry.Place, error) {
	s, now := &m.conversations, m.opts.Now()
	p := s.places.get(c.Key, now)
	if p == nil {
		p = &place{Place: registry.Place{Key: c.Key}, kept: make(map[string]keptAt)}
		if _, ok := c.Key.Conversation(); ok {
			if p.Generation = c.Fence; p.Generation == 0 {
				p.Generation = s.clock(now)
			}
		}
		if err := s.places.put(tx, p, now); err != nil {
			return registry.Place{}, err
		}
	}
	if c.Fence > 0 && p.Generation > c.Fence {
		return registry.Place{}, registry.ErrErased
	}
	changed := false
	if p.Pod == "" || p.Pod != c.Pod && !slices.Contains(live, p.Pod) {
		p.Pod, p.Epoch, changed = c.Pod, s.clock(now), true
	}
	kept := p.kept[c.Kind]
	if kept.At != p.Epoch && c.Keep && p.Pod == c.Pod {
		kept = keptAt{At: p.Epoch, Before: kept.At}
		p.kept[c.Kind], changed = kept, true
	}
	p.expires = now.Add(m.opts.PlaceTTL)
	m.keepPlace(tx, p, now, changed)
	claimed := p.Place
	if claimed.Before, claimed.Kept = kept.At, kept.At == p.Epoch; claimed.Kept {
		claimed.Before = kept.Before
	}
	return claimed, nil
}

// clock returns a number that is larger than all earlier ones.
func (s *conversations) clock(now time.Time) int64 {
	s.fence = max(s.fence+1, now.UnixMicro())
	return s.fence
}

func (m *Store) RefreshPlaces(
	ctx context.Context, places []registry.Place,
) (gone []registry.Place, err error) {
	err = m.keeper.touch(ctx, func(tx *change) error {
		s := &m.conversations
		s.mu.Lock()
		defer tx.unlock(&s.mu)
		now := m.opts.Now()
		for _, held := range places {
			p := s.places.get(held.Key, now)
			restored := p == nil
			if restored {
				p = &place{Place: held, kept: make(map[string]keptAt)}
				p.Before = 0
				if s.places.put(tx, p, now) != nil {
					continue // a later refresh writes it again
				}
			}
			if p.Pod != held.Pod || p.Epoch != held.Epoch || p.Generation != held.Generation {
				gone = append(gone, held)
				continue
			}
			p.expires = now.Add(m.opts.PlaceTTL)
			m.keepPlace(tx, p, now, restored)
		}
		return nil
	})
	return gone, err
}

func (m *Store) ReleasePlaces(ctx context.Context, places []registry.Place) error {
	return m.keeper.write(ctx, func(tx *change) error {
		s := &m.conversations
		s.mu.Lock()
		defer tx.unlock(&s.mu)
		now := m.opts.Now()
		for _, held := range places {
			if p := s.places.get(held.Key, now); p != nil && p.Pod == held.Pod && p.Epoch == held.Epoch {
				p.Pod = ""
				m.keepPlace(tx, p, now, true)
			}
		}
		return nil
	})
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
func (m *Store) erasePlaceLocked(tx *change, key registry.Key, c *conversation, now time.Time) {
	s := &m.conversations
	at := registry.PlaceKey{Tenant: key.Tenant, Session: key.Session}
	if c == nil && s.places.get(at, now) == nil {
		return
	}
	p := &place{
		life:  life{now.Add(m.opts.PlaceTTL)},
		Place: registry.Place{Key: at, Generation: s.clock(now)}, kept: make(map[string]keptAt),
	}
	if s.places.put(tx, p, now) == nil {
		m.keepPlace(tx, p, now, true)
	}
}

// placeRecord is what a journal keeps of a place.
type placeRecord struct {
	Generation int64             `json:"generation,omitempty"`
	Pod        string            `json:"pod,omitempty"`
	Epoch      int64             `json:"epoch,omitempty"`
	Kept       map[string]keptAt `json:"kept,omitempty"`
	Recorded   time.Time         `json:"recorded"` // its life begins
}

func placeKey(k registry.PlaceKey) string { return key(k.Tenant, k.Session, k.Identity) }

// keepPlace records a place if it has changed, or was recorded long ago.
func (m *Store) keepPlace(tx *change, p *place, now time.Time, changed bool) {
	if !changed && now.Sub(p.recorded) < m.opts.PlaceTTL/purgesPerLife {
		return
	}
	p.recorded = now.UTC().Round(0)
	if tx.kept() {
		value, _ := json.Marshal(placeRecord{p.Generation, p.Pod, p.Epoch, p.kept, p.recorded}) // cannot fail
		tx.put(kindPlace, placeKey(p.Key), value)
	}
}

// loadPlace takes a place into memory, or out of it.
func (m *Store) loadPlace(r Record) error {
	var k registry.PlaceKey
	if err := split(r.Key, &k.Tenant, &k.Session, &k.Identity); err != nil {
		return err
	}
	s := &m.conversations
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Value == nil {
		s.places.remove(k.Tenant, k)
		return nil
	}
	stored := placeRecord{Kept: make(map[string]keptAt)}
	if err := json.Unmarshal(r.Value, &stored); err != nil {
		return err
	}
	s.fence = max(s.fence, stored.Generation, stored.Epoch)
	s.places.set(k.Tenant, k, &place{
		life: life{stored.Recorded.Add(m.opts.PlaceTTL)}, kept: stored.Kept, recorded: stored.Recorded,
		Place: registry.Place{Key: k, Generation: stored.Generation, Pod: stored.Pod, Epoch: stored.Epoch},
	})
	return nil
}
