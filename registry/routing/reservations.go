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
	// budgetParts is into how many parts a budget is divided. A pod takes at least one part from the store at a time.
	budgetParts = 64

	// maxReservations bounds how many reservations a pod keeps. Beyond it those unused for longest go, with whatever
	// they have not spent.
	maxReservations = 1 << 14

	// minWait is the shortest time for which a pod does not ask the store again for a budget that is spent.
	minWait = time.Second
)

// reservations are the parts of budgets that this pod has taken from the store and not spent yet. They exist so that
// one request to the store pays for many small things. While the store is away nothing is refused, because nothing can
// be added to the store either. It is safe for concurrent use.
type reservations struct {
	store registry.BudgetStore
	log   *slog.Logger

	mu  sync.Mutex // guards the contents of each reservation
	all *cache.Cache[budgetName, *reservation]
}

type budgetName struct{ tenant, name string }

type reservation struct {
	remaining int64     // bytes taken from the store and not spent; below zero: bytes that are owed
	refused   time.Time // until then the budget is known to be spent
}

func newReservations(store registry.BudgetStore, log *slog.Logger) *reservations {
	return &reservations{store: store, log: log, all: cache.New[budgetName, *reservation](maxReservations/2, 0)}
}

// spend spends n bytes, all or none. It returns zero if it spent them, else how long to wait before trying again.
func (r *reservations) spend(ctx context.Context, tenant, name string, n int64, b registry.Budget) time.Duration {
	key := budgetName{tenant, name}
	n = min(n, b.Burst())
	wait, owed, known := r.spendKnown(key, n)
	if known {
		return wait
	}
	due := min(n+owed, b.Burst())
	part := max(due, b.Burst()/budgetParts)
	wait, err := r.store.Spend(ctx, tenant, name, part, b)
	if err == nil && wait > 0 && part > due { // the budget does not have a part, but maybe what is due
		part = due
		wait, err = r.store.Spend(ctx, tenant, name, part, b)
	}
	if err != nil {
		r.log.Debug("budget not asked", "tenant", tenant, "budget", name, "error", err)
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	x := r.getLocked(key)
	if wait > 0 {
		wait = max(wait, minWait)
		x.refused = time.Now().Add(wait)
		return wait
	}
	x.remaining += part - n
	return 0
}

// spendKnown spends n bytes of what this pod has, or finds the budget known to be spent. known is false if the store
// has to be asked, for what is owed as well.
func (r *reservations) spendKnown(key budgetName, n int64) (wait time.Duration, owed int64, known bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	x := r.getLocked(key)
	if x.remaining >= n {
		x.remaining -= n
		return 0, 0, true
	}
	wait = time.Until(x.refused)
	return max(wait, 0), max(-x.remaining, 0), wait > 0
}

// owe spends n bytes that the budget need not have, at most a burst of it altogether.
func (r *reservations) owe(tenant, name string, n int64, b registry.Budget) {
	r.mu.Lock()
	defer r.mu.Unlock()
	x := r.getLocked(budgetName{tenant, name})
	x.remaining = max(x.remaining-n, -b.Burst())
}

// giveBack returns n bytes that were spent for something that was not added after all. While the store is away nothing
// is taken from it, but everything is given back, so no more is kept than the whole budget.
func (r *reservations) giveBack(tenant, name string, n int64, b registry.Budget) {
	r.mu.Lock()
	defer r.mu.Unlock()
	x := r.getLocked(budgetName{tenant, name})
	x.remaining = min(x.remaining+min(n, b.Burst()), b.Burst())
}

// spent returns for how much longer the budget is known to be spent. Zero means that it is not known to be.
func (r *reservations) spent(tenant, name string) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return max(time.Until(r.getLocked(budgetName{tenant, name}).refused), 0)
}

func (r *reservations) getLocked(key budgetName) *reservation {
	x, ok := r.all.Get(key)
	if !ok {
		x = new(reservation)
		r.all.Put(key, x, 1)
	}
	return x
}
