package memory

import (
	"context"
	"slices"
	"time"

	"github.com/farhand/farhand/registry"
)

type budget struct {
	life   // until it is full again
	tokens float64
	at     time.Time
}

func (m *Store) Spend(_ context.Context, tenant, name string, n int64, b registry.Budget) (time.Duration, error) {
	return m.spend(tenant, name, n, b, false), nil
}

func (m *Store) Overdraw(_ context.Context, tenant, name string, n int64, b registry.Budget) error {
	m.spend(tenant, name, n, b, true)
	return nil
}

func (m *Store) spend(tenant, name string, n int64, b registry.Budget, overdraw bool) (wait time.Duration) {
	s, key := &m.budgets, tenantKey{tenant, name}
	now := s.lock(m.opts.Now)
	defer s.mu.Unlock()
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

type windowKey struct {
	tenant, name string
	period       time.Duration
}

// window has the times of the last charges, oldest first.
type window struct {
	life
	times []time.Time
}

func (m *Store) Take(_ context.Context, tenant string, asked []registry.Window) (time.Duration, int, error) {
	if err := registry.CheckWindows(asked); err != nil {
		return 0, 0, err
	}
	s := &m.windows
	now := s.lock(m.opts.Now)
	defer s.mu.Unlock()
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
