package routing

import (
	"context"
	"time"

	"github.com/farhand/farhand/registry"
)

// amendTimeout bounds all amending of one result. What hooks have not looked at by then they withhold or leave alone.
const amendTimeout = 10 * time.Second

// amending is what amends results before they are stored.
type amending struct {
	amend registry.Amend
	of    func(tool string) bool // whether the results of a tool are amended
}

// AmendWith makes this pod amend every result of the tools that amends names before it stores it, whichever way the
// result comes, so that nobody can read the unamended one. Progress that a device reports of such a call is not
// amended; its text is dropped instead.
func (c *Calls) AmendWith(amend registry.Amend, amends func(tool string) bool) {
	c.store.amendWith(amend, amends)
}

func (c *callBudget) amendWith(amend registry.Amend, amends func(tool string) bool) {
	c.amending.Store(&amending{amend, amends})
}

// amends reports whether the results of a tool are amended.
func (c *callBudget) amends(tool string) bool {
	a := c.amending.Load()
	return a != nil && a.of(tool)
}

// amend returns the event and the change with the amended result.
func (c *callBudget) amend(
	ctx context.Context, tenant, callID string, e registry.Event, change registry.Change,
) (registry.Event, registry.Change, error) {
	a := c.amending.Load()
	if a == nil || change.Amended {
		return e, change, nil
	}
	rec, err := c.ReadCall(ctx, tenant, callID)
	if err != nil || !a.of(rec.Tool) {
		return e, change, err
	}
	if rec.SessionID == "" {
		rec.SessionID = change.Session.Session
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), amendTimeout)
	defer cancel()
	res := a.amend(ctx, rec, *change.Result)
	change.Result, change.Amended = &res, true
	return registry.EndEvent(res, nil), change, nil
}
