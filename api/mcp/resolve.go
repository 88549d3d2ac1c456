package mcp

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/farhand/farhand/registry"
)

// resolve finds the tool that a name means, and where:
//
//   - in the scope of a session, every name is one of that session;
//   - else a qualified name is that of the session it ends in, and never another session's. One that could also be
//     that of an MCP server's tool, which may have come since a list was read, is refused if the session offers it;
//   - any other name is one of the gateway's own tools, or, as POST /api/tools/{name}/call takes it, of the only
//     session of the scope that is there and offers it. The router refuses to choose among several, but does not know
//     which one a list has shown: if that one is away and another offers the tool, it is the other. A caller who sees
//     the devices of all users reaches none of a user so.
func (s *Server) resolve(ctx context.Context, r *request, name string) (tool string, at registry.Target, err error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	at = r.Scope.target("")
	if r.Scope.Session != "" {
		return s.ownName(ctx, r, name, at)
	}
	plain, part, qualified := unqualify(name)
	if !qualified {
		return s.ownName(ctx, r, name, r.withoutSession(at))
	}
	if r.Scope.hasLocalTools() && s.isLocal(name) {
		if err := s.checkMeaning(ctx, r, name, plain, part); err != nil {
			return "", at, err
		}
		return s.ownName(ctx, r, name, at) // no device's tool is listed so
	}
	if strings.HasPrefix(part, hashedSession) {
		at.SessionID, err = s.sessionOfHash(ctx, r, plain, part)
	} else if id, ok := unescapeSession(part); ok {
		at.SessionID = id
	} else {
		return s.ownName(ctx, r, name, r.withoutSession(at)) // never listed as a qualified one
	}
	if err != nil {
		return "", at, err
	}
	return s.ownName(ctx, r, plain, at)
}

// withoutSession returns the target of a name without a session: for a caller who sees the devices of all users, only
// those of no user. A name without a session is shown for no other (nameAll).
func (r *request) withoutSession(at registry.Target) registry.Target {
	if at.SessionID == "" && r.seesUsers() {
		at.Viewer = registry.NoUser
	}
	return at
}

// seesUsers reports whether the scope may have devices of several users.
func (r *request) seesUsers() bool { return r.Scope.User == "" && r.Caller.Viewer() == "" }

// checkMeaning refuses a name that an MCP server of the gateway owns and that is also the qualified name of a session's
// tool. Devices cannot register such tools, except on a pod whose file of servers is another one. What the caller has
// read there must not go to the server.
func (s *Server) checkMeaning(ctx context.Context, r *request, name, tool, part string) error {
	id, ok := unescapeSession(part)
	if !ok || !s.cfg.Gateway.Owns(name) {
		return nil
	}
	found, of, err := s.toolAt(ctx, r, id, tool)
	if err != nil || found == "" {
		return err
	}
	return &registry.Error{
		Code: registry.CodeAmbiguousTarget,
		Message: "The name is that of an MCP server's tool and of a device's. Call the device's at /mcp/sessions/ " +
			"and the session's id, or rename one of the two.",
		Candidates: []registry.Candidate{{
			SessionID: id, DeviceID: of.DeviceID, UserID: of.UserID, Name: of.Name,
		}},
	}
}

// toolAt finds the tool that a name means in the scope of a session that the caller sees, also while its device moves.
// Empty: there is none. The error is that of the store.
func (s *Server) toolAt(
	ctx context.Context, r *request, session, name string,
) (tool string, of registry.Session, err error) {
	e, err := s.cfg.Directory.Entry(ctx, registry.Key{Tenant: r.Caller.Tenant, Session: session})
	switch {
	case err == nil && r.Caller.Sees(e.Session.UserID):
		if tool = namedIn(e.Tools, name); tool != "" {
			return tool, e.Session, nil
		}
	case errors.Is(err, registry.CodeSessionNotFound):
		return "", of, nil
	case err != nil && !errors.Is(err, registry.CodeNotConnected):
		return "", of, err
	}
	q := registry.Query{Tenant: r.Caller.Tenant, Target: registry.Target{SessionID: session}, Limit: 1}
	q.Viewer = r.Caller.Viewer()
	due, err := s.cfg.Directory.Awaited(ctx, q)
	if err != nil || len(due) == 0 {
		return "", of, err
	}
	return namedIn(due[0].Tools, name), due[0].Session, nil
}

// isLocal reports whether one of the gateway's own tools has this name, or may have it.
func (s *Server) isLocal(name string) bool {
	_, found := slices.BinarySearchFunc(s.cfg.Gateway.LocalTools(), name,
		func(t registry.ToolSpec, name string) int { return strings.Compare(t.Name, name) })
	return found || s.cfg.Gateway.Owns(name)
}

// ownName finds the tool that a name means in its session's own scope: the name itself, if MCP allows it.
func (s *Server) ownName(
	ctx context.Context, r *request, name string, at registry.Target,
) (tool string, _ registry.Target, err error) {
	if !registry.ValidToolName(name) {
		return "", at, registry.Errorf(registry.CodeToolNotFound, "No tool can have the name %.80q.", name)
	}
	if at.SessionID == "" || !isHashed(name) {
		return name, at, nil
	}
	tool, _, _ = s.toolAt(ctx, r, at.SessionID, name)
	return cmp.Or(tool, name), at, nil // the router says what is wrong
}

// namedIn returns the tool that a name means among those of a session, empty if there is none.
func namedIn(tools []registry.ToolSpec, name string) (tool string) {
	for _, t := range tools {
		if t.Name == name {
			return name
		}
		if shownName(t.Name) == name {
			tool = t.Name
		}
	}
	return tool
}

// sessionOfHash finds the session whose id is too long to stand in a name, also while its device moves.
func (s *Server) sessionOfHash(ctx context.Context, r *request, tool, part string) (string, error) {
	q := registry.Query{
		Tenant: r.Caller.Tenant, Target: r.Scope.target(r.Caller.Viewer()), Limit: pageSessions,
	}
	for range maxHashReads {
		entries, next, err := s.cfg.Directory.List(ctx, q)
		if err != nil {
			return "", err
		}
		for _, e := range entries {
			if hashSession(e.Session.Key.Session) == part {
				return e.Session.Key.Session, nil
			}
		}
		if next == nil {
			return s.awaitedOfHash(ctx, q, tool, part)
		}
		q.After = *next
	}
	return "", registry.Errorf(registry.CodeSessionNotFound,
		"The session of this name was not found among the first. Call the tool at /mcp/sessions/ and the session's id.")
}

// awaitedOfHash finds a session among those that are expected to offer the tool in a moment.
func (s *Server) awaitedOfHash(ctx context.Context, q registry.Query, tool, part string) (string, error) {
	q.Tool, q.After = tool, registry.Cursor{}
	due, err := s.cfg.Directory.Awaited(ctx, q)
	if err != nil {
		return "", err
	}
	for i := range due {
		if id := due[i].Session.Key.Session; hashSession(id) == part {
			return id, nil
		}
	}
	return "", registry.UnknownSession()
}

// maxHashReads is how many pages are read for a session whose id is too long.
const maxHashReads = 20
