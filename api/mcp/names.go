package mcp

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/farhand/farhand/registry"
)

const (
	// separator stands between a tool's name and the session it runs on. No session's part has it, so a name is taken
	// apart in one way only.
	separator = "__"

	// maxName is how long a name may be in MCP.
	maxName = 128

	// hashedSession begins the part of a session whose id makes a name too long. What follows is no escape.
	hashedSession = ".h"
)

// qualify returns the name of a session's tool in a scope of several sessions. tool is its name in the session's own
// scope.
func qualify(tool, session string) string {
	part := escapeSession(session)
	if len(tool)+len(separator)+len(part) > maxName {
		part = hashSession(session)
	}
	return tool + separator + part
}

// unqualify takes apart what qualify has made. The session is what escapeSession or hashSession returned.
func unqualify(name string) (tool, session string, ok bool) {
	at := strings.LastIndex(name, separator)
	if at <= 0 || at+len(separator) == len(name) {
		return "", "", false
	}
	return name[:at], name[at+len(separator):], true
}

// escapeSession returns a session's id in the characters that names may have. Of two ids no two come out equal: a dot
// and two hexadecimal digits stand for every character that is no letter, digit, hyphen or single underscore.
func escapeSession(id string) string {
	plain := func(i int) bool {
		c := id[i]
		return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' ||
			c == '_' && i > 0 && id[i-1] != '_'
	}
	var b strings.Builder
	for i := range len(id) {
		if plain(i) {
			b.WriteByte(id[i])
			continue
		}
		b.WriteByte('.')
		b.WriteString(hex.EncodeToString([]byte{id[i]}))
	}
	return b.String()
}

// unescapeSession returns the id that escapeSession was given.
func unescapeSession(part string) (id string, ok bool) {
	var b strings.Builder
	for i := 0; i < len(part); i++ {
		if part[i] != '.' {
			b.WriteByte(part[i])
			continue
		}
		if i+3 > len(part) {
			return "", false
		}
		c, err := strconv.ParseUint(part[i+1:i+3], 16, 8)
		if err != nil {
			return "", false
		}
		b.WriteByte(byte(c))
		i += 2
	}
	id = b.String()
	return id, escapeSession(id) == part && registry.Key{Tenant: registry.DefaultTenant, Session: id}.Validate() == nil
}

// hashSession returns what stands for an id that is too long. Nobody can find another id for it.
func hashSession(id string) string {
	sum := sha256.Sum256([]byte(id))
	return hashedSession + hex.EncodeToString(sum[:16])
}

// shownName returns what a tool is called in its session's own scope: its name, if MCP allows that. Else the allowed
// characters are left, and a part of the name's hash stands for the others.
func shownName(name string) string {
	if allowedName(name) {
		return name
	}
	return asciiName(name)
}

// allowedName reports whether MCP allows a name that the gateway allows: only letters beyond ASCII keep it from that.
func allowedName(name string) bool {
	for i := range len(name) {
		if name[i] >= 0x80 {
			return false
		}
	}
	return true
}

// foreignName begins the name of a tool that has nothing of ASCII.
const foreignName = "tool"

func asciiName(name string) string {
	var b strings.Builder
	for i := range len(name) {
		if name[i] < 0x80 {
			b.WriteByte(name[i])
		}
	}
	plain := strings.Trim(b.String(), "_.-")
	if plain == "" {
		plain = foreignName
	}
	sum := sha256.Sum256([]byte(name))
	return plain + "_" + hex.EncodeToString(sum[:8])
}

// isHashed reports whether a name looks like one that asciiName has made.
func isHashed(name string) bool {
	const digits = 16
	at := len(name) - digits - 1
	if at < 1 || name[at] != '_' {
		return false
	}
	_, err := hex.DecodeString(name[at+1:])
	return err == nil
}

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
