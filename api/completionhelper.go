package api

import (
	"context"

	"github.com/gin-gonic/gin"

	"github.com/farhand/farhand/agent/guard"
	"github.com/farhand/farhand/registry"
)

const (
	// headerSession names the session whose tools join in a completion.
	headerSession = "X-Farhand-Session"

	// maxHelpers bounds how many sessions an error lists that a completion could have meant.
	maxHelpers = 20
)

// helper returns the session whose tools join in a completion: the one the header names, else that of the user the body
// names. The session is empty if there is none, and if no tools are wanted. A caller whose credentials name a user speaks
// for nobody else.
func (h *handler) helper(c *gin.Context, r completionRequest) (registry.Key, error) {
	ctx, cancel := context.WithTimeout(c.Request.Context(), storeTimeout)
	defer cancel()
	none := registry.Key{Tenant: caller(c).Tenant}
	switch id := c.GetHeader(headerSession); {
	case id != "":
		e, err := h.connected(ctx, caller(c), id)
		if err != nil || r.noTools() {
			return none, err
		}
		return e.Session.Key, nil
	case r.user == "" || r.noTools():
		return none, nil
	case caller(c).User != "" && caller(c).User != r.user:
		return none, &openAIFault{param: "user", err: registry.Errorf(registry.CodeForbidden,
			"The token is another user's. Leave \"user\" out, or name the user of the token.")}
	}
	found, err := h.sessionsOf(ctx, none.Tenant, r.user)
	switch {
	case err != nil:
		return none, err
	case len(found) == 1:
		return registry.Key{Tenant: none.Tenant, Session: found[0].SessionID}, nil
	case len(found) > 1:
		return none, &openAIFault{param: "user", err: &registry.Error{
			Code: registry.CodeAmbiguousTarget, Candidates: found,
			Message: "Several sessions of this user are connected. Name one in the header " + headerSession + ".",
		}}
	}
	e, err := h.connected(ctx, caller(c), r.user)
	switch {
	case err != nil && isAbsent(err):
		return none, nil
	case err != nil:
		return none, err
	case e.Session.UserID != "" && e.Session.UserID != r.user: // anybody may choose an id, also one that is a user's name
		return none, nil
	}
	return e.Session.Key, nil
}

// connected returns a session that must be there, and may be the caller's.
func (h *handler) connected(ctx context.Context, who guard.Identity, id string) (registry.Entry, error) {
	key := registry.Key{Tenant: who.Tenant, Session: id}
	if key.Validate() != nil { // an impossible id is an unknown one; it never reaches the store
		return registry.Entry{}, unknownSession()
	}
	e, err := h.Directory.Entry(ctx, key)
	if err == nil && isForeign(who, e.Session) {
		return registry.Entry{}, unknownSession()
	}
	return e, err
}

// isForeign reports whether a session is another user's than the caller: whoever is not known to be one may talk to it.
func isForeign(who guard.Identity, s registry.Session) bool {
	return who.User != "" && s.UserID != "" && who.User != s.UserID
}

func unknownSession() error {
	return registry.Errorf(registry.CodeSessionNotFound, "No session has this id.")
}

// sessionsOf returns the connected sessions of a user, up to maxHelpers. It looks at a bounded number of sessions: in a
// very large fleet the header is the way.
func (h *handler) sessionsOf(ctx context.Context, tenant, user string) ([]registry.Candidate, error) {
	q := registry.Query{Tenant: tenant, Target: registry.Target{UserID: user}}
	var found []registry.Candidate
	err := h.fold(ctx, q, func(e registry.Entry) {
		if len(found) < maxHelpers {
			found = append(found, registry.Candidate{
				SessionID: e.Session.Key.Session, DeviceID: e.Session.DeviceID, UserID: e.Session.UserID, Name: e.Session.Name,
			})
		}
	})
	return found, err
}
