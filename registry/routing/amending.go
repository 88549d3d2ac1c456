package routing

import (
	"context"
	"sync/atomic"

	"github.com/farhand/farhand/registry"
)

// amending amends every result before it enters the store, whichever way it comes, so that nobody can read the
// unamended one. The zero value changes nothing.
type amending struct {
	with atomic.Pointer[registry.Amend]
}

// on reports whether results are amended.
func (a *amending) on() bool { return a.with.Load() != nil }

// amend returns the event and the change with the amended result.
func (a *amending) amend(
	ctx context.Context, calls registry.CallStore, tenant, callID string, e registry.Event, c registry.Change,
) (registry.Event, registry.Change, error) {
	with := a.with.Load()
	if with == nil || c.Result == nil || c.Amended {
		return e, c, nil
	}
	rec, err := calls.ReadCall(ctx, tenant, callID)
	if err != nil {
		return e, c, err
	}
	if rec.SessionID == "" {
		rec.SessionID = c.Session.Session
	}
	res := (*with)(ctx, rec, *c.Result)
	c.Result, c.Amended = &res, true
	return registry.EndEvent(res, nil), c, nil
}

// AmendWith makes this pod amend every result before it stores it. Progress that a device reports of a running call is
// not amended; its text is dropped instead.
func (c *Calls) AmendWith(amend registry.Amend) { c.store.amending.with.Store(&amend) }
