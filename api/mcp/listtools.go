package mcp

import (
	"context"
	"slices"
	"strings"

	"github.com/farhand/farhand/agent/access/policy"
	"github.com/farhand/farhand/internal/strictjson"
	"github.com/farhand/farhand/registry"
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
