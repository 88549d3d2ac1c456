package memory

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/farhand/farhand/registry"
)

func (m *Store) Entry(_ context.Context, key registry.Key) (registry.Entry, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	stored := m.liveLocked(key)
	switch {
	case stored != nil && m.podLiveLocked(stored.session.Pod):
		return stored.entry(), nil
	case stored != nil, m.gone.get(key.Tenant, key, m.opts.Now()) != nil:
		return registry.Entry{Session: m.ownerLocked(key).Away()}, registry.NotConnected()
	default:
		return registry.Entry{}, registry.UnknownSession()
	}
}

func (m *Store) List(_ context.Context, q registry.Query) ([]registry.Entry, *registry.Cursor, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	limit := pageSize(q.Limit)
	var found []*storedSession
	for _, stored := range m.sessions.byTenant[q.Tenant] {
		if m.matchesLocked(stored, q) {
			found = append(found, stored)
		}
	}
	slices.SortFunc(found, func(a, b *storedSession) int { return q.Compare(a.cursor(), b.cursor()) })
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

func (m *Store) OnlineDevices(_ context.Context, tenant string, deviceIDs []string) (map[string]registry.Entry, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	online := make(map[string]registry.Entry)
	for _, stored := range m.sessions.byTenant[tenant] {
		s := &stored.session
		if !s.Bound || !slices.Contains(deviceIDs, s.DeviceID) ||
			!m.matchesLocked(stored, registry.Query{}) {
			continue
		}
		if newest, ok := online[s.DeviceID]; !ok || s.Generation > newest.Session.Generation {
			online[s.DeviceID] = registry.Entry{Session: s.Clone(), Pulse: stored.pulse}
		}
	}
	return online, nil
}

func (m *Store) CountSessions(_ context.Context, tenants ...string) ([]int64, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	counts := make([]int64, len(tenants))
	for i, tenant := range tenants {
		counts[i] = int64(len(m.sessions.byTenant[tenant]))
	}
	return counts, nil
}

func (m *Store) matchesLocked(stored *storedSession, q registry.Query) bool {
	if !m.opts.Now().Before(stored.expires) || !m.podLiveLocked(stored.session.Pod) || !q.Matches(stored.session) {
		return false
	}
	if q.Tool != "" {
		if t, ok := stored.tools.get(q.Tool); !ok || q.Spec != "" && t.Hash() != q.Spec {
			return false
		}
	}
	return q.Reaches(stored.cursor())
}

// listsLocked returns the tool lists of a tenant's live sessions. Sessions with equal tools share one list, so that a
// fleet that runs one app is counted and not read tool by tool.
func (m *Store) listsLocked(tenant string) map[listID]*sharedList {
	lists := make(map[listID]*sharedList)
	for _, stored := range m.sessions.byTenant[tenant] {
		if len(stored.tools) == 0 || !m.matchesLocked(stored, registry.Query{}) {
			continue
		}
		id := stored.tools.id()
		if lists[id] == nil {
			lists[id] = &sharedList{tools: stored.tools}
		}
		lists[id].sessions++
	}
	return lists
}

func (m *Store) OfferedTools(_ context.Context, q registry.OfferedToolQuery) ([]registry.OfferedTool, string, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	limit := pageSize(q.Limit)
	groups := make(map[string]*registry.OfferedTool) // by name and hash: the order of the pages
	for _, list := range m.listsLocked(q.Tenant) {
		for _, t := range list.tools {
			id := t.Name + "\x00" + t.Hash()
			switch {
			case q.Name != "" && t.Name != q.Name || id <= q.After:
			case groups[id] == nil:
				groups[id] = &registry.OfferedTool{Spec: t, Sessions: list.sessions}
			default:
				groups[id].Sessions += list.sessions
			}
		}
	}
	ids, next := slices.Sorted(maps.Keys(groups)), ""
	if len(ids) > limit {
		ids = ids[:limit]
		next = ids[limit-1]
	}
	page := make([]registry.OfferedTool, len(ids))
	for i, id := range ids {
		page[i] = *groups[id]
	}
	return page, next, nil
}

func (m *Store) Definitions(_ context.Context, tenant, tool string) ([]string, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	senior := make(map[string]registry.Session) // by hash: the most senior session that offers the definition
	for _, stored := range m.sessions.byTenant[tenant] {
		if !m.matchesLocked(stored, registry.Query{Tenant: tenant, Tool: tool}) {
			continue
		}
		t, _ := stored.tools.get(tool)
		hash := t.Hash()
		if known, ok := senior[hash]; !ok || stored.session.SeniorTo(known) {
			senior[hash] = stored.session
		}
	}
	hashes := slices.SortedFunc(maps.Keys(senior), func(a, b string) int {
		switch {
		case senior[a].SeniorTo(senior[b]):
			return -1
		case senior[b].SeniorTo(senior[a]):
			return 1
		default:
			return strings.Compare(a, b)
		}
	})
	return hashes[:min(len(hashes), registry.MaxDefinitions)], nil
}

// Version implements registry.Directory. An expired session counts as a change when it is swept.
func (m *Store) Version(context.Context, string) (string, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	live := m.livePodsLocked()
	slices.Sort(live)
	return fmt.Sprintf("%s %d %q", m.boot, m.changes, live), nil
}
