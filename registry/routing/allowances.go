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
	// allowanceParts is into how many parts a budget is cut. A pod takes at least one part from the store at a time.
	allowanceParts = 64

	// maxAllowances bounds how many allowances a pod keeps. Beyond it those unused for longest go, with whatever they
	// have not spent.
	maxAllowances = 1 << 14

	// minWait is the shortest time for which a pod does not ask the store again for a budget that is spent.
	minWait = time.Second
)

// allowances are the parts of budgets that this pod has taken from the store and not spent yet. They exist so that one
// request to the store pays for many small things. While the store is away nothing is refused, because nothing can be
// added to the store either. It is safe for concurrent use.
type allowances struct {
	store registry.BudgetStore
	log   *slog.Logger

	mu  sync.Mutex // guards the contents of each allowance
	all *cache.Cache[allowanceKey, *allowance]
}

type allowanceKey struct{ tenant, name string }

type allowance struct {
	remaining int64     // bytes taken from the store and not spent
	refused   time.Time // until then the budget is known to be spent
}

func newAllowances(store registry.BudgetStore, log *slog.Logger) *allowances {
	return &allowances{store: store, log: log, all: cache.New[allowanceKey, *allowance](maxAllowances/2, 0)}
}

// spend spends n bytes, all or none. It returns zero if it spent them, else how long to wait before trying again.
func (a *allowances) spend(ctx context.Context, tenant, name string, n int64, b registry.Budget) time.Duration {
	key := allowanceKey{tenant, name}
	n = min(n, b.Burst())
	if wait, known := a.spendKnown(key, n); known {
		return wait
	}
	part := max(n, b.Burst()/allowanceParts)
	wait, err := a.store.Spend(ctx, tenant, name, part, b)
	if err == nil && wait > 0 && part > n { // there is no room for a part, but maybe for n bytes
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
	x.remaining += part - n
	return 0
}

// spendKnown spends n bytes of what this pod has, or finds the budget known to be spent. known is false if the store
// has to be asked.
func (a *allowances) spendKnown(key allowanceKey, n int64) (wait time.Duration, known bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	x := a.getLocked(key)
	if x.remaining >= n {
		x.remaining -= n
		return 0, true
	}
	wait = time.Until(x.refused)
	return max(wait, 0), wait > 0
}

// giveBack returns n bytes that were spent for something that was not added after all.
func (a *allowances) giveBack(tenant, name string, n int64, b registry.Budget) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.getLocked(allowanceKey{tenant, name}).remaining += min(n, b.Burst())
}

// spent returns for how much longer the budget is known to be spent. Zero means that it is not known to be.
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
