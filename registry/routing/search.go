package routing

import (
	"context"
	"slices"

	"github.com/farhand/farhand/registry"
)

func (r *Router) search(ctx context.Context, q registry.Query, sel registry.Select) (choice, error) {
	q.Limit = maxCandidates
	switch {
	case q.DeviceID != "":
		return r.searchDevice(ctx, q, sel)
	case sel == registry.SelectNewest:
		return r.newest(ctx, q)
	case sel == registry.SelectAny:
		q.Limit = 1
	}
	ctx, cancel := inTime(ctx)
	defer cancel()
	matches, _, err := r.firstMatches(ctx, q)
	switch {
	case err != nil:
		return choice{}, err
	case len(matches) == 0:
		return choice{}, r.noneOffers(ctx, q)
	case len(matches) > 1 && sel == registry.SelectNone:
		return choice{}, ambiguous(q.Tool, matches)
	}
	return offered(mostSenior(matches), q.Tool)
}

// newest chooses the newest of the sessions with the same tool definition as the most senior session. Any device may
// register a tool name that others have, and must not be preferred because it came later.
func (r *Router) newest(ctx context.Context, q registry.Query) (choice, error) {
	ctx, cancel := inTime(ctx)
	defer cancel()
	if q.Viewer != "" {
		return r.newestSeen(ctx, q)
	}
	for again := false; ; again = true {
		if found, ok, err := r.newestDefined(ctx, q); ok || err != nil {
			return found, err
		}
		q.Limit = maxCandidates
		matches, more, err := r.firstMatches(ctx, q)
		switch {
		case err != nil:
			return choice{}, err
		case len(matches) == 0:
			return choice{}, r.noneOffers(ctx, q)
		case len(matches) == 1 && !more:
			return offered(&matches[0], q.Tool)
		case again: // their ages are unknown, and the router does not guess
			return choice{}, ambiguous(q.Tool, matches)
		} // else they may have come between the two looks
	}
}

// newestDefined chooses the newest session with the oldest definition of the tool that a matching session has. It
// reports whether there is one.
func (r *Router) newestDefined(ctx context.Context, q registry.Query) (choice, bool, error) {
	specs, err := r.store.Definitions(ctx, q.Tenant, q.Tool)
	if err != nil {
		return choice{}, false, err
	}
	q.Newest, q.Limit = true, 1
	for _, spec := range specs {
		q.Spec = spec
		matches, _, err := r.firstMatches(ctx, q)
		if err != nil {
			return choice{}, false, err
		}
		if len(matches) > 0 {
			found, err := offered(&matches[0], q.Tool)
			return found, true, err
		}
	}
	return choice{}, false, nil
}

// newestSeen is newest for a viewer. The store's ages of a tool's definitions cover all users. One user has few
// sessions, so newestSeen reads them instead.
func (r *Router) newestSeen(ctx context.Context, q registry.Query) (choice, error) {
	q.Limit = maxOneDevice
	matches, more, err := r.firstMatches(ctx, q)
	switch {
	case err != nil:
		return choice{}, err
	case len(matches) == 0:
		return choice{}, r.noneOffers(ctx, q)
	case more:
		return choice{}, ambiguous(q.Tool, matches)
	}
	found, err := offered(mostSenior(matches), q.Tool)
	if err != nil {
		return choice{}, err
	}
	for i := range matches { // in the order of connecting
		if other, err := offered(&matches[i], q.Tool); err == nil && other.spec.Hash() == found.spec.Hash() {
			found = other
		}
	}
	return found, nil
}

// mostSenior returns the entry whose device has had its session for longest. If several sessions have the same device
// id, it is the least likely to have copied the id.
func mostSenior(entries []registry.Entry) *registry.Entry {
	found := &entries[0]
	for i := range entries {
		if entries[i].Session.SeniorTo(found.Session) {
			found = &entries[i]
		}
	}
	return found
}

// firstMatches reads pages until it has q.Limit entries or there are no more.
func (r *Router) firstMatches(ctx context.Context, q registry.Query) (found []registry.Entry, more bool, err error) {
	limit := q.Limit
	for {
		q.Limit = limit - len(found)
		page, next, err := r.store.List(ctx, q)
		if err != nil {
			return nil, false, err
		}
		found = append(found, page...)
		if next == nil || len(found) >= limit {
			return found, next != nil && len(found) > 1, nil
		}
		q.After = *next
	}
}

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
