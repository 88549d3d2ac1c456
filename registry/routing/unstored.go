package routing

import (
	"github.com/farhand/farhand/internal/cache"
	"github.com/farhand/farhand/registry"
)

// unstoredLimit is how many outcomes are remembered at least.
const unstoredLimit = 512

// unstoredOutcomes remembers how durable calls ended whose ends could not be stored, because the store was away or had
// been emptied. It is safe for concurrent use.
type unstoredOutcomes struct {
	byCallID *cache.Cache[string, registry.Record]
}

func newUnstoredOutcomes() unstoredOutcomes {
	return unstoredOutcomes{cache.New[string, registry.Record](unstoredLimit, 0)}
}

func (u unstoredOutcomes) put(r registry.Record) { u.byCallID.Put(r.CallID, r, 1) }

func (u unstoredOutcomes) get(tenant, callID string) (registry.Record, bool) {
	r, ok := u.byCallID.Get(callID)
	return r, ok && r.Tenant == tenant
}
