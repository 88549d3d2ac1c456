package routing

import (
	"context"
	"fmt"
	"time"

	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
)

// DefaultHistoryBytes is the default of how many bytes of conversations a tenant may add while the store keeps them.
const DefaultHistoryBytes = 512 << 20

// identityShare divides a tenant's budget of conversations: an identity may use half of it, because an app's backend
// holds the conversations of all its users.
const identityShare = 2

// ByteBudget bounds what tenants and their identities add to the store, by all pods together. An identity without a
// name has what its tenant has. It is safe for concurrent use.
type ByteBudget struct {
	sharedBudget
	full string // why something is refused
}

// newHistoryBudget returns the budget of conversations.
func newHistoryBudget(cfg PodConfig, r *reservations) *ByteBudget {
	return newByteBudget(r, "history", registry.Budget{Bytes: cfg.HistoryBytes, Over: cfg.HistoryTTL},
		"Conversations have grown too much: raise FARHAND_HISTORY_BYTES, or ask again later.")
}

// newApprovalBudget returns the budget of approvals that are asked for.
func newApprovalBudget(r *reservations) *ByteBudget {
	kept := registry.Budget{Bytes: registry.MaxApprovalBytes, Over: registry.ApprovalRetained}
	return newByteBudget(r, "approvals", kept, "Too much was asked of approvers.")
}

func newByteBudget(r *reservations, name string, tenant registry.Budget, full string) *ByteBudget {
	full = fmt.Sprintf("%s A tenant may add %d bytes over %v, half of them at once, and one identity half of that.",
		full, tenant.Bytes, tenant.Over)
	return &ByteBudget{sharedBudget{r, name, tenant, identityShare}, full}
}

// Begin spends bytes that are going to be added. It fails with CodeRateLimited if there are too few left, and says when
// to try again.
func (b *ByteBudget) Begin(ctx context.Context, by share.Owner, bytes int) error {
	wait := b.spend(ctx, by.Tenant, by.Identity, int64(bytes))
	if wait == 0 {
		return nil
	}
	e := registry.Errorf(registry.CodeRateLimited, "%s Retry in %v.", b.full, wait.Round(time.Second))
	e.RetryAfter = wait
	return e
}

// Add counts bytes that were added, and reports whether there were too few left: then nothing more should be added
// soon, and Begin fails until they have come back.
func (b *ByteBudget) Add(ctx context.Context, by share.Owner, bytes int) (over bool) {
	return b.overdraw(ctx, by.Tenant, by.Identity, int64(bytes))
}

// GiveBack returns bytes that were spent in Begin and not added.
func (b *ByteBudget) GiveBack(by share.Owner, bytes int) {
	b.giveBack(by.Tenant, by.Identity, int64(bytes))
}
