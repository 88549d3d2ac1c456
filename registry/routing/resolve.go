package routing

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/farhand/farhand/registry"
)

const (
	maxCandidates = 20  // sessions that an ambiguous_target error lists
	maxOneDevice  = 200 // sessions with one device id; among more, the most senior is not searched for
)

// Resolve chooses the session for a call. A target with a session id names that session. Otherwise Resolve searches the
// sessions that offer the tool and match the target. One match is the result; several are ambiguous unless sel makes
// the choice. If there is none, but one is expected back, Resolve waits for it; see expect. All errors have
// DispatchedNo.
func (r *Router) Resolve(
	ctx context.Context, tenant, tool string, target registry.Target, sel registry.Select,
) (registry.Route, error) {
	q := registry.Query{Tenant: tenant, Tool: tool, Target: target}
	f, err := r.choose(ctx, q, sel)
	switch {
	case err == nil:
	case target.SessionID != "":
		f, err = r.expectSession(ctx, registry.Key{Tenant: tenant, Session: target.SessionID}, q, err)
	default:
		f, err = r.expect(ctx, q, sel, err, func(ctx context.Context) (choice, error) { return r.search(ctx, q, sel) })
	}
	return f.route(target, err)
}

// ResolveNow is Resolve for callers that prepare to wait. If Resolve would wait for a device, ResolveNow returns
// immediately with waits true and an error that says what is missing.
func (r *Router) ResolveNow(
	ctx context.Context, tenant, tool string, target registry.Target, sel registry.Select,
) (route registry.Route, waits bool, err error) {
	q := registry.Query{Tenant: tenant, Tool: tool, Target: target}
	f, err := r.choose(ctx, q, sel)
	if err != nil && isMissing(err) {
		var due []registry.Awaited
		if due, err = r.awaited(ctx, q, err); err == nil && len(due) == 0 {
			f, err = r.choose(ctx, q, sel) // it may have come between the two looks
		}
		waits = len(due) > 0
	}
	route, err = f.route(target, err)
	return route, waits, err
}

// awaited returns a session that is expected to be the missing one. If there is one, the error is missing.
func (r *Router) awaited(ctx context.Context, q registry.Query, missing error) ([]registry.Awaited, error) {
	if q.SessionID != "" && (registry.Key{Tenant: q.Tenant, Session: q.SessionID}).Validate() != nil {
		return nil, missing
	}
	ctx, cancel := inTime(ctx)
	defer cancel()
	q.Limit = 1
	due, err := r.store.Awaited(ctx, q)
	if err == nil && len(due) > 0 {
		err = missing
	}
	return due, err
}

func (r *Router) choose(ctx context.Context, q registry.Query, sel registry.Select) (choice, error) {
	if q.SessionID != "" {
		return r.resolveSession(ctx, q)
	}
	return r.search(ctx, q, sel)
}

// ResolveAgain returns the current state of a route. It waits for a device that is expected back, as Resolve does. All
// errors have DispatchedNo.
func (r *Router) ResolveAgain(ctx context.Context, old registry.Route) (registry.Route, error) {
	q := registry.Query{Tenant: old.Session.Tenant, Tool: old.Spec.Name, Target: old.Target}
	f, err := r.readSession(ctx, old.Session.Key, q)
	if err != nil {
		f, err = r.expectSession(ctx, old.Session.Key, q, err)
	}
	return f.route(old.Target, err)
}

// expectSession is expect for one session, which the query need not name.
func (r *Router) expectSession(
	ctx context.Context, key registry.Key, q registry.Query, missing error,
) (choice, error) {
	if key.Validate() != nil {
		return choice{}, missing
	}
	again := func(ctx context.Context) (choice, error) { return r.readSession(ctx, key, q) }
	named := q
	named.SessionID = key.Session
	return r.expect(ctx, named, registry.SelectNone, missing, again)
}

// choice is the chosen session with its tool. Both are read-only.
type choice struct {
	entry      *registry.Entry
	spec       *registry.ToolSpec
	remembered bool
	attributes uint64 // digest of the session's attributes; zero: not computed yet
}

// route returns the route to the choice, or err as an error with DispatchedNo.
func (f choice) route(target registry.Target, err error) (registry.Route, error) {
	if err != nil {
		return registry.Route{}, registry.AsError(err).With(registry.DispatchedNo)
	}
	if f.attributes == 0 {
		f.attributes = f.entry.Session.AttributesDigest()
	}
	return registry.Route{
		Session: f.entry.Session, Spec: *f.spec, Target: target, Remembered: f.remembered, Attributes: f.attributes,
	}, nil
}

// resolveSession returns the session that the query names, from the cache if it can.
func (r *Router) resolveSession(ctx context.Context, q registry.Query) (choice, error) {
	key := registry.Key{Tenant: q.Tenant, Session: q.SessionID}
	if err := key.Validate(); err != nil {
		return choice{}, registry.UnknownSession()
	}
	asked := q.Target
	asked.Viewer = ""
	if !asked.AsksMore() && r.hub.Get(key) == nil { // another user's device may have the session by now
		if e, attributes, ok := r.routes.get(key); ok && q.Sees(e.Session.UserID) {
			if f, err := offered(&e, q.Tool); err == nil {
				f.remembered, f.attributes = true, attributes
				r.routes.remembered.Add(1)
				return f, nil
			} // else the tool may have been added since
		}
	}
	return r.readSession(ctx, key, q)
}

// readSession returns a session that must match the query. It does not use the route cache.
func (r *Router) readSession(ctx context.Context, key registry.Key, q registry.Query) (choice, error) {
	if l := r.hub.Get(key); l != nil {
		e, attributes := l.entryWithDigest()
		f, err := offeredWithin(&e, q)
		f.attributes = attributes
		return f, err
	}
	ctx, cancel := inTime(ctx)
	defer cancel()
	r.routes.read.Add(1)
	asked := time.Now()
	e, err := r.store.Entry(ctx, key)
	if err != nil {
		if !errors.Is(err, registry.CodeStoreUnavailable) {
			r.routes.drop(key, asked)
		}
		return choice{}, hidden(q.Target, e.Session, err)
	}
	r.routes.put(e, asked)
	return offeredWithin(&e, q)
}

// offeredWithin is offered for a session that must match the whole target.
func offeredWithin(e *registry.Entry, q registry.Query) (choice, error) {
	switch {
	case !q.Sees(e.Session.UserID):
		return choice{}, registry.UnknownSession()
	case !q.Matches(e.Session):
		return choice{}, registry.Errorf(registry.CodeSessionNotFound,
			"The session does not match the rest of the target.").With(registry.DispatchedNo)
	}
	return offered(e, q.Tool)
}

// hidden returns the error for a session that is away. A session of another user is reported as unknown.
func hidden(target registry.Target, s registry.Session, err error) error {
	if errors.Is(err, registry.CodeNotConnected) && !target.Sees(s.UserID) {
		return registry.UnknownSession()
	}
	return err
}

// noneOffers returns the error that says whether the tool or the device is missing.
func (r *Router) noneOffers(ctx context.Context, q registry.Query) error {
	if err := r.store.Whole(ctx); err != nil {
		return err
	}
	if !q.IsZero() { // a session that the viewer cannot see does not match
		found, _, err := r.firstMatches(ctx, registry.Query{Tenant: q.Tenant, Target: q.Target, Limit: 1})
		if err != nil {
			return err
		}
		if len(found) == 0 {
			switch paired, err := r.isPaired(ctx, q.Tenant, q.Target); {
			case err != nil:
				return err
			case paired:
				return registry.NotConnected()
			}
			return registry.Errorf(registry.CodeSessionNotFound, "No connected session matches the target.")
		}
	}
	return registry.Errorf(registry.CodeToolNotFound,
		"No connected session in scope offers the tool %q. GET /api/tools lists the tools.", q.Tool)
}

// isPaired reports whether the target names a paired device, which may be away for any time.
func (r *Router) isPaired(ctx context.Context, tenant string, target registry.Target) (bool, error) {
	if target.DeviceID == "" || len(target.Labels) > 0 {
		return false, nil
	}
	paired, err := r.store.PairedDevices(ctx, tenant, target.DeviceID)
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(paired, func(c registry.Credential) bool {
		return target.Sees(c.User) && (target.UserID == "" || target.UserID == c.User)
	}), nil
}

func offered(e *registry.Entry, tool string) (choice, error) {
	for i := range e.Tools {
		if e.Tools[i].Name == tool {
			return choice{entry: e, spec: &e.Tools[i]}, nil
		}
	}
	return choice{}, registry.Errorf(registry.CodeToolNotFound,
		"The session %s does not offer the tool %q. GET /api/sessions/%s lists its tools.",
		e.Session.Key.Session, tool, e.Session.Key.Session)
}

func ambiguous(tool string, found []registry.Entry) *registry.Error {
	e := registry.Errorf(registry.CodeAmbiguousTarget,
		"Several sessions offer %q. Name one in target, or set select to any or newest.", tool)
	for _, f := range found[:min(len(found), maxCandidates)] {
		e.Candidates = append(e.Candidates, registry.Candidate{
			SessionID: f.Session.Key.Session, DeviceID: f.Session.DeviceID,
			UserID: f.Session.UserID, Name: cmp.Or(f.Session.Name, f.Session.DeviceName),
			Foreground: f.Session.InForeground(),
		})
	}
	return e
}

// inTime returns a context that ends at the deadline of ctx. ctx itself may only report its deadline and never end at
// it, because most calls need no store request, and so no timer.
func inTime(ctx context.Context) (context.Context, context.CancelFunc) {
	if deadline, ok := ctx.Deadline(); ok {
		return context.WithDeadline(ctx, deadline)
	}
	return ctx, func() {}
}
