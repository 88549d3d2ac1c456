package routing

import (
	"context"
	"crypto/sha256"
	"time"

	"github.com/farhand/farhand/internal/cache"
	"github.com/farhand/farhand/registry"
)

// DefaultNewToolBytes is the default of how many bytes of tool definitions that are new to a pod a tenant may register
// during the time for which the store keeps them.
const DefaultNewToolBytes = 64 << 20

const (
	listedTool   = 250 // about how many bytes a tool takes in the indexes for each list that has it
	maxKnownSets = 1 << 15
)

// toolBudget bounds what devices add to the store by offering new tools. A bound is needed because definitions and
// lists of them stay in the store for a while after the last session that has them. Definitions and lists that this pod
// has seen lately are free, however many devices offer them. It is safe for concurrent use.
type toolBudget struct {
	sharedBudget
	known *cache.Cache[string, struct{}] // what was paid for, by tenant and hash; a look-up does not extend its life
}

func newToolBudget(cfg PodConfig, r *reservations) *toolBudget {
	tenant := registry.Budget{Bytes: cfg.NewToolBytes, Over: 2 * cfg.SessionTTL}
	return &toolBudget{
		sharedBudget: sharedBudget{r, "tools", tenant, sessionShare},
		known:        cache.New[string, struct{}](maxKnownSets, cfg.SessionTTL/2),
	}
}

// admit spends the bytes that these tools add to the store. The error says when to try again.
func (b *toolBudget) admit(ctx context.Context, key registry.Key, tools []registry.ToolSpec) error {
	cost, fresh := b.cost(key.Tenant, tools)
	if cost == 0 {
		return nil
	}
	if wait := b.spend(ctx, key.Tenant, key.Session, cost); wait > 0 {
		e := registry.Errorf(registry.CodeRateLimited, "too many new tool definitions: "+
			"a tenant may add %d bytes of them in %v, and one session an eighth of that; register them again in %v",
			b.tenant.Bytes, b.tenant.Over, wait.Round(time.Second))
		e.RetryAfter = wait
		return e
	}
	b.learn(fresh)
	return nil
}

// cost returns how many bytes of a list are new, and the names to learn once they are paid for.
func (b *toolBudget) cost(tenant string, tools []registry.ToolSpec) (cost int64, fresh []string) {
	if len(tools) == 0 {
		return 0, nil
	}
	hashes, list := make([]string, len(tools)), sha256.New()
	for i, t := range tools {
		hashes[i] = t.Hash()
		list.Write([]byte(hashes[i]))
	}
	name := tenant + "/" + string(list.Sum(nil))
	if b.known.Has(name) {
		return 0, nil
	}
	fresh = append(fresh, name)
	for i, t := range tools {
		cost += listedTool
		if name := tenant + "/" + hashes[i]; !b.known.Has(name) {
			cost += int64(t.Size())
			fresh = append(fresh, name)
		}
	}
	return cost, fresh
}

func (b *toolBudget) learn(names []string) {
	for _, name := range names {
		b.known.Put(name, struct{}{}, 1)
	}
}
