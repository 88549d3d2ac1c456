package ws

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"time"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
)

// Bounds of what is opened at a time. A device beyond them is refused before the upgrade, with the time to come back.
const (
	maxOpening      = 64              // sessions being opened, half of them of one tenant
	maxOpensWaiting = 16384           // requests that wait for that, half of them of one tenant
	openingWait     = 8 * time.Second // how long each of them waits
	retrySpread     = 4 * time.Second // the times to come back are spread over this
)

// newSockets returns the pool of connections. Most pods serve one tenant, whose devices often share one token, and a
// connection lasts for hours. So a tenant that is alone may hold three quarters, and an identity half.
func newSockets(most int) *share.Pool {
	pod := int64(most)
	return share.New(share.Bounds{Pod: pod, Identity: max(pod/2, 1), Times: 3})
}

// newOpens returns the pool of sessions that are opened at once, so that calls go on however many devices come.
func newOpens() *share.Pool {
	return share.New(share.Bounds{Pod: maxOpening, Identity: maxOpening / 2, Waiting: maxOpensWaiting})
}

// ownerOf returns who holds the connections of an identity. Holders of the one token may be all devices of a fleet:
// they have what their tenant has.
func (s *Server) ownerOf(who *auth.Identity) share.Owner {
	owner := who.Owner()
	if who.Scope() == "" {
		owner.Most = int64(s.cfg.MaxSockets)
	}
	return owner
}

// waitToOpen waits for its turn to open a session.
func (s *Server) waitToOpen(ctx context.Context, by share.Owner) (*share.Grant, error) {
	if turn := s.opens.TakeFree(by, 1); turn != nil { // most do not wait, and need no deadline
		return turn, nil
	}
	inTime, cancel := context.WithTimeout(ctx, openingWait)
	defer cancel()
	turn, err := s.opens.Acquire(inTime, by, 1)
	if err != nil && ctx.Err() == nil {
		return nil, comeBack("This pod has as many sessions to open as it can. Connect again in a moment.")
	}
	return turn, err
}

// tooManySockets says which bound kept a connection out.
func tooManySockets(err error) error {
	full, ok := errors.AsType[*share.FullError](err)
	switch {
	case ok && full.Bound == share.Identity:
		return comeBack("This identity has as many connections to this pod as it may. Close some, or connect to " +
			"another pod.")
	case ok && full.Bound == share.Tenant:
		return comeBack("This tenant has its share of the connections to this pod. Close some, or connect again in a " +
			"moment.")
	default:
		return comeBack("This pod holds as many connections as it may. Connect again in a moment.")
	}
}

// comeBack is the error for a device that may connect again soon.
func comeBack(message string) *registry.Error {
	return &registry.Error{Code: registry.CodeBusy, Message: message, RetryAfter: retryAfter()}
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
