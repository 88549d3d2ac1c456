package routing

import (
	"context"
	"time"

	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
)

// DefaultHistoryBytes is the default of how many bytes of conversations a tenant may add while the store keeps them.
const DefaultHistoryBytes = 512 << 20

// identityShare divides a tenant's budget of conversations: an identity may use half of it, because an app's backend
// holds the conversations of all its users.
const identityShare = 2

// HistoryBudget bounds what tenants and their identities add to conversations, by all pods together. An identity
// without a name has what its tenant has. It is safe for concurrent use.
type HistoryBudget struct{ sharedBudget }

func newHistoryBudget(cfg PodConfig, r *reservations) *HistoryBudget {
	tenant := registry.Budget{Bytes: cfg.HistoryBytes, Over: cfg.HistoryTTL}
	return &HistoryBudget{sharedBudget{r, "history", tenant, identityShare}}
}

// Begin spends the bytes that a turn adds first. It fails with CodeRateLimited if there are none left, and says when to
// try again.
func (b *HistoryBudget) Begin(ctx context.Context, by share.Owner, bytes int) error {
	wait := b.spend(ctx, by.Tenant, by.Identity, int64(bytes))
	if wait == 0 {
		return nil
	}
	e := registry.Errorf(registry.CodeRateLimited, "Conversations have grown too much: those of a tenant may grow by %d "+
		"bytes over %v, half of them at once, and one identity has half of that. Ask again in %v, or raise "+
		"FARHAND_HISTORY_BYTES.", b.tenant.Bytes, b.tenant.Over, wait.Round(time.Second))
	e.RetryAfter = wait
	return e
}

// Add counts bytes that a running turn has added, and reports whether there were too few left: then the turn must end
// soon, and none begins before they have come back.
func (b *HistoryBudget) Add(ctx context.Context, by share.Owner, bytes int) (over bool) {
	return b.overdraw(ctx, by.Tenant, by.Identity, int64(bytes))
}

// GiveBack returns bytes that a turn spent in Begin and did not store.
func (b *HistoryBudget) GiveBack(by share.Owner, bytes int) {
	b.giveBack(by.Tenant, by.Identity, int64(bytes))
}
