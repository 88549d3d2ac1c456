package mcp

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/farhand/farhand/registry"
)

const (
	// separator is between a tool's name and its session. The session's part never contains it, so a name can be split
	// in one way only.
	separator = "__"

	// maxName is the maximum length of a name in MCP.
	maxName = 128

	// hashedSession begins a session's part if the session's id makes the name too long. It is not a valid escape.
	hashedSession = ".h"
)

// qualify returns the name of a session's tool in a scope of several sessions. tool is its name in the scope of its
// session.
func qualify(tool, session string) string {
	part := escapeSession(session)
	if len(tool)+len(separator)+len(part) > maxName {
		part = hashSession(session)
	}
	return tool + separator + part
}

// unqualify splits a name made by qualify. The session is what escapeSession or hashSession returned.
func unqualify(name string) (tool, session string, ok bool) {
	at := strings.LastIndex(name, separator)
	if at <= 0 || at+len(separator) == len(name) {
		return "", "", false
	}
	return name[:at], name[at+len(separator):], true
}

// escapeSession encodes a session's id in the characters that names may have. Different ids have different results: a
// dot and two hexadecimal digits replace every character but letters, digits, hyphens and single underscores.
func escapeSession(id string) string {
	var b []byte
	for i := range len(id) {
		c := id[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' ||
			c == '_' && i > 0 && id[i-1] != '_' {
			b = append(b, c)
		} else {
			b = fmt.Appendf(b, ".%02x", c)
		}
	}
	return string(b)
}

// unescapeSession decodes a result of escapeSession. Any other text is not ok.
func unescapeSession(part string) (id string, ok bool) {
	id, err := url.PathUnescape(strings.ReplaceAll(part, ".", "%"))
	return id, err == nil && escapeSession(id) == part &&
		registry.Key{Tenant: registry.DefaultTenant, Session: id}.Validate() == nil
}

// hashSession returns a hash in place of an id that is too long. Another id with the same hash cannot be found.
func hashSession(id string) string {
	sum := sha256.Sum256([]byte(id))
	return hashedSession + hex.EncodeToString(sum[:16])
}

// displayName returns a tool's name in the scope of its session: the name itself, if MCP allows it. Otherwise it keeps
// the ASCII characters and adds a part of the name's hash.
func displayName(name string) string {
	ascii := strings.Map(func(r rune) rune {
		if r >= utf8.RuneSelf {
			return -1
		}
		return r
	}, name)
	if ascii == name {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return cmp.Or(strings.Trim(ascii, "_.-"), "tool") + "_" + hex.EncodeToString(sum[:8])
}

// isHashed reports whether a name looks like a changed one of displayName.
func isHashed(name string) bool {
	const digits = 16
	at := len(name) - digits - 1
	if at < 1 || name[at] != '_' {
		return false
	}
	_, err := hex.DecodeString(name[at+1:])
	return err == nil
}

// resolve finds the tool and the target of a name:
//
//   - in the scope of a session, every name is a tool of that session;
//   - otherwise a qualified name is a tool of the session in its last part, never of another session. If an MCP server
//     has added a tool of this name, the name is rejected as ambiguous;
//   - any other name is one of the gateway's own tools, or a tool of the only connected session of the scope that
//     offers it, as for POST /api/tools/{name}/call. If the session that a list has shown is away and another offers
//     the tool, the call goes to the other.
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
		return s.ownName(ctx, r, name, at) // lists never show a device's tool under this name
	}
	if strings.HasPrefix(part, hashedSession) {
		at.SessionID, err = s.sessionOfHash(ctx, r, plain, part)
	} else if id, ok := unescapeSession(part); ok {
		at.SessionID = id
	} else {
		return s.ownName(ctx, r, name, r.withoutSession(at)) // lists never show it as a qualified name
	}
	if err != nil {
		return "", at, err
	}
	return s.ownName(ctx, r, plain, at)
}

// withoutSession returns the target of a name without a session. If the caller sees the devices of all users, it
// selects only devices without a user: lists show such names for no others (nameAll).
func (r *request) withoutSession(at registry.Target) registry.Target {
	if at.SessionID == "" && r.seesUsers() {
		at.Viewer = registry.NoUser
	}
	return at
}

func (r *request) seesUsers() bool { return r.Scope.User == "" && r.Caller.Viewer() == "" }

// checkMeaning rejects a name that belongs to an MCP server of the gateway and is also the qualified name of a
// session's tool: arguments meant for the device must not go to the server.
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
		Message: "An MCP server and a device both offer a tool of this name. Call the device's at " +
			"/mcp/sessions/{session_id}, or rename one of them.",
		Candidates: []registry.Candidate{{
			SessionID: id, DeviceID: of.DeviceID, UserID: of.UserID, Name: of.Name,
		}},
	}
}

// toolAt finds the tool of a name in the scope of a session that the caller sees, also while its device reconnects. It
// returns an empty name if there is none. Its errors are the store's.
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
	at := registry.Target{SessionID: session, Viewer: r.Caller.Viewer()}
	due, err := s.cfg.Directory.Awaited(ctx, registry.Query{Tenant: r.Caller.Tenant, Target: at, Limit: 1})
	if err != nil || len(due) == 0 {
		return "", of, err
	}
	return namedIn(due[0].Tools, name), due[0].Session, nil
}

// isLocal reports whether the name belongs, or can belong, to one of the gateway's own tools.
func (s *Server) isLocal(name string) bool {
	_, found := slices.BinarySearchFunc(s.cfg.Gateway.LocalTools(), name,
		func(t registry.ToolSpec, name string) int { return strings.Compare(t.Name, name) })
	return found || s.cfg.Gateway.Owns(name)
}

// ownName finds the tool of a name in the scope of its session: the name itself, if MCP allows it.
func (s *Server) ownName(
	ctx context.Context, r *request, name string, at registry.Target,
) (tool string, _ registry.Target, err error) {
	if !registry.ValidToolName(name) {
		return "", at, registry.Errorf(registry.CodeToolNotFound, "%.80q is not a valid tool name.", name)
	}
	if at.SessionID == "" || !isHashed(name) {
		return name, at, nil
	}
	tool, _, _ = s.toolAt(ctx, r, at.SessionID, name)
	return cmp.Or(tool, name), at, nil // the router returns the error
}

// namedIn returns the tool of a session that has a name, or "".
func namedIn(tools []registry.ToolSpec, name string) (tool string) {
	for _, t := range tools {
		if t.Name == name {
			return name
		}
		if displayName(t.Name) == name {
			tool = t.Name
		}
	}
	return tool
}

// sessionOfHash finds a session whose id is too long for a name, also while its device reconnects.
func (s *Server) sessionOfHash(ctx context.Context, r *request, tool, part string) (string, error) {
	var after registry.Cursor
	for range maxHashReads {
		entries, next, err := s.sessions(ctx, r, after)
		if err != nil {
			return "", err
		}
		for _, e := range entries {
			if hashSession(e.Session.Key.Session) == part {
				return e.Session.Key.Session, nil
			}
		}
		if next == nil {
			return s.awaitedOfHash(ctx, r, tool, part)
		}
		after = *next
	}
	return "", registry.Errorf(registry.CodeSessionNotFound,
		"Too many sessions to find this one by its tool's name. Call the tool at /mcp/sessions/{session_id}.")
}

// awaitedOfHash finds a session among those that are expected to reconnect and offer the tool.
func (s *Server) awaitedOfHash(ctx context.Context, r *request, tool, part string) (string, error) {
	q := registry.Query{
		Tenant: r.Caller.Tenant, Target: r.Scope.target(r.Caller.Viewer()), Tool: tool, Limit: pageSessions,
	}
	due, err := s.cfg.Directory.Awaited(ctx, q)
	if err != nil {
		return "", err
	}
	for _, d := range due {
		if id := d.Session.Key.Session; hashSession(id) == part {
			return id, nil
		}
	}
	return "", registry.UnknownSession()
}

const maxHashReads = 20
