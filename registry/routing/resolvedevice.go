package routing

import (
	"context"
	"slices"

	"github.com/farhand/farhand/registry"
)

// searchDevice chooses a session with a device id that offers the tool. If there are sessions whose credentials name
// the id, only these count, also if they do not offer the tool: any device may have chosen the id.
func (r *Router) searchDevice(ctx context.Context, q registry.Query, sel registry.Select) (choice, error) {
	ctx, cancel := inTime(ctx)
	defer cancel()
	matches, more, err := r.ofDevice(ctx, q)
	switch {
	case err != nil:
		return choice{}, err
	case len(matches) == 0:
		return choice{}, r.noneOffers(ctx, q)
	case len(matches) > 1 && (sel == registry.SelectNone || more):
		return choice{}, ambiguous(q.Tool, matches)
	}
	return offered(mostSenior(matches), q.Tool)
}

// ofDevice returns the sessions that searchDevice chooses from. more says that there are others.
func (r *Router) ofDevice(ctx context.Context, q registry.Query) (found []registry.Entry, more bool, err error) {
	every := q
	every.Tool, every.Limit = "", maxOneDevice
	found, more, err = r.firstMatches(ctx, every)
	unbound := func(e registry.Entry) bool { return !e.Session.Bound }
	bound := slices.DeleteFunc(slices.Clone(found), unbound)
	if err == nil && more { // other users' sessions may have used up the page
		every.Bound = true
		bound, _, err = r.firstMatches(ctx, every)
	}
	switch {
	case err != nil:
		return nil, false, err
	case len(bound) > 0:
		found, more = bound, false
	case more:
		q.Limit = maxOneDevice
		return r.firstMatches(ctx, q)
	}
	return slices.DeleteFunc(found, func(e registry.Entry) bool {
		return !slices.ContainsFunc(e.Tools, func(t registry.ToolSpec) bool { return t.Name == q.Tool })
	}), more, nil
}
