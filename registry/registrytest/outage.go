package registrytest

import (
	"errors"
	"sync"

	"github.com/farhand/farhand/registry"
)

// Outage makes a test's store fail for a while, and counts its requests. The zero value is ready to use, and lets all
// requests pass. It is safe for concurrent use.
type Outage struct {
	mu    sync.Mutex
	away  bool
	asked int
}

// Set begins or ends an outage.
func (o *Outage) Set(away bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.away = away
}

// Err counts a request and returns its error: CodeStoreUnavailable during an outage.
func (o *Outage) Err() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.asked++; o.away {
		return registry.StoreUnavailable("ask the store", errors.New("away"))
	}
	return nil
}

// Asked returns how many requests there were.
func (o *Outage) Asked() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.asked
}
