package routing

import (
	"context"
	"time"

	"github.com/farhand/farhand/registry"
)

// sessionShare divides a tenant's budget: one session may use an eighth of it.
const sessionShare = 8

// sharedBudget is a budget of each tenant, of which no session may use more than its share.
type sharedBudget struct {
	reserved *reservations
	name     string
	tenant   registry.Budget
}

// spend spends n bytes of the session's share and of the tenant's budget. It returns zero if it spent them, else how
// long to wait before trying again. A key without a session has no share.
func (b *sharedBudget) spend(ctx context.Context, key registry.Key, n int64) time.Duration {
	if key.Session != "" {
		if wait := b.reserved.spend(ctx, key.Tenant, b.shareName(key), n, b.share()); wait > 0 {
			return wait
		}
	}
	wait := b.reserved.spend(ctx, key.Tenant, b.name, n, b.tenant)
	if wait > 0 && key.Session != "" {
		b.reserved.giveBack(key.Tenant, b.shareName(key), n, b.share())
	}
	return wait
}

// giveBack returns n bytes that were spent for something that was not stored after all.
func (b *sharedBudget) giveBack(key registry.Key, n int64) {
	if n == 0 {
		return
	}
	if key.Session != "" {
		b.reserved.giveBack(key.Tenant, b.shareName(key), n, b.share())
	}
	b.reserved.giveBack(key.Tenant, b.name, n, b.tenant)
}

// spent returns for how much longer the session is known to have nothing left. Zero means that it may have something.
func (b *sharedBudget) spent(key registry.Key) time.Duration {
	return max(b.reserved.spent(key.Tenant, b.name), b.reserved.spent(key.Tenant, b.shareName(key)))
}

func (b *sharedBudget) share() registry.Budget {
	return registry.Budget{Bytes: b.tenant.Bytes / sessionShare, Over: b.tenant.Over}
}

func (b *sharedBudget) shareName(key registry.Key) string { return b.name + "/" + key.Session }
