package redisstore

import (
	"context"
	"time"

	"github.com/farhand/farhand/redisstore/internal/redisconn"
	"github.com/farhand/farhand/registry"
)

// Spend implements registry.BudgetStore.
func (s *Store) Spend(
	ctx context.Context, tenant, name string, n int64, budget registry.Budget,
) (time.Duration, error) {
	return s.spend(ctx, tenant, name, n, budget, 0)
}

// Overdraw implements registry.BudgetStore.
func (s *Store) Overdraw(ctx context.Context, tenant, name string, n int64, budget registry.Budget) error {
	_, err := s.spend(ctx, tenant, name, n, budget, 1)
	return err
}

func (s *Store) spend(
	ctx context.Context, tenant, name string, n int64, budget registry.Budget, overdraw int,
) (time.Duration, error) {
	c, err := s.conn.Eval(ctx, scriptSpend, []string{budgetKey(tenant, name)},
		min(n, budget.Burst()), budget.Burst(), millis(budget.Over), overdraw)
	return time.Duration(c.Int()) * time.Millisecond, redisconn.Unavailable("spend of a budget", err)
}
