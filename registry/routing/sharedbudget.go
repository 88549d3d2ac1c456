package routing

import (
	"context"
	"time"

	"github.com/farhand/farhand/registry"
)

// sessionShare divides a tenant's budget: one session may use an eighth of it.
const sessionShare = 8

// sharedBudget is a budget of each tenant, of which no holder, a session or an identity, may use more than its share.
type sharedBudget struct {
	reserved *reservations
	name     string
	tenant   registry.Budget
	divisor  int64 // the share of a holder is the tenant's budget divided by it
}

// spend spends n bytes of the holder's share and of the tenant's budget. It returns zero if it spent them, else how
// long to wait before trying again. An empty holder has no share.
func (b *sharedBudget) spend(ctx context.Context, tenant, holder string, n int64) time.Duration {
	if holder != "" {
		if wait := b.reserved.spend(ctx, tenant, b.shareName(holder), n, b.share()); wait > 0 {
			return wait
		}
	}
	wait := b.reserved.spend(ctx, tenant, b.name, n, b.tenant)
	if wait > 0 && holder != "" {
		b.reserved.giveBack(tenant, b.shareName(holder), n, b.share())
	}
	return wait
}

// overdraw spends n bytes, also those that the share or the budget does not have: these come back before others can be
// spent. It reports whether some were missing.
func (b *sharedBudget) overdraw(ctx context.Context, tenant, holder string, n int64) (over bool) {
	if holder != "" {
		over = b.reserved.overdraw(ctx, tenant, b.shareName(holder), n, b.share())
	}
	return b.reserved.overdraw(ctx, tenant, b.name, n, b.tenant) || over
}

// giveBack returns n bytes that were spent for something that was not stored after all.
func (b *sharedBudget) giveBack(tenant, holder string, n int64) {
	if n == 0 {
		return
	}
	if holder != "" {
		b.reserved.giveBack(tenant, b.shareName(holder), n, b.share())
	}
	b.reserved.giveBack(tenant, b.name, n, b.tenant)
}

// spent returns for how much longer the holder is known to have nothing left. Zero means that it may have something.
func (b *sharedBudget) spent(tenant, holder string) time.Duration {
	return max(b.reserved.spent(tenant, b.name), b.reserved.spent(tenant, b.shareName(holder)))
}

func (b *sharedBudget) share() registry.Budget {
	return registry.Budget{Bytes: b.tenant.Bytes / b.divisor, Over: b.tenant.Over}
}

// holderMark stands in the name of a share between those of the budget and the holder. Names of budgets have none.
const holderMark = "/"

func (b *sharedBudget) shareName(holder string) string { return b.name + holderMark + holder }
