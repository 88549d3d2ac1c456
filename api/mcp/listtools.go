package mcp

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/farhand/farhand/agent/access/policy"
	"github.com/farhand/farhand/agent/mcpcontent"
	"github.com/farhand/farhand/internal/strictjson"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/textsafe"
)

const (
	// pageTools and pageBytes bound a page of a list. The last tool may exceed them.
	pageTools = 1000
	pageBytes = 1 << 20

	// pageSessions is how many sessions are read at a time, and pageReads the maximum number of such reads for one
	// page.
	pageSessions = 100
	pageReads    = 20
)

type toolRow struct {
	name string // in its session's own scope, later in that of the list
	spec registry.ToolSpec
	says *policy.Decision
	at   *registry.Session // to show; nil: a tool of the gateway, or of the only session of the scope

	lastSeen time.Time // of a sleeping device; zero: the device is connected
}

type toolPage struct {
	*Server
	*request
	rows  []toolRow
	bytes int
	last  cursor         // position of the last tool looked at
	named map[string]int // number of tools per name, including unlisted ones

	query string // lower case; empty: all
	limit int    // of rows
}

func (p *toolPage) full() bool { return len(p.rows) >= p.limit || p.bytes >= pageBytes }

func (p *toolPage) add(t registry.ToolSpec, from policy.Source, at *registry.Session) {
	p.named[displayName(t.Name)]++
	p.addRow(t, from, at, time.Time{})
}

func (p *toolPage) addRow(t registry.ToolSpec, from policy.Source, at *registry.Session, lastSeen time.Time) {
	if !p.matches(t) {
		return
	}
	if d := p.cfg.Gateway.Decide(p.asker(), t, from); d.Allowed {
		p.rows = append(p.rows, toolRow{displayName(t.Name), t, d, at, lastSeen})
		p.bytes += t.Size() + rowOverhead
	}
}

// rowOverhead is about how many bytes a tool has in a list besides its definition.
const rowOverhead = 300

// listTools lists the tools that the caller may call now. Pages follow the order in which sessions connected, and each
// page is sorted by name. So a list on one page, which is the usual case, does not change when devices reconnect.
func (s *Server) listTools(ctx context.Context, r *request) (result, error) {
	after, err := r.readCursor()
	if err != nil {
		return result{}, err
	}
	if r.Scope.Search {
		return r.constant(searchList)
	}
	p := &toolPage{Server: s, request: r, last: after, named: make(map[string]int), limit: pageTools}
	next, err := p.fill(ctx, after)
	if err != nil {
		return result{}, err
	}
	p.nameAll(after == cursor{} && (next == cursor{} || next.Asleep)) // sleeping devices do not change others' names
	slices.SortFunc(p.rows, func(a, b toolRow) int { return strings.Compare(a.name, b.name) })
	return result{members: p.encode(next, appendListed), private: true}, nil
}

// encode returns the members of a page. head appends the members that identify and describe a tool.
func (p *toolPage) encode(next cursor, head func([]byte, *toolRow) []byte) []byte {
	b := append(make([]byte, 0, p.bytes+256), `"tools":[`...)
	for i := range p.rows {
		if i > 0 {
			b = append(b, ',')
		}
		row := &p.rows[i]
		b = head(append(b, '{'), row)
		b = appendObjectSchema(append(b, `,"inputSchema":`...), row.spec.Parameters)
		if output := mcpcontent.OutputSchema(row.spec); output != nil {
			b = append(append(b, `,"outputSchema":`...), output...)
		}
		hints, _ := json.Marshal(hintsOf(row.spec.Annotations, row.says.Effects)) // cannot fail: booleans
		b = append(append(b, `,"annotations":`...), hints...)
		if meta := metaOf(row); meta != nil {
			b = append(append(b, `,"_meta":`...), meta...)
		}
		b = append(b, '}')
	}
	b = append(b, ']')
	if next != (cursor{}) {
		b = strictjson.AppendString(append(b, `,"nextCursor":`...), next.String())
	}
	return b
}

// Names in _meta of the tools of sleeping devices.
const (
	metaPresence = "farhand/presence"  // sleeping
	metaLastSeen = "farhand/last_seen" // RFC 3339
	timeFormat   = "2006-01-02T15:04:05.000Z07:00"
)

// metaOf returns _meta of a tool; nil: it has none.
func metaOf(row *toolRow) []byte {
	meta := mcpcontent.Meta(row.spec)
	if row.lastSeen.IsZero() {
		return meta
	}
	b := []byte(`{"` + metaPresence + `":"sleeping","` + metaLastSeen + `":"` +
		row.lastSeen.UTC().Format(timeFormat) + `"`)
	if len(meta) > len("{}") {
		return append(append(b, ','), meta[1:]...)
	}
	return append(b, '}')
}

// nameAll gives every tool its name in the scope (decision 44). A tool keeps its own name if only one session offers
// it, which is known only if the page is the whole list. It gets a qualified name if several tools share its name, if
// its own name could be the qualified name of another tool, or if MCP does not allow its own name. If the caller sees
// devices of several users, tools of users' devices are always qualified.
func (p *toolPage) nameAll(whole bool) {
	ofUsers := p.seesUsers()
	for i := range p.rows {
		row := &p.rows[i]
		switch _, _, like := unqualify(row.name); {
		case row.at == nil:
		case p.Scope.Session != "":
			row.at = nil // no other session to distinguish it from
		case !row.lastSeen.IsZero(): // always, so that the names of connected devices' tools do not depend on it
			row.name = p.qualified(row.name, row.at.Key.Session)
		case !whole || like || p.named[row.name] > 1 || row.name != row.spec.Name || ofUsers && row.at.UserID != "":
			row.name = p.qualified(row.name, row.at.Key.Session)
		}
	}
}

// qualified returns the name of a tool with its session. If one of the gateway's own tools has that name, the session's
// tool gets a hash instead.
func (p *toolPage) qualified(tool, session string) string {
	name := qualify(tool, session)
	if p.Scope.hasLocalTools() && p.isLocal(name) {
		return tool + separator + hashSession(session)
	}
	return name
}

// fill reads a page. It returns where the next page begins, or zero if there is none.
func (p *toolPage) fill(ctx context.Context, after cursor) (next cursor, err error) {
	if after.Asleep {
		return p.fillSleeping(ctx, after.Skip)
	}
	if after.Session == "" && p.Scope.hasLocalTools() {
		for _, t := range p.cfg.Gateway.LocalTools() {
			if t.Name <= after.Name {
				continue
			}
			if p.full() {
				return p.last, nil
			}
			p.add(t, policy.Builtin, nil)
			p.last = cursor{Name: t.Name}
		}
		after = cursor{}
	}
	at := after.afterSession()
	for range pageReads {
		entries, more, err := p.sessions(ctx, p.request, at)
		if err != nil {
			return cursor{}, err
		}
		for i := range entries {
			if p.addSession(&entries[i], after) {
				return p.last, nil
			}
		}
		switch {
		case more != nil:
			at = *more
		case p.full() && p.Queue > 0:
			return cursor{Asleep: true}, nil
		default:
			return p.fillSleeping(ctx, 0)
		}
	}
	return cursor{Generation: at.Generation, Session: at.Session}, nil
}

// fillSleeping adds the tools of sleeping devices, if calls may wait for them. The last device may exceed the page.
func (p *toolPage) fillSleeping(ctx context.Context, skip int) (next cursor, err error) {
	if p.Queue == 0 {
		return cursor{}, nil
	}
	after, err := p.cfg.Gateway.Sleeping(ctx, p.Caller, p.Scope.target(""), skip, func(d registry.KnownDevice) bool {
		for _, t := range d.Tools {
			name := qualify(t.Name, d.Session.Key.Session)
			if displayName(t.Name) != t.Name || strings.Contains(name, separator+hashedSession) {
				continue // its name would have a hash, which is looked up among connected devices
			}
			p.addRow(t, policy.Remote, &d.Session, d.LastSeen)
		}
		return !p.full()
	})
	if err != nil || after == 0 {
		return cursor{}, err
	}
	return cursor{Asleep: true, Skip: after}, nil
}

// addSession adds the tools of a session after a cursor. It reports whether the page is full before the last of them.
func (p *toolPage) addSession(e *registry.Entry, after cursor) (full bool) {
	for _, t := range e.Tools {
		if after.covers(&e.Session, t.Name) {
			continue
		}
		if p.full() {
			return true
		}
		p.add(t, policy.Remote, &e.Session)
		p.last = cursor{Generation: e.Session.Generation, Session: e.Session.Key.Session, Name: t.Name}
	}
	return false
}

const maxCursor = 4096

// cursor is the position of the last tool of a page: by order of connecting, and within a session by name. The
// gateway's own tools come first, and those of sleeping devices last.
type cursor struct {
	Generation int64  `json:"g,omitempty"`
	Session    string `json:"s,omitempty"`
	Name       string `json:"n,omitempty"`
	Asleep     bool   `json:"a,omitempty"` // the list goes on with sleeping devices
	Skip       int    `json:"z,omitempty"` // of the sleeping devices
}

// String encodes the cursor for a client, as one opaque word.
func (c cursor) String() string {
	text, _ := json.Marshal(c) // cannot fail: strings and a number
	return base64.RawURLEncoding.EncodeToString(text)
}

// parseCursor accepts exactly what String returns.
func parseCursor(word string) (cursor, error) {
	var c cursor
	bad := invalidParams("The cursor does not belong to this list. Send nextCursor of the previous page unchanged.")
	if len(word) > maxCursor {
		return c, bad
	}
	text, err := base64.RawURLEncoding.Strict().DecodeString(word)
	if err != nil || json.Unmarshal(text, &c) != nil || c.String() != word || c == (cursor{}) || c.Generation < 0 {
		return cursor{}, bad
	}
	if c.Asleep || c.Skip != 0 {
		if c != (cursor{Asleep: true, Skip: c.Skip}) || c.Skip < 0 {
			return cursor{}, bad
		}
		return c, nil
	}
	if c.Session != "" && (registry.Key{Tenant: registry.DefaultTenant, Session: c.Session}).Validate() != nil ||
		(c.Session == "") != (c.Generation == 0) {
		return cursor{}, bad
	}
	return c, nil
}

// afterSession returns the directory's cursor from which a list continues. A session that was not finished is read
// again.
func (c cursor) afterSession() registry.Cursor {
	if c.Name != "" && c.Session != "" {
		return c.session().Before()
	}
	return c.session()
}

// session returns the position of the cursor's session in the directory.
func (c cursor) session() registry.Cursor {
	return registry.Cursor{Generation: c.Generation, Session: c.Session}
}

// covers reports whether a tool of a session comes at or before the cursor.
func (c cursor) covers(s *registry.Session, tool string) bool {
	return c.session().CoversTool(c.Name, s, tool)
}

func (r *request) readCursor() (cursor, error) {
	v := r.params.get("cursor")
	if v.IsZero() || v.String() == "null" {
		return cursor{}, nil
	}
	word, ok := r.params.text("cursor")
	if !ok {
		return cursor{}, invalidParams("The field \"cursor\" must be a string.")
	}
	return parseCursor(word)
}

// appendListed appends the tool's name in the scope, a title for people and a description, which is never empty.
func appendListed(b []byte, row *toolRow) []byte {
	title, text := row.spec.Name, cmp.Or(row.spec.Description, "The tool "+row.spec.Name+".")
	if row.at != nil {
		device := deviceName(row.at)
		title += " (" + device + ")"
		text += "\n\nRuns on the device " + device + " (session " + row.at.Key.Session + ")."
	}
	if !row.lastSeen.IsZero() {
		text += "\n\nThe device sleeps: the call waits until it is back, and the answer may come later."
	}
	b = strictjson.AppendString(append(b, `"name":`...), row.name)
	if title != row.name {
		b = strictjson.AppendString(append(b, `,"title":`...), title)
	}
	return strictjson.AppendString(append(b, `,"description":`...), text)
}

// deviceName returns a session's device name for people.
func deviceName(s *registry.Session) string {
	return cmp.Or(textsafe.Line(s.DeviceName), textsafe.Line(s.Name), textsafe.Line(s.DeviceID), s.Key.Session)
}

// appendObjectSchema appends a schema. MCP demands that its top level declares an object. If it does not, that is
// added: the arguments of every call are an object.
func appendObjectSchema(b []byte, schema json.RawMessage) []byte {
	const object = `"type":"object"`
	if bytes.HasPrefix(schema, []byte("{"+object)) {
		return append(b, schema...)
	}
	members, err := membersOf(registry.MustJSON(string(schema)))
	if err != nil {
		return append(b, "{"+object+"}"...)
	}
	if says := members.get("type"); says.String() == `"object"` {
		return append(b, schema...)
	}
	b = append(b, "{"+object...)
	for _, m := range members {
		if string(m.Name) == "type" {
			continue
		}
		b = strictjson.AppendString(append(b, ','), string(m.Name))
		b = append(append(b, ':'), m.Value...)
	}
	return append(b, '}')
}

// hintsOf returns the annotations about a tool's effects. The operator's settings win over the tool's annotations.
// Unknown effects have no hint, so clients expect the worst.
func hintsOf(said *registry.Annotations, known policy.Effects) registry.Annotations {
	var hints registry.Annotations
	if said != nil {
		hints = *said
	}
	yes, no := true, false
	if known&policy.Unknown == 0 && known&(policy.Changes|policy.Destructive) == 0 {
		hints.ReadOnlyHint, hints.DestructiveHint = &yes, nil
	}
	if known&policy.Changes != 0 {
		hints.ReadOnlyHint = &no
	}
	if known&policy.Destructive != 0 {
		hints.ReadOnlyHint, hints.DestructiveHint = &no, &yes
	}
	if known&policy.OpenWorld != 0 {
		hints.OpenWorldHint = &yes
	}
	return hints
}
