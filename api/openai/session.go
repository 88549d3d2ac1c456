package openai

import (
	"context"
	"errors"
	"time"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/registry"
)

const (
	// maxCandidates bounds how many sessions an error lists when a user has several.
	maxCandidates = 20

	// lookupTimeout bounds the search for the session of a completion.
	lookupTimeout = 10 * time.Second
)

// Sessions finds the sessions that are connected.
type Sessions interface {
	// Connected returns a session that the caller may talk to. It fails with registry.CodeSessionNotFound or
	// registry.CodeNotConnected.
	Connected(ctx context.Context, caller auth.Identity, id string) (registry.Entry, error)
	// Each visits the sessions that match q. It fails if they are too many for one answer.
	Each(ctx context.Context, q registry.Query, visit func(registry.Entry)) error
}

// session returns the session whose tools join in a completion: the one with that id, otherwise the one of the user in
// the body. The key has no session if there is none, or if no tools are wanted. A caller whose credentials name a user
// speaks for that user only.
func (r *Request) session(
	ctx context.Context, sessions Sessions, caller auth.Identity, id string,
) (registry.Key, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	none := registry.Key{Tenant: caller.Tenant}
	switch {
	case id != "":
		e, err := sessions.Connected(ctx, caller, id)
		if err != nil || r.noTools() {
			return none, err
		}
		return e.Session.Key, nil
	case r.user == "" || r.noTools():
		return none, nil
	case caller.Viewer() != "" && caller.Viewer() != r.user:
		return none, &paramError{param: "user", err: registry.Errorf(registry.CodeForbidden,
			"The token is another user's. Leave \"user\" out, or name the user of the token.")}
	}
	found, err := sessionsOf(ctx, sessions, caller, r.user)
	switch {
	case err != nil:
		return none, err
	case len(found) == 1:
		return registry.Key{Tenant: caller.Tenant, Session: found[0].SessionID}, nil
	case len(found) > 1:
		return none, &paramError{param: "user", err: &registry.Error{
			Code: registry.CodeAmbiguousTarget, Candidates: found,
			Message: "Several sessions of this user are connected. Name one in the header " + HeaderSession + ".",
		}}
	}
	e, err := sessions.Connected(ctx, caller, r.user)
	switch {
	case errors.Is(err, registry.CodeSessionNotFound) || errors.Is(err, registry.CodeNotConnected):
		return none, nil
	case err != nil:
		return none, err
	case e.Session.UserID != "" && e.Session.UserID != r.user: // any device may choose an id that is a user's name
		return none, nil
	}
	return e.Session.Key, nil
}

// sessionsOf returns the connected sessions of a user, at most maxCandidates. It looks at a bounded number of sessions:
// in a very large fleet callers need the header.
func sessionsOf(
	ctx context.Context, sessions Sessions, caller auth.Identity, user string,
) ([]registry.Candidate, error) {
	q := registry.Query{Tenant: caller.Tenant, Target: registry.Target{UserID: user, Viewer: caller.Viewer()}}
	var found []registry.Candidate
	err := sessions.Each(ctx, q, func(e registry.Entry) {
		if len(found) < maxCandidates {
			found = append(found, registry.Candidate{
				SessionID: e.Session.Key.Session, DeviceID: e.Session.DeviceID, UserID: e.Session.UserID,
				Name: e.Session.Name,
			})
		}
	})
	return found, err
}
