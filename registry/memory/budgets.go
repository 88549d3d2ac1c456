package memory

import (
	"context"
	"sync"
	"time"

	"github.com/farhand/farhand/registry"
)

// memoryBudgets are the budgets that are not full.
type memoryBudgets struct {
	mu     sync.Mutex
	all    map[memoryBudgetKey]memoryBudget
	purged time.Time
}

type memoryBudgetKey struct{ tenant, name string }

type memoryBudget struct {
	tokens float64
	at     time.Time
	full   time.Time // from then on nothing needs to be remembered
}

// Spend implements BudgetStore.
func (m *Store) Spend(_ context.Context, tenant, name string, n int64, b registry.Budget) (time.Duration, error) {
	s := &m.budgets
	s.mu.Lock()
	defer s.mu.Unlock()
	now, key := m.opts.Now(), memoryBudgetKey{tenant, name}
	if now.Sub(s.purged) >= time.Minute {
		s.purgeLocked(now)
	}
	burst, wanted := float64(b.Burst()), float64(min(n, b.Burst()))
	tokens := burst
	if known, ok := s.all[key]; ok {
		tokens = min(burst, known.tokens+float64(now.Sub(known.at).Milliseconds())*b.Rate())
	}
	if tokens < wanted {
		return time.Duration((wanted-tokens)/b.Rate()+1) * time.Millisecond, nil
	}
	s.all[key] = memoryBudget{tokens: tokens - wanted, at: now, full: now.Add(b.Over)}
	return 0, nil
}

func (s *memoryBudgets) purgeLocked(now time.Time) {
	s.purged = now
	for key, b := range s.all {
		if !now.Before(b.full) {
			delete(s.all, key)
		}
	}
}
