package memory

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/farhand/farhand/registry"
)

// budgets are the budgets that are not full. A full budget needs no entry.
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
	s.all[key] = &budget{life{now.Add(2 * b.Over)}, tokens, now} // from one burst in deficit to full
	return 0
}

// windows are the sliding windows that have a charge.
type windows struct {
	mu     sync.Mutex
	all    expiring[windowKey, *window]
	purges throttle
}

type windowKey struct {
	tenant, name string
	period       time.Duration
}

// window has the times of the last charges, oldest first.
type window struct {
	life
	times []time.Time
}

// Take implements registry.LimitStore.
func (m *Store) Take(_ context.Context, tenant string, asked []registry.Window) (time.Duration, int, error) {
	if err := registry.CheckWindows(asked); err != nil {
		return 0, 0, err
	}
	s := &m.windows
	s.mu.Lock()
	defer s.mu.Unlock()
	now := m.opts.Now()
	if s.purges.due(now, time.Minute) {
		s.all.purge(now)
	}
	var wait time.Duration
	full := 0
	for i, w := range asked {
		known := s.all.get(windowKey{tenant, w.Name, w.Period.Truncate(time.Millisecond)}, now)
		if known == nil || len(known.times) < w.Limit {
			continue
		}
		// This charge must leave the window first: a window that was larger may hold more of them.
		leaving := known.times[len(known.times)-w.Limit]
		if left := leaving.Add(w.Period.Truncate(time.Millisecond)).Sub(now); left > wait {
			wait, full = left, i
		}
	}
	if wait > 0 {
		return wait, full, nil
	}
	for _, w := range asked {
		key := windowKey{tenant, w.Name, w.Period.Truncate(time.Millisecond)}
		known := s.all.get(key, now)
		if known == nil {
			known = new(window)
			s.all[key] = known
		}
		known.times = append(known.times, now)
		if n := len(known.times) - w.Limit; n > 0 {
			known.times = slices.Delete(known.times, 0, n)
		}
		known.expires = now.Add(key.period)
	}
	return 0, 0, nil
}
