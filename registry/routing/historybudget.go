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
	e := registry.Errorf(registry.CodeRateLimited, "Conversations have grown too much: by %d bytes of a tenant over %v, "+
		"and half of them of one identity. Ask again in %v, or raise FARHAND_HISTORY_BYTES.",
		b.tenant.Bytes, b.tenant.Over, wait.Round(time.Second))
	e.RetryAfter = wait
	return e
}

// Add counts bytes that a running turn has added. If there were none left, turns that begin later pay for them first.
func (b *HistoryBudget) Add(ctx context.Context, by share.Owner, bytes int) {
	if n := int64(bytes); b.spend(ctx, by.Tenant, by.Identity, n) > 0 {
		b.owe(by.Tenant, by.Identity, n)
	}
}
