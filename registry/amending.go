package registry

import (
	"context"
	"sync/atomic"
)

// Amend returns what of a result is to be read. The record is that of its call, before the result is part of it.
type Amend func(ctx context.Context, rec Record, res Result) Result

// amending amends results before they enter the store, on whatever way they come, so that nobody reads another. The zero
// value leaves them alone.
type amending struct{ with atomic.Pointer[Amend] }

// on reports whether there is anything that amends.
func (a *amending) on() bool { return a.with.Load() != nil }

// amend returns the event and the change with the result as it is to be read.
func (a *amending) amend(
	ctx context.Context, calls CallStore, tenant, callID string, e Event, c Change,
) (Event, Change, error) {
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
	return eventOf(res, nil), c, nil
}

// AmendWith has every result amended before it is stored from now on, by the pod that stores it. What a device reports of a
// call on its way, which nothing amends, loses its text.
func (c *Calls) AmendWith(amend Amend) { c.store.amending.with.Store(&amend) }
