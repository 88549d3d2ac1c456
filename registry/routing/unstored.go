package routing

import (
	"sync"

	"github.com/farhand/farhand/registry"
)

// unstoredLimit bounds each of the two generations of what is remembered.
const unstoredLimit = 512

// unstoredOutcomes remembers how durable calls ended that the store could not be told of: it was away, or emptied. The zero value
// is ready.
type unstoredOutcomes struct {
	mu       sync.Mutex
	current  map[string]registry.Record // by call id
	previous map[string]registry.Record
}

func (u *unstoredOutcomes) put(r registry.Record) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.current == nil || len(u.current) >= unstoredLimit {
		u.previous, u.current = u.current, make(map[string]registry.Record)
	}
	u.current[r.CallID] = r
}

func (u *unstoredOutcomes) get(tenant, callID string) (registry.Record, bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	r, ok := u.current[callID]
	if !ok {
		r, ok = u.previous[callID]
	}
	return r, ok && r.Tenant == tenant
}
