package routing

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/farhand/farhand/internal/cache"
	"github.com/farhand/farhand/registry"
)

const (
	// budgetParts is into how many parts a budget is divided. A pod takes at least one part from the store at a time.
	budgetParts = 64

	// maxHolders bounds how many holders' shares of a tenant a pod keeps reservations of. Beyond it those unused for
	// longest go, with whatever they have not spent.
	maxHolders = 1 << 14

	// maxReserving bounds for how many tenants a pod keeps reservations. Beyond it those unused for longest go.
	maxReserving = 1 << 14

	// minWait is the shortest time for which a pod does not ask the store again for a budget that is spent.
	minWait = time.Second
)

// reservations are the parts of budgets that this pod has taken from the store and not spent yet. They exist so that
// one request to the store pays for many small things. While the store is away nothing is refused, because nothing can
// be added to the store either. It is safe for concurrent use.
type reservations struct {
	store registry.BudgetStore
	log   *slog.Logger

	mu  sync.Mutex                                // guards the contents of each reservation
	all *cache.Cache[string, *tenantReservations] // by tenant
}

type budgetName struct{ tenant, name string }

// tenantReservations are those of one tenant, by name. Those of holders, of which there may be any number, push out
// none of the tenant itself, nor of another one.
type tenantReservations struct {
	own     map[string]*reservation
	holders *cache.Cache[string, *reservation]
}

type reservation struct {
	remaining int64     // bytes taken from the store and not spent
	refused   time.Time // until then the budget is known not to have as many bytes as were wanted
	wanted    int64
}

func newReservations(store registry.BudgetStore, log *slog.Logger) *reservations {
	return &reservations{store: store, log: log, all: cache.New[string, *tenantReservations](maxReserving/2, 0)}
}

// spend spends n bytes, all or none. It returns zero if it spent them, else how long to wait before trying again.
func (r *reservations) spend(ctx context.Context, tenant, name string, n int64, b registry.Budget) time.Duration {
	key := budgetName{tenant, name}
	n = min(n, b.Burst())
	if wait, known := r.spendKnown(key, n); known {
		return wait
	}
	part := max(n, b.Burst()/budgetParts)
	wait, err := r.store.Spend(ctx, tenant, name, part, b)
	if err == nil && wait > 0 && part > n { // the budget does not have a part, but maybe n bytes
		part = n
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
		x.refused, x.wanted = time.Now().Add(wait), n
		return wait
	}
	x.remaining += part - n
	return 0
}

// spendKnown spends n bytes of what this pod has, or finds the budget known not to have as many. known is false if the
// store has to be asked.
func (r *reservations) spendKnown(key budgetName, n int64) (wait time.Duration, known bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	x := r.getLocked(key)
	if x.remaining >= n {
		x.remaining -= n
		return 0, true
	}
	wait = time.Until(x.refused)
	return max(wait, 0), wait > 0 && n >= x.wanted
}

// overdraw spends n bytes, also those that the budget does not have, and reports whether it lacked some.
func (r *reservations) overdraw(ctx context.Context, tenant, name string, n int64, b registry.Budget) bool {
	if r.spend(ctx, tenant, name, n, b) == 0 {
		return false
	}
	if err := r.store.Overdraw(ctx, tenant, name, n, b); err != nil {
		r.log.Debug("budget not overdrawn", "tenant", tenant, "budget", name, "error", err)
	}
	return true
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
	t, ok := r.all.Get(key.tenant)
	if !ok {
		t = &tenantReservations{
			own: make(map[string]*reservation), holders: cache.New[string, *reservation](maxHolders/2, 0),
		}
		r.all.Put(key.tenant, t, 1)
	}
	if !strings.Contains(key.name, holderMark) {
		if t.own[key.name] == nil {
			t.own[key.name] = new(reservation)
		}
		return t.own[key.name]
	}
	x, ok := t.holders.Get(key.name)
	if !ok {
		x = new(reservation)
		t.holders.Put(key.name, x, 1)
	}
	return x
}
