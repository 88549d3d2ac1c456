package memory

import (
	"context"
	"sync"
	"time"

	"github.com/farhand/farhand/registry"
)

// budgets are the budgets that are not full. Of a full one nothing needs to be remembered.
type budgets struct {
	mu     sync.Mutex
	all    expiring[tenantKey, *budget]
	purges throttle
}

type budget struct {
	life   // until it is full again
	tokens float64
	at     time.Time
}

// Spend implements registry.BudgetStore.
func (m *Store) Spend(_ context.Context, tenant, name string, n int64, b registry.Budget) (time.Duration, error) {
	return m.spend(tenant, name, n, b, false), nil
}

// Overdraw implements registry.BudgetStore.
func (m *Store) Overdraw(_ context.Context, tenant, name string, n int64, b registry.Budget) error {
	m.spend(tenant, name, n, b, true)
	return nil
}

func (m *Store) spend(tenant, name string, n int64, b registry.Budget, overdraw bool) (wait time.Duration) {
	s := &m.budgets
	s.mu.Lock()
	defer s.mu.Unlock()
	now, key := m.opts.Now(), tenantKey{tenant, name}
	if s.purges.due(now, time.Minute) {
		s.all.purge(now)
	}
	tokens, wanted := float64(b.Burst()), float64(min(n, b.Burst()))
	if known := s.all.get(key, now); known != nil {
		tokens = min(tokens, known.tokens+float64(now.Sub(known.at).Milliseconds())*b.Rate())
	}
	if tokens < wanted && !overdraw {
		return time.Duration((wanted-tokens)/b.Rate()+1) * time.Millisecond
	}
	tokens = max(tokens-wanted, -float64(b.Burst()))
	s.all[key] = &budget{life{now.Add(2 * b.Over)}, tokens, now} // from a burst below nothing to full
	return 0
}
