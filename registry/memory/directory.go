package memory

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/farhand/farhand/registry"
)

// defaultPage is the size of a page when a query names none.
const defaultPage = 100

// Entry implements Directory.
func (m *Store) Entry(_ context.Context, key registry.Key) (registry.Entry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if stored := m.liveLocked(key); stored != nil {
		if !m.podLiveLocked(stored.session.Pod) {
			return registry.Entry{}, registry.NotConnected()
		}
		return stored.entry(), nil
	}
	if gone, ok := m.gone[key]; ok && m.opts.Now().Before(gone.until) {
		return registry.Entry{}, registry.NotConnected()
	}
	return registry.Entry{}, registry.Errorf(registry.CodeSessionNotFound, "No session has this id.")
}

// List implements Directory.
func (m *Store) List(_ context.Context, q registry.Query) ([]registry.Entry, *registry.Cursor, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	limit := q.Limit
	if limit <= 0 {
		limit = defaultPage
	}
	var found []*memorySession
	for key, stored := range m.sessions {
		if key.Tenant == q.Tenant && m.matchesLocked(stored, q) {
			found = append(found, stored)
		}
	}
	slices.SortFunc(found, func(a, b *memorySession) int {
		order := compareCursor(a.cursor(), b.cursor())
		if q.Newest {
			return -order
		}
		return order
	})
	var next *registry.Cursor
	if len(found) > limit {
		found = found[:limit]
		last := found[limit-1].cursor()
		next = &last
	}
	page := make([]registry.Entry, len(found))
	for i, stored := range found {
		page[i] = stored.entry()
	}
	return page, next, nil
}

func (s *memorySession) cursor() registry.Cursor {
	return registry.Cursor{Generation: s.session.Generation, Session: s.session.Key.Session}
}

func (m *Store) matchesLocked(stored *memorySession, q registry.Query) bool {
	if m.liveLocked(stored.session.Key) != stored ||
		!m.podLiveLocked(stored.session.Pod) || !q.Matches(stored.session) {
		return false
	}
	if q.Tool != "" {
		if t, ok := stored.tools[q.Tool]; !ok || q.Spec != "" && t.Hash() != q.Spec {
			return false
		}
	}
	if q.After == (registry.Cursor{}) {
		return true
	}
	order := compareCursor(stored.cursor(), q.After)
	if q.Newest {
		return order < 0
	}
	return order > 0
}

// Groups implements Directory.
func (m *Store) Groups(_ context.Context, q registry.GroupQuery) ([]registry.Group, string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	limit := q.Limit
	if limit <= 0 {
		limit = defaultPage
	}
	groups := make(map[string]*registry.Group) // by name and hash: the order of the pages
	for key, stored := range m.sessions {
		if key.Tenant != q.Tenant || !m.matchesLocked(stored, registry.Query{}) {
			continue
		}
		for _, t := range stored.tools {
			id := t.Name + "\x00" + t.Hash()
			switch {
			case q.Name != "" && t.Name != q.Name || id <= q.After:
			case groups[id] == nil:
				groups[id] = &registry.Group{Spec: t, Sessions: 1}
			default:
				groups[id].Sessions++
			}
		}
	}
	ids := make([]string, 0, len(groups))
	for id := range groups {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, strings.Compare)
	next := ""
	if len(ids) > limit {
		ids = ids[:limit]
		next = ids[limit-1]
	}
	page := make([]registry.Group, len(ids))
	for i, id := range ids {
		page[i] = *groups[id]
	}
	return page, next, nil
}

// Definitions implements Directory.
func (m *Store) Definitions(_ context.Context, tenant, tool string) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	eldest := make(map[string]registry.Session) // by hash
	for _, stored := range m.sessions {
		if !m.matchesLocked(stored, registry.Query{Tenant: tenant, Tool: tool}) || stored.session.Tenant != tenant {
			continue
		}
		hash := stored.tools[tool].Hash()
		if known, ok := eldest[hash]; !ok || stored.session.ElderThan(known) {
			eldest[hash] = stored.session
		}
	}
	hashes := slices.SortedFunc(maps.Keys(eldest), func(a, b string) int {
		switch {
		case eldest[a].ElderThan(eldest[b]):
			return -1
		case eldest[b].ElderThan(eldest[a]):
			return 1
		default:
			return strings.Compare(a, b)
		}
	})
	return hashes[:min(len(hashes), registry.MaxDefinitions)], nil
}

// Version implements Directory. Sessions that expire count as a change when they are swept.
func (m *Store) Version(context.Context, string) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	live := m.liveNamesLocked()
	slices.Sort(live)
	return fmt.Sprintf("%s %d %q", m.boot, m.changes, live), nil
}

// Heartbeat implements PodStore.
func (m *Store) Heartbeat(_ context.Context, pod string) (known bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	known = m.podLiveLocked(pod)
	m.pods[pod] = m.opts.Now().Add(leaseExpiry(m.opts.PodLease))
	return known, nil
}

// leaseExpiry is when a lease lapses after its last renewal. It is shorter than the configured lease, which is the
// promise to users: what is left of it is for finding the lapse and cleaning up.
func leaseExpiry(lease time.Duration) time.Duration { return lease * 4 / 5 }

func (m *Store) podLiveLocked(pod string) bool {
	expires, ok := m.pods[pod]
	return ok && m.opts.Now().Before(expires)
}

// Whole implements PodStore. Nobody can empty it.
func (m *Store) Whole(context.Context) error { return nil }

// Live implements PodStore.
func (m *Store) Live(context.Context) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.liveNamesLocked(), nil
}

func (m *Store) liveNamesLocked() []string {
	var live []string
	for pod := range m.pods {
		if m.podLiveLocked(pod) {
			live = append(live, pod)
		}
	}
	return live
}

// Sweep implements PodStore. It also forgets what has expired.
func (m *Store) Sweep(context.Context) ([]string, error) {
	m.purgeCalls()
	m.purgeFeeds()
	m.purgeConversations()
	m.mu.Lock()
	defer m.mu.Unlock()
	var dead []string
	for pod := range m.pods {
		if !m.podLiveLocked(pod) {
			dead = append(dead, pod)
			delete(m.pods, pod)
		}
	}
	for key, stored := range m.sessions {
		switch {
		case slices.Contains(dead, stored.session.Pod):
			m.forgetLocked(key)
		case m.liveLocked(key) == nil:
			delete(m.sessions, key)
			m.changes++
		}
	}
	now := m.opts.Now()
	for key, gone := range m.gone {
		if !now.Before(gone.until) {
			delete(m.gone, key)
		}
	}
	for key := range m.formers {
		if left := m.formersLocked(key, now); len(left) == 0 {
			delete(m.formers, key)
		} else {
			m.formers[key] = left
		}
	}
	return dead, nil
}

// Leave implements PodStore.
func (m *Store) Leave(_ context.Context, pod string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.pods, pod)
	return nil
}
