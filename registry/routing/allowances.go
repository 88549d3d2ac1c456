package routing

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/farhand/farhand/internal/cache"
	"github.com/farhand/farhand/registry"
)

const (
	// allowanceParts is how many times a pod asks the store for a part of a budget before that is spent.
	allowanceParts = 64

	// maxAllowances bounds how many of them a pod keeps. Then those that nobody used lately go, with what is left of
	// them.
	maxAllowances = 1 << 14

	// minWait is how long a budget that is spent is not asked for again.
	minWait = time.Second
)

// allowances are the parts of budgets that this pod has taken from the store and not spent yet. The store is asked once
// for many small things. When the store is away nothing is refused: nothing can be added to it either. It is safe for
// concurrent use.
type allowances struct {
	store registry.BudgetStore
	log   *slog.Logger

	mu  sync.Mutex // of what is in each allowance
	all *cache.Cache[allowanceKey, *allowance]
}

type allowanceKey struct{ tenant, name string }

type allowance struct {
	left    int64
	refused time.Time // until then the budget is known to be spent
}

func newAllowances(store registry.BudgetStore, log *slog.Logger) *allowances {
	return &allowances{store: store, log: log, all: cache.New[allowanceKey, *allowance](maxAllowances/2, 0)}
}

// spend spends n bytes, all or none. It returns how long to wait if they are not there, else zero.
func (a *allowances) spend(ctx context.Context, tenant, name string, n int64, b registry.Budget) time.Duration {
	key := allowanceKey{tenant, name}
	n = min(n, b.Burst())
	if wait, known := a.spendKnown(key, n); known {
		return wait
	}
	part := max(n, b.Burst()/allowanceParts)
	wait, err := a.store.Spend(ctx, tenant, name, part, b)
	if err == nil && wait > 0 && part > n { // a part is not there, but what is needed may be
		part = n
		wait, err = a.store.Spend(ctx, tenant, name, part, b)
	}
	if err != nil {
		a.log.Debug("budget not asked", "tenant", tenant, "budget", name, "error", err)
		return 0
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	x := a.getLocked(key)
	if wait > 0 {
		wait = max(wait, minWait)
		x.refused = time.Now().Add(wait)
		return wait
	}
	x.left += part - n
	return 0
}

// spendKnown spends what this pod has. It reports false if the store has to be asked.
func (a *allowances) spendKnown(key allowanceKey, n int64) (wait time.Duration, known bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	x := a.getLocked(key)
	if x.left >= n {
		x.left -= n
		return 0, true
	}
	wait = time.Until(x.refused)
	return max(wait, 0), wait > 0
}

// giveBack returns what was taken for something that was not added after all.
func (a *allowances) giveBack(tenant, name string, n int64, b registry.Budget) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.getLocked(allowanceKey{tenant, name}).left += min(n, b.Burst())
}

// spent returns how long the budget is known to be spent, zero if it is not.
func (a *allowances) spent(tenant, name string) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return max(time.Until(a.getLocked(allowanceKey{tenant, name}).refused), 0)
}

func (a *allowances) getLocked(key allowanceKey) *allowance {
	x, ok := a.all.Get(key)
	if !ok {
		x = new(allowance)
		a.all.Put(key, x, 1)
	}
	return x
}
