package routing

import (
	"context"
	"sync/atomic"

	"github.com/farhand/farhand/registry"
)

// amending amends results before they enter the store, on whatever way they come, so that nobody reads another. The
// zero value leaves them alone.
type amending struct {
	with atomic.Pointer[registry.Amend]
}

// on reports whether there is anything that amends.
func (a *amending) on() bool { return a.with.Load() != nil }

// amend returns the event and the change with the result as it is to be read.
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

// AmendWith has every result amended before it is stored from now on, by the pod that stores it. What a device reports
// of a call on its way, which nothing amends, loses its text.
func (c *Calls) AmendWith(amend registry.Amend) { c.store.amending.with.Store(&amend) }
