package routing

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
)

// awayBudgets is a store of budgets that fails while it is away.
type awayBudgets struct {
	registry.BudgetStore
	away bool
}

func (s *awayBudgets) Spend(
	ctx context.Context, tenant, name string, n int64, b registry.Budget,
) (time.Duration, error) {
	if s.away {
		return 0, registry.StoreUnavailable("spend", context.DeadlineExceeded)
	}
	return s.BudgetStore.Spend(ctx, tenant, name, n, b)
}

// What could not be added while the store was away is given back, although the store was not asked for it. That must
// not make a budget larger.
func TestAnOutageMakesNoBudgetLarger(t *testing.T) {
	store := &awayBudgets{memory.New(memory.Options{}), true}
	r := newReservations(store, slog.New(slog.DiscardHandler))
	calls := account{tenant: "t", name: "calls", Budget: registry.Budget{Bytes: 2000, Over: time.Hour}}
	const n, atOnce = 100, 1000
	for range atOnce {
		if wait := r.spend(t.Context(), calls, n); wait != 0 {
			t.Fatalf("refused for %v while the store is away", wait)
		}
	}
	for range atOnce {
		r.giveBack(calls, n)
	}
	store.away = false
	spent := int64(0)
	for r.spend(t.Context(), calls, n) == 0 {
		spent += n
	}
	if most := 2 * calls.Burst(); spent > most { // what was given back, and what the store has
		t.Errorf("%d bytes were spent, at most %d may be", spent, most)
	}
}
