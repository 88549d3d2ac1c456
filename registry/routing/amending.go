package routing

import (
	"context"

	"github.com/farhand/farhand/registry"
)

// AmendWith makes this pod amend every result before it stores it, whichever way the result comes, so that nobody can
// read the unamended one. Progress that a device reports of a running call is not amended; its text is dropped instead.
func (c *Calls) AmendWith(amend registry.Amend) { c.store.amendWith(amend) }

func (c *callBudget) amendWith(amend registry.Amend) { c.amending.Store(&amend) }

// amends reports whether results are amended.
func (c *callBudget) amends() bool { return c.amending.Load() != nil }

// amend returns the event and the change with the amended result.
func (c *callBudget) amend(
	ctx context.Context, tenant, callID string, e registry.Event, change registry.Change,
) (registry.Event, registry.Change, error) {
	amend := c.amending.Load()
	if amend == nil || change.Result == nil || change.Amended {
		return e, change, nil
	}
	rec, err := c.ReadCall(ctx, tenant, callID)
	if err != nil {
		return e, change, err
	}
	if rec.SessionID == "" {
		rec.SessionID = change.Session.Session
	}
	res := (*amend)(ctx, rec, *change.Result)
	change.Result, change.Amended = &res, true
	return registry.EndEvent(res, nil), change, nil
}
