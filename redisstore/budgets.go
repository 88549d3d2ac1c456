package redisstore

import (
	"context"
	"time"

	"github.com/farhand/farhand/registry"
)

// Spend implements registry.BudgetStore.
func (s *Store) Spend(ctx context.Context, tenant, name string, n int64, budget registry.Budget) (time.Duration, error) {
	b := s.conn.batch()
	c := b.eval(scriptSpend, []string{budgetKey(tenant, name)}, min(n, budget.Burst()), budget.Burst(), millis(budget.Over))
	err := b.run(ctx)
	return time.Duration(c.int()) * time.Millisecond, unavailable("spend of a budget", err)
}
