package memory

import (
	"context"
	"sync"
	"time"

	"github.com/farhand/farhand/registry"
)

// usage is what was used, by tenant and day.
type usage struct {
	mu     sync.Mutex
	days   expiring[tenantKey, *usageDay]
	purges throttle
}

type usageDay struct {
	life
	rows map[usageKey]registry.Usage
}

type usageKey struct{ user, key, tool string }

// AddUsage implements registry.UsageStore.
func (m *Store) AddUsage(_ context.Context, rows []registry.UsageRow) error {
	s := &m.usage
	s.mu.Lock()
	defer s.mu.Unlock()
	now := m.opts.Now()
	if s.purges.due(now, time.Minute) {
		s.days.purge(now)
	}
	for _, r := range rows {
		r.Trim()
		day := s.days.get(tenantKey{r.Tenant, r.Day}, now)
		if day == nil {
			day = &usageDay{rows: make(map[usageKey]registry.Usage)}
			s.days[tenantKey{r.Tenant, r.Day}] = day
		}
		key := usageKey{r.User, r.Key, r.Tool}
		if _, known := day.rows[key]; !known && len(day.rows) >= m.opts.UsageRows {
			key = usageKey{user: registry.UsageOther, tool: registry.UsageOther}
		}
		day.rows[key] = day.rows[key].Plus(r.Usage)
		day.expires = now.Add(m.opts.UsageTTL)
	}
	return nil
}

// ReadUsage implements registry.UsageStore.
func (m *Store) ReadUsage(_ context.Context, tenant, day string) ([]registry.UsageRow, error) {
	s := &m.usage
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.days.get(tenantKey{tenant, day}, m.opts.Now())
	if known == nil {
		return nil, nil
	}
	var rows []registry.UsageRow
	for key, u := range known.rows {
		rows = append(rows, registry.UsageRow{
			Tenant: tenant, Day: day, User: key.user, Key: key.key, Tool: key.tool, Usage: u,
		})
	}
	return rows, nil
}
