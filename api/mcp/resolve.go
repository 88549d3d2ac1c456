package mcp

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/farhand/farhand/registry"
)

// resolve finds the tool that a name means, and where:
//
//   - in the scope of a session, every name is one of that session;
//   - else a qualified name is that of the session it ends in, and never another's;
//   - any other name is one of the gateway's own tools, or, as POST /api/tools/{name}/call takes it, of the only
//     session of the scope that offers it. The router refuses to choose among several.
func (s *Server) resolve(ctx context.Context, r *request, name string) (tool string, at registry.Target, err error) {
	at = r.Scope.target("")
	if r.Scope.Session != "" {
		return s.ownName(ctx, r, name, at)
	}
	plain, part, qualified := unqualify(name)
	if !qualified {
		return s.ownName(ctx, r, name, at)
	}
	if r.Scope.hasLocalTools() && s.isLocal(name) {
		if !s.isSession(ctx, r, plain, part) {
			return s.ownName(ctx, r, name, at)
		}
		return "", at, registry.Errorf(registry.CodeAmbiguousTarget, "A tool of the gateway and one of a device are "+
			"both called %s. Call the device's at /mcp/sessions/ and its id.", name)
	}
	if strings.HasPrefix(part, hashedSession) {
		at.SessionID, err = s.sessionOfHash(ctx, r, part)
	} else if id, ok := unescapeSession(part); ok {
		at.SessionID = id
	} else {
		return s.ownName(ctx, r, name, at) // never listed as a qualified one
	}
	if err != nil {
		return "", at, err
	}
	return s.ownName(ctx, r, plain, at)
}

// isLocal reports whether one of the gateway's own tools has this name.
func (s *Server) isLocal(name string) bool {
	_, found := slices.BinarySearchFunc(s.cfg.Gateway.LocalTools(), name,
		func(t registry.ToolSpec, name string) int { return strings.Compare(t.Name, name) })
	return found
}

// isSession reports whether a session is there that the caller may see and whose part of a name is part.
func (s *Server) isSession(ctx context.Context, r *request, tool, part string) bool {
	id, ok := unescapeSession(part)
	if !ok {
		return false
	}
	e, err := s.cfg.Directory.Entry(ctx, registry.Key{Tenant: r.Caller.Tenant, Session: id})
	return err != nil && !isAbsent(err) || err == nil && r.Caller.Sees(e.Session.UserID) &&
		slices.ContainsFunc(e.Tools, func(t registry.ToolSpec) bool { return shownName(t.Name) == tool })
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
	e, err := s.cfg.Directory.Entry(ctx, registry.Key{Tenant: r.Caller.Tenant, Session: at.SessionID})
	if err != nil || !r.Caller.Sees(e.Session.UserID) {
		return name, at, nil // the router says what is wrong
	}
	for _, t := range e.Tools {
		if t.Name == name {
			return name, at, nil
		}
		if shownName(t.Name) == name {
			tool = t.Name
		}
	}
	if tool == "" {
		tool = name
	}
	return tool, at, nil
}

// sessionOfHash finds the session whose id is too long to stand in a name.
func (s *Server) sessionOfHash(ctx context.Context, r *request, part string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
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
			return "", registry.UnknownSession()
		}
		q.After = *next
	}
	return "", registry.Errorf(registry.CodeSessionNotFound,
		"The session of this name was not found among the first. Call the tool at /mcp/sessions/ and the session's id.")
}

// maxHashReads is how many pages are read for a session whose id is too long.
const maxHashReads = 20

// isAbsent reports whether an error says that a session is not there, and nothing worse.
func isAbsent(err error) bool {
	return errors.Is(err, registry.CodeSessionNotFound) || errors.Is(err, registry.CodeNotConnected)
}
