package routing

import (
	"sync"

	"github.com/farhand/farhand/registry"
)

// untoldLimit bounds each of the two generations of what is remembered.
const untoldLimit = 512

// untold remembers how durable calls ended that the store could not be told of: it was away, or emptied. The zero value
// is ready.
type untold struct {
	mu       sync.Mutex
	current  map[string]registry.Record // by call id
	previous map[string]registry.Record
}

func (u *untold) put(r registry.Record) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.current == nil || len(u.current) >= untoldLimit {
		u.previous, u.current = u.current, make(map[string]registry.Record)
	}
	u.current[r.CallID] = r
}

func (u *untold) get(tenant, callID string) (registry.Record, bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	r, ok := u.current[callID]
	if !ok {
		r, ok = u.previous[callID]
	}
	return r, ok && r.Tenant == tenant
}
