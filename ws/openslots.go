package ws

import (
	"context"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/farhand/farhand/agent/auth"
	"github.com/farhand/farhand/registry"
)

// Bounds of what is opened at a time. A device beyond them is refused before the upgrade, with the time to come back.
const (
	maxOpening      = 32              // sessions being opened
	maxOpensWaiting = 8192            // requests that wait for a slot
	openingWait     = 8 * time.Second // how long each of them waits
	retrySpread     = 4 * time.Second // the times to come back are spread over this
)

// openSlots bounds how many sessions are opened at once on this pod, so that calls go on however many devices come.
type openSlots struct {
	slots   chan struct{}
	waiting atomic.Int64
}

func newOpenSlots() *openSlots { return &openSlots{slots: make(chan struct{}, maxOpening)} }

// acquire waits for a slot. release must be called if it returns nil.
func (o *openSlots) acquire(ctx context.Context) error {
	select {
	case o.slots <- struct{}{}:
		return nil
	default:
	}
	defer o.waiting.Add(-1)
	if o.waiting.Add(1) > maxOpensWaiting {
		return tooManyOpening()
	}
	timeout := time.NewTimer(openingWait)
	defer timeout.Stop()
	select {
	case o.slots <- struct{}{}:
		return nil
	case <-timeout.C:
		return tooManyOpening()
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (o *openSlots) release() { <-o.slots }

func tooManyOpening() *registry.Error {
	e := registry.Errorf(registry.CodeBusy,
		"This pod has as many sessions to open as it can. Connect again in a moment.")
	e.RetryAfter = retryAfter()
	return e
}

// checkOpenRate refuses a source that opens sessions faster than it may, and a device that has just sent too many
// frames.
func (s *Server) checkOpenRate(r *http.Request, key registry.Key, source netip.Prefix) error {
	if s.budgets.spent(device{key, source}) {
		e := registry.Errorf(registry.CodeRateLimited,
			"This session sent too many frames a moment ago. Connect again in a moment.")
		e.RetryAfter = retryAfter()
		s.cfg.Refusals.Note(r, auth.RefusedRate, e)
		return e
	}
	if s.openRates.Take(source, 1) {
		return nil
	}
	e := registry.Errorf(registry.CodeRateLimited,
		"Too many sessions are opened from this address. Connect again in a moment.")
	e.RetryAfter = retryAfter()
	s.cfg.Refusals.Note(r, auth.RefusedRate, e)
	return e
}

// retryAfter returns a random time to come back, or devices that were refused together would come back together.
func retryAfter() time.Duration { return rand.N(retrySpread) }
