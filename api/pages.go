package api

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/registry"
)

// maxCursor is the maximum length of a cursor, in characters. A cursor of usage holds the names of a user and a tool,
// in which a character may take six.
const maxCursor = 4096

// cursorKind prevents the use of a cursor with another list.
type cursorKind string

const (
	cursorSessions cursorKind = "s" // Generation and Session
	cursorRunning  cursorKind = "r" // Generation, which is the store's, and Session
	cursorTools    cursorKind = "t" // Generation, Session and, inside a session, Name
	cursorGroups   cursorKind = "g" // Name: a cursor of the directory
	cursorNames    cursorKind = "n" // Name and Hash
	cursorCalls    cursorKind = "c" // Name: the id of an entry of the feed
	cursorDevices  cursorKind = "d" // Name: the id of a credential
	cursorKeys     cursorKind = "k" // Name: the id of a key
	cursorAudit    cursorKind = "a" // Name: the id of a line of the audit log
	cursorUsage    cursorKind = "u" // Name: the key of a row of usage
	cursorTenants  cursorKind = "m" // Name: a cursor of the list of tenants
)

// cursor is the position of the last row of a page. To clients it is an opaque string.
type cursor struct {
	Kind       cursorKind `json:"k"`
	Generation int64      `json:"g,omitempty"`
	Session    string     `json:"s,omitempty"`
	Name       string     `json:"n,omitempty"`
	Hash       string     `json:"h,omitempty"`
	Builtin    bool       `json:"b,omitempty"` // Name is a built-in tool, which lists of tools begin with
	Asleep     bool       `json:"a,omitempty"` // the list goes on with sleeping devices
	Skip       int        `json:"z,omitempty"` // of the sleeping devices
	Offline    bool       `json:"o,omitempty"` // sessions: Generation is the last change; both can be 0
}

func (c cursor) String() string {
	text, _ := json.Marshal(c) // cannot fail: strings and numbers only
	return base64.RawURLEncoding.EncodeToString(text)
}

// nextCursor returns the cursor of a list whose position is a name. It is empty on the last page.
func nextCursor(kind cursorKind, name string) string {
	if name == "" {
		return ""
	}
	return cursor{Kind: kind, Name: name}.String()
}

// cursor returns where a page starts. If the client did not send a cursor, it is the zero cursor of that kind.
func (p *params) cursor(kind cursorKind) cursor {
	if !p.has("cursor") {
		return cursor{Kind: kind}
	}
	c, ok := parseCursor(p.get("cursor"), kind)
	if !ok {
		p.fail("The cursor does not belong to this list. Use next_cursor of the previous page unchanged, with the " +
			"same parameters.")
	}
	return c
}

// parseCursor accepts exactly what String returns.
func parseCursor(word string, kind cursorKind) (cursor, bool) {
	var c cursor
	if len(word) > maxCursor {
		return c, false
	}
	text, err := base64.RawURLEncoding.Strict().DecodeString(word)
	if err != nil || json.Unmarshal(text, &c) != nil || c.Kind != kind || c.String() != word {
		return c, false
	}
	if c.Asleep || c.Skip != 0 {
		return c, c == cursor{Kind: c.Kind, Asleep: true, Skip: c.Skip} && c.Skip >= 0 &&
			(kind == cursorTools || kind == cursorSessions)
	}
	if c.Builtin {
		return c, c == cursor{Kind: c.Kind, Name: c.Name, Builtin: true} && registry.ValidToolName(c.Name) &&
			(kind == cursorTools || kind == cursorGroups || kind == cursorNames)
	}
	if c.Offline && (kind != cursorSessions || c.Name != "") {
		return c, false
	}
	switch kind {
	case cursorSessions, cursorRunning, cursorTools:
		if c.Offline && c.Session == "" {
			return c, c.Generation == 0
		}
		key := registry.Key{Tenant: registry.DefaultTenant, Session: c.Session}
		return c, c.Generation > 0 && key.Validate() == nil
	case cursorAudit:
		_, err := registry.ParseAuditID(c.Name)
		return c, err == nil
	case cursorCalls:
		id, err := registry.ParseFeedID(c.Name)
		return c, err == nil && id != registry.FeedID{} // no line has the zero id
	default:
		return c, c.Name != ""
	}
}

// builtinsAfter reports whether built-in tools may follow, and the name after which they begin.
func (c cursor) builtinsAfter() (name string, any bool) {
	return c.Name, c.Builtin || c == cursor{Kind: c.Kind}
}

// afterBuiltins returns where the tools of sessions continue.
func (c cursor) afterBuiltins() cursor {
	if c.Builtin {
		return cursor{Kind: c.Kind}
	}
	return c
}

// sessionsAfter returns the directory's cursor from which a list of sessions continues.
func (c cursor) sessionsAfter() registry.Cursor {
	if c.Kind == cursorTools && c.Name != "" { // a session that was not finished is read again
		return c.session().Before()
	}
	return c.session()
}

// session returns the position of the cursor's session in the directory.
func (c cursor) session() registry.Cursor {
	return registry.Cursor{Generation: c.Generation, Session: c.Session}
}

// covers reports whether a tool of a session comes at or before the cursor in the order of the flat tool list.
func (c cursor) covers(s *registry.Session, tool string) bool {
	return c.session().CoversTool(c.Name, s, tool)
}

// firstID is an id of a session that sorts before all others, and lastID one that sorts after them.
const firstID = "0"

func lastID() string { return "z" + strings.Repeat("~", 127) }

// hiding returns where a list goes on that has been read from one place to another, at. A cursor is not secret, so it
// must not name a session that its reader may not see: the list goes on a few hidden sessions before at. shown is the
// session of the last row since from, if there is one. newest says that the list has the newest first.
func hiding(at, from registry.Cursor, shown string, newest bool) registry.Cursor {
	before := func(a, b string) bool { return a != "" && (a < b) != newest }
	hidden := at
	switch {
	case at == registry.Cursor{}, at.Session == shown:
		return at
	case before(shown, at.Session): // sessions between them are hidden, even if they have the same generation
		hidden.Session = shown
	case from.Generation == at.Generation:
		hidden.Session = from.Session
	case newest:
		hidden.Session = lastID()
	default:
		hidden.Session = firstID
	}
	if hidden == from { // very many hidden sessions have one generation: the list must go on
		return at
	}
	return hidden
}

// respondVersioned answers with the result of build, or 304 if the client already has it. The tag covers all inputs of
// the answer, so a poll without changes reads only the version. The version is read before the list, so a tag can only
// be older than its answer, and an old tag matches nothing.
func (h *handler) respondVersioned(
	c *gin.Context, q *params,
	version func(ctx context.Context, tenant string) (string, error), build func(context.Context) (any, error),
) error {
	ctx := storeContext(c)
	who := caller(c)
	now, err := version(ctx, who.Tenant)
	if err != nil {
		return err
	}
	compress := acceptsGzip(c.Request.Header.Values("Accept-Encoding"))
	tag := h.listTag(now, who, c.Request.URL.Path, q, compress)
	if matchesTag(c.Request.Header.Values("If-None-Match"), tag) {
		return h.notModified(c, tag)
	}
	if err := h.reserveAnswer(ctx, c, pageCost); err != nil {
		return err
	}
	v, err := build(ctx)
	if err != nil {
		return err
	}
	body, err := encode(v)
	if err != nil {
		return err
	}
	return h.writeTagged(c, body, tag, compress && len(body) >= gzipMinimum)
}

// listTag is a strong validator. If version, program, policy, built-in tools, caller, request and encoding are equal,
// the bytes are equal. Pulses of sessions are an exception: they change all the time, and do not justify reading a list
// again.
func (h *handler) listTag(version string, who auth.Identity, path string, q *params, compress bool) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %q %q %q %t %d %q %q %q %q %q",
		version, h.Version, h.Policy.Digest(), h.own().digest, who.Tenant, who.User, who.Admin, who.Roles,
		who.Device, who.Tools, who.Context, path, q.encoded()))
	return quoteTag(sum, compress)
}

func quoteTag(sum [sha256.Size]byte, compress bool) string {
	tag := hex.EncodeToString(sum[:16])
	if compress {
		tag += "-gzip"
	}
	return `"` + tag + `"`
}

func (h *handler) notModified(c *gin.Context, tag string) error {
	setCacheHeaders(c.Writer.Header(), tag)
	c.Status(http.StatusNotModified)
	return nil
}

func setCacheHeaders(header http.Header, tag string) {
	header.Set("Cache-Control", "no-cache")
	header.Add("Vary", "Accept-Encoding")
	header.Set("ETag", tag)
}

const (
	// maxPages is the maximum number of pages of the directory that are read for one page of a list.
	maxPages = 20

	// maxSessionPage is the maximum size of a page of the directory, because sessions come with all their tools.
	maxSessionPage = 100

	// maxFold is about the maximum number of sessions that are read for an answer that needs all of them.
	maxFold = 5000
)

// walk visits up to q.Limit sessions, or until visit returns false. It returns the cursor of the next page, or nil if
// there is none. The directory may return fewer sessions than requested although there are more, so walk reads up to
// maxPages.
func (h *handler) walk(
	ctx context.Context, q registry.Query, visit func(registry.Entry) bool,
) (*registry.Cursor, error) {
	remaining, from, shown := q.Limit, q.After, ""
	for range maxPages {
		q.Limit = min(remaining, maxSessionPage)
		page, next, err := h.Directory.List(ctx, q)
		if err != nil {
			return nil, err
		}
		for i, e := range page {
			shown = e.Session.Key.Session
			if !visit(e) && (i+1 < len(page) || next != nil) {
				at := registry.CursorOf(&e.Session)
				return &at, nil
			}
		}
		remaining -= len(page)
		if next == nil {
			return nil, nil
		}
		q.After = *next
		if remaining <= 0 {
			break
		}
	}
	return new(hiding(q.After, from, shown, false)), nil
}

// fold visits every session that matches q. It fails if there are too many for one answer.
func (h *handler) fold(ctx context.Context, q registry.Query, visit func(registry.Entry)) error {
	q.Limit = maxSessionPage
	for range 2 * maxFold / maxSessionPage { // pages may be short
		page, next, err := h.Directory.List(ctx, q)
		if err != nil {
			return err
		}
		for _, e := range page {
			visit(e)
		}
		if next == nil {
			return nil
		}
		q.After = *next
	}
	return registry.Errorf(registry.CodeInvalidRequest,
		"The filters match too many sessions for one response (at most about %d). Narrow them.", maxFold)
}
