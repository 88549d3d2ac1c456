package memory

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/farhand/farhand/registry"
)

// grants are those of all tenants, by binding.
type grants struct {
	mu     sync.Mutex
	all    expiring[tenantKey, *grant]
	purges throttle
}

type grant struct {
	life
	registry.Grant
}

// PutGrant implements registry.GrantStore.
func (m *Store) PutGrant(_ context.Context, g registry.Grant, lasts time.Duration) (registry.Grant, error) {
	s := &m.grants
	s.mu.Lock()
	defer s.mu.Unlock()
	now, key := m.opts.Now(), tenantKey{g.Tenant, g.Binding()}
	if s.purges.due(now, time.Minute) {
		s.all.purge(now)
	}
	count := 0
	for other := range s.all {
		if other.tenant == g.Tenant && s.all.get(other, now) != nil {
			count++
		}
	}
	if s.all.get(key, now) == nil && count >= registry.MaxGrants {
		return g, registry.ErrManyGrants
	}
	g.CreatedAt = now.UTC().Truncate(time.Millisecond)
	g.ExpiresAt = g.CreatedAt.Add(lasts)
	s.all[key] = &grant{life{now.Add(lasts)}, g}
	return g, nil
}

// FindGrant implements registry.GrantStore.
func (m *Store) FindGrant(_ context.Context, tenant string, bindings ...string) (registry.Grant, error) {
	m.grants.mu.Lock()
	defer m.grants.mu.Unlock()
	for _, binding := range bindings {
		if g := m.grants.all.get(tenantKey{tenant, binding}, m.opts.Now()); g != nil {
			return g.Grant, nil
		}
	}
	return registry.Grant{}, registry.ErrNoGrant
}

// Grants implements registry.GrantStore.
func (m *Store) Grants(_ context.Context, tenant string) ([]registry.Grant, error) {
	m.grants.mu.Lock()
	defer m.grants.mu.Unlock()
	now, all := m.opts.Now(), []registry.Grant{}
	for key := range m.grants.all {
		if g := m.grants.all.get(key, now); g != nil && key.tenant == tenant {
			all = append(all, g.Grant)
		}
	}
	slices.SortFunc(all, func(a, b registry.Grant) int {
		return cmp.Or(a.ExpiresAt.Compare(b.ExpiresAt), cmp.Compare(a.ID, b.ID))
	})
	return all, nil
}

// RevokeGrant implements registry.GrantStore.
func (m *Store) RevokeGrant(_ context.Context, tenant, id string) (registry.Grant, error) {
	m.grants.mu.Lock()
	defer m.grants.mu.Unlock()
	for key := range m.grants.all {
		if g := m.grants.all.get(key, m.opts.Now()); g != nil && key.tenant == tenant && g.ID == id {
			delete(m.grants.all, key)
			return g.Grant, nil
		}
	}
	return registry.Grant{}, registry.ErrNoGrant
}
