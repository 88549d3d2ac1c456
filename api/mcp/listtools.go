package mcp

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"

	"github.com/farhand/farhand/agent/access/policy"
	"github.com/farhand/farhand/agent/mcpcontent"
	"github.com/farhand/farhand/internal/strictjson"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/legible"
)

const (
	// pageTools and pageBytes bound a page of a list. The last tool may exceed them.
	pageTools = 1000
	pageBytes = 1 << 20

	// pageSessions is how many sessions are read at a time, and pageReads how often for one page.
	pageSessions = 100
	pageReads    = 20
)

// toolRow is a tool in a list.
type toolRow struct {
	name string // in its session's own scope
	spec registry.ToolSpec
	says *policy.Decision
	at   *registry.Session // nil: one of the gateway's own
}

// toolPage is a page of a list of tools while it is made.
type toolPage struct {
	*Server
	*request
	rows  []toolRow
	bytes int
	last  cursor         // the place of the last tool that was looked at
	named map[string]int // how many tools have a name, those that are not listed included

	query string // in lower case; empty: all
	limit int    // of rows
}

func (p *toolPage) full() bool { return len(p.rows) >= p.limit || p.bytes >= pageBytes }

// add adds a tool, unless the caller may not call it: what is listed may be called.
func (p *toolPage) add(t registry.ToolSpec, from policy.Source, at *registry.Session) {
	name := shownName(t.Name)
	p.named[name]++
	if !p.matches(t) {
		return
	}
	if d := p.allows(t, from); d != nil {
		p.rows, p.bytes = append(p.rows, toolRow{name, t, d, at}), p.bytes+t.Size()+rowOverhead
	}
}

// rowOverhead is about how many bytes a tool has in a list beside its definition.
const rowOverhead = 300

// listTools lists what the caller may call now. Pages follow the order of connecting, and each is sorted by name: a
// list that fits on one page, as most do, is the same whatever its devices did in the meantime.
func (s *Server) listTools(ctx context.Context, r *request) (result, error) {
	if err := r.Out.ReservePage(ctx); err != nil {
		return result{}, err
	}
	after, err := r.readCursor()
	if err != nil {
		return result{}, err
	}
	if r.Scope.Search {
		return r.constant(searchList)
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	p := &toolPage{Server: s, request: r, last: after, named: make(map[string]int), limit: pageTools}
	next, err := p.fill(ctx, after)
	if err != nil {
		return result{}, err
	}
	p.nameAll(after == cursor{} && next == cursor{})
	slices.SortFunc(p.rows, func(a, b toolRow) int { return strings.Compare(a.name, b.name) })
	b := append(make([]byte, 0, p.bytes+256), `"tools":[`...)
	for i := range p.rows {
		if i > 0 {
			b = append(b, ',')
		}
		row := &p.rows[i]
		b = appendTool(b, row.name, row.spec, row.says, row.at)
	}
	b = append(b, ']')
	if next != (cursor{}) {
		b = strictjson.AppendString(append(b, `,"nextCursor":`...), next.String())
	}
	if r.modern {
		b = append(b, private...)
	}
	return result{members: b}, nil
}

// nameAll gives every tool its name in the scope. A tool that one session alone offers has its own name; that is known
// only if the page is the whole list. Of several that share a name none has it, and neither has a tool whose own name
// could be another one's qualified name, or one that MCP does not allow: what stands for it is no name to look for
// among sessions, and another session's tool may really be called so. Who sees the devices of several users has no name
// without a session for them: while one user's device is away, the name would mean that of another.
func (p *toolPage) nameAll(whole bool) {
	ofUsers := p.seesUsers()
	for i := range p.rows {
		row := &p.rows[i]
		switch _, _, like := unqualify(row.name); {
		case row.at == nil:
		case p.Scope.Session != "":
			row.at = nil // there is no other that its reader has to be told from
		case !whole || like || p.named[row.name] > 1 || row.name != row.spec.Name || ofUsers && row.at.UserID != "":
			row.name = p.qualified(row.name, row.at.Key.Session)
		}
	}
}

// qualified returns the name of a session's tool with its session. One that the gateway's own tool has is the
// gateway's: the session's has a hash.
func (p *toolPage) qualified(tool, session string) string {
	name := qualify(tool, session)
	if p.Scope.hasLocalTools() && p.isLocal(name) {
		return tool + separator + hashSession(session)
	}
	return name
}

// fill reads a page. It returns where the next one begins, zero when there is none.
func (p *toolPage) fill(ctx context.Context, after cursor) (next cursor, err error) {
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
	if p.Scope.Session != "" {
		return p.fillOne(ctx, after)
	}
	q := registry.Query{
		Tenant: p.Caller.Tenant, Target: p.Scope.target(p.Caller.Viewer()), After: after.afterSession(),
		Limit: pageSessions,
	}
	for range pageReads {
		entries, more, err := p.cfg.Directory.List(ctx, q)
		if err != nil {
			return cursor{}, err
		}
		for i := range entries {
			if p.addSession(&entries[i], after) {
				return p.last, nil
			}
		}
		if more == nil {
			return cursor{}, nil
		}
		q.After = *more
	}
	return cursor{Generation: q.After.Generation, Session: q.After.Session}, nil
}

// fillOne reads a page of the tools of the scope's session.
func (p *toolPage) fillOne(ctx context.Context, after cursor) (next cursor, err error) {
	e, err := p.session(ctx, p.request)
	if err != nil {
		return cursor{}, err
	}
	if p.addSession(&e, after) {
		return p.last, nil
	}
	return cursor{}, nil
}

// addSession adds the tools of a session behind a place. It reports whether the page is full before the last of them.
func (p *toolPage) addSession(e *registry.Entry, after cursor) (full bool) {
	for _, t := range e.Tools {
		if after.covers(e.Session, t.Name) {
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

// maxCursor bounds a cursor, in characters.
const maxCursor = 4096

// cursor is the place of the last tool of a page: in the order of connecting, and in a session by name. The gateway's
// own tools come first.
type cursor struct {
	Generation int64  `json:"g,omitempty"`
	Session    string `json:"s,omitempty"`
	Name       string `json:"n,omitempty"`
}

// String encodes the cursor for a client, as one opaque word.
func (c cursor) String() string {
	text, _ := json.Marshal(c) // cannot fail: strings and a number
	return base64.RawURLEncoding.EncodeToString(text)
}

// parseCursor accepts exactly what String returns.
func parseCursor(word string) (cursor, error) {
	var c cursor
	bad := invalidParams("The cursor is not one of this list. Send nextCursor of the page before as it is.")
	if len(word) > maxCursor {
		return c, bad
	}
	text, err := base64.RawURLEncoding.Strict().DecodeString(word)
	if err != nil || json.Unmarshal(text, &c) != nil || c.String() != word || c == (cursor{}) || c.Generation < 0 {
		return cursor{}, bad
	}
	if c.Session != "" && (registry.Key{Tenant: registry.DefaultTenant, Session: c.Session}).Validate() != nil ||
		(c.Session == "") != (c.Generation == 0) {
		return cursor{}, bad
	}
	return c, nil
}

// afterSession returns the place of the directory that a list goes on from. Inside a session, that has to be read once
// more, so it goes on from just before it: the tilde sorts after all that an id may contain.
func (c cursor) afterSession() registry.Cursor {
	if c.Name != "" && c.Session != "" {
		return registry.Cursor{Generation: c.Generation - 1, Session: "~"}
	}
	return registry.Cursor{Generation: c.Generation, Session: c.Session}
}

// covers reports whether a tool of a session comes at or before the cursor.
func (c cursor) covers(s registry.Session, tool string) bool {
	switch {
	case s.Generation != c.Generation:
		return s.Generation < c.Generation
	case s.Key.Session != c.Session:
		return s.Key.Session < c.Session
	default:
		return c.Name == "" || tool <= c.Name
	}
}

// readCursor returns where a list goes on.
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

// appendTool appends a tool as tools/list has it. at is the session that the tool's reader has to be told of; nil:
// nobody has to.
func appendTool(b []byte, name string, t registry.ToolSpec, d *policy.Decision, at *registry.Session) []byte {
	b = strictjson.AppendString(append(b, `{"name":`...), name)
	if title := titleOf(t, at); title != name {
		b = strictjson.AppendString(append(b, `,"title":`...), title)
	}
	b = strictjson.AppendString(append(b, `,"description":`...), describe(t, at))
	b = appendObjectSchema(append(b, `,"inputSchema":`...), t.Parameters)
	if output := mcpcontent.OutputSchema(t); output != nil {
		b = append(append(b, `,"outputSchema":`...), output...)
	}
	hints, _ := json.Marshal(hintsOf(t.Annotations, d.Effects)) // cannot fail: booleans
	return append(append(append(b, `,"annotations":`...), hints...), '}')
}

// titleOf names a tool, and its device, for people.
func titleOf(t registry.ToolSpec, at *registry.Session) string {
	if at == nil {
		return t.Name
	}
	return t.Name + " (" + deviceName(at) + ")"
}

// deviceName returns what people call the device of a session.
func deviceName(s *registry.Session) string {
	for _, name := range []string{s.DeviceName, s.Name, s.DeviceID} {
		if name = legible.Line(name); name != "" {
			return name
		}
	}
	return s.Key.Session
}

// describe returns the description of a tool, which is never empty.
func describe(t registry.ToolSpec, at *registry.Session) string {
	text := t.Description
	if text == "" {
		text = "The tool " + t.Name + "."
	}
	if at == nil {
		return text
	}
	return text + "\n\nRuns on the device " + deviceName(at) + " (session " + at.Key.Session + ")."
}

// appendObjectSchema appends a schema as it is, if it says at its top that it is one of an object, as MCP demands. Else
// that is added: the arguments of every call are an object.
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

// hintsOf returns what a client is told of the effects of a tool. The operator's word counts, then that of whoever
// registered the tool; of what nobody knows nothing is said, and clients expect the worst.
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
