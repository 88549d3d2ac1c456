package api

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/access/policy"
	"github.com/farhand/farhand/api/wire"
	"github.com/farhand/farhand/registry"
)

// Values of source_type.
const (
	sourceBuiltin = "builtin" // the gateway itself
	sourceMCP     = "mcp"     // an MCP server that the gateway is a client of
	sourceRemote  = "remote"  // a device
)

// direct returns the asker of HTTP requests. Their calls count as the caller's own, even if a model reads the list.
func direct(who auth.Identity) agent.Asker { return agent.Asker{Who: who, Endpoint: agent.EndpointAPI} }

// mayCall returns policy's decision on a call of a tool now. own is the tool if it is one of the gateway; nil: it is a
// device's.
func (h *handler) mayCall(by agent.Asker, t registry.ToolSpec, own *ownTool) *policy.Decision {
	var local agent.Tool
	if own != nil {
		local = own.in[policy.Join("", policy.Context(by.Who.Context))]
	}
	return agent.MayCall(h.Policy, by, t, local)
}

func (h *handler) toolInfoOf(by agent.Asker, t registry.ToolSpec, own *ownTool) wire.Tool {
	d := h.mayCall(by, t, own)
	info := wire.Tool{
		Name: t.Name, Description: t.Description, Parameters: t.Parameters, Enabled: d.Allowed, Reason: d.Reason,
		TimeoutMS: t.TimeoutMS, Annotations: t.Annotations, SecurityLevel: t.SecurityLevel, SchemaHash: t.Hash(),
		OutputSchema: t.OutputSchema, Effects: t.Declared(), Tags: t.Tags,
	}
	if d.Allowed && d.Approval(0) != nil {
		info.Approval = wire.ApprovalRequired
	}
	return info
}

// maxAnswers is how many different definitions one page of a list may check. The page ends with the session that
// reaches it.
const maxAnswers = 10_000

// toolAnswers checks for one page which tools of devices its reader may not call now. It checks each definition once,
// even if many sessions offer it.
type toolAnswers struct {
	handler *handler
	by      agent.Asker
	known   map[string]string // the reason, by hash of the definition
}

// whyNot returns why the reader may not call a tool, or "" if the reader may.
func (a toolAnswers) whyNot(t registry.ToolSpec) string {
	reason, known := a.known[t.Hash()]
	if known {
		return reason
	}
	if d := a.handler.mayCall(a.by, t, nil); !d.Allowed {
		reason = d.Reason
	}
	a.known[t.Hash()] = reason
	return reason
}

func (a toolAnswers) spent() bool { return len(a.known) >= maxAnswers }

type toolQuery struct {
	who    auth.Identity
	target registry.Target
	name   string
	text   string // lower case
	source string // empty: all
	limit  int

	tags       []string // the tool has all of them
	level      registry.SecurityLevel
	annotation string // a hint that is true; empty: all
}

func (tq toolQuery) from(source string) bool { return tq.source == "" || tq.source == source }

func (tq toolQuery) matches(t registry.ToolSpec) bool {
	return (tq.name == "" || t.Name == tq.name) &&
		(strings.Contains(strings.ToLower(t.Name), tq.text) ||
			strings.Contains(strings.ToLower(t.Description), tq.text)) &&
		tq.declared(t)
}

// declared reports whether a tool declares the tags, the level and the hint of the query.
func (tq toolQuery) declared(t registry.ToolSpec) bool {
	for _, tag := range tq.tags {
		if !slices.Contains(t.Tags, tag) {
			return false
		}
	}
	if tq.level != "" && cmp.Or(t.SecurityLevel, registry.SecuritySafe) != tq.level {
		return false
	}
	return tq.annotation == "" || t.Annotations.Has(tq.annotation)
}

// all reports whether the query covers all sessions of the tenant, so that the directory can aggregate their tools.
func (tq toolQuery) all() bool { return tq.target.IsZero() && tq.who.Viewer() == "" }

// sessions returns the query for sessions that can have a matching tool.
func (tq toolQuery) sessions() registry.Query {
	q := registry.Query{Tenant: tq.who.Tenant, Target: tq.target, Tool: tq.name}
	q.Viewer = tq.who.Viewer()
	return q
}

// listTools serves the tool list in one form: formFlat, formGrouped or a format for models.
func (h *handler) listTools(form string) handlerFunc {
	return func(c *gin.Context, q *params) error {
		return h.respondVersioned(c, q, h.Directory.Version, func(ctx context.Context) (any, error) {
			return h.toolPage(ctx, caller(c), q, form)
		})
	}
}

// listToolsByQuery serves GET /api/tools: the flat list, or the form in the parameters view and format. Each of those
// forms also has its own path, because OpenAPI cannot express that a parameter changes the schema of the answer.
func (h *handler) listToolsByQuery(c *gin.Context, q *params) error {
	view, format := q.oneOf("view", formGrouped), q.oneOf("format", formOpenAI, formAnthropic, formMCP)
	if err := q.failed(); err != nil {
		return err
	}
	presence := q.presence()
	if err := q.failed(); err != nil {
		return err
	}
	switch {
	case presence == "":
	case view != "" || format != "":
		return registry.Errorf(registry.CodeInvalidRequest, "presence cannot be combined with view or format.")
	default:
		return h.listToolsOf(c, q, presence)
	}
	if view != "" && format != "" {
		return registry.Errorf(registry.CodeInvalidRequest,
			"view and format cannot be combined: a format already has one row per name.")
	}
	return h.listTools(cmp.Or(view, format, formFlat))(c, q)
}

// toolQuery returns what a request asks for. q may fail.
func (p *params) toolQuery(who auth.Identity) toolQuery {
	return toolQuery{
		who: who, text: strings.ToLower(p.get("q")),
		source: p.oneOf("source_type", sourceBuiltin, sourceMCP, sourceRemote), target: p.target(),
		name: p.toolName("name"), limit: p.limit(), tags: p.tags("tag"),
		level: registry.SecurityLevel(p.oneOf("level", string(registry.SecuritySafe),
			string(registry.SecurityUserConfirm), string(registry.SecurityAdminOnly))),
		annotation: p.oneOf("annotation", registry.Hints()...),
	}
}

func (h *handler) toolPage(ctx context.Context, who auth.Identity, q *params, form string) (any, error) {
	tq := q.toolQuery(who)
	kind := cursorNames
	switch {
	case form == formFlat:
		kind = cursorTools
	case form == formGrouped && tq.all():
		kind = cursorGroups
	}
	from := q.cursor(kind)
	switch {
	case q.failed() != nil:
		return nil, q.failed()
	case form == formFlat:
		return h.flat(ctx, tq, from)
	case kind == cursorGroups:
		return h.groupedAll(ctx, tq, from)
	case form == formGrouped:
		return h.groupedSome(ctx, tq, from)
	case form == formOpenAI:
		return formatted(ctx, h, tq, from, openAITool)
	case form == formAnthropic:
		return formatted(ctx, h, tq, from, anthropicTool)
	default:
		return formatted(ctx, h, tq, from, mcpTool)
	}
}

// flat lists every tool of every session, in the order in which sessions connected, then by name. A connected session
// keeps its position, so changes of other sessions neither hide nor repeat a row.
func (h *handler) flat(ctx context.Context, tq toolQuery, from cursor) (wire.ToolList, error) {
	rows, last, budget := []wire.ToolRow{}, from, pageBudget{tq.limit, pageBytes}
	for _, t := range h.own().matching(tq, from) {
		if budget.spent() {
			return wire.ToolList{Tools: rows, NextCursor: last.String()}, nil
		}
		budget.addRow(t.Size() + rowOverhead)
		info := h.toolInfoOf(direct(tq.who), t.ToolSpec, &t)
		rows = append(rows, wire.ToolRow{Tool: info, SourceType: t.sourceType(), Source: t.source})
		last = cursor{Kind: cursorTools, Name: t.Name, Builtin: true}
	}
	if !tq.from(sourceRemote) {
		return wire.ToolList{Tools: rows}, nil
	}
	from = from.afterBuiltins()
	q := tq.sessions()
	q.After, q.Limit = from.sessionsAfter(), min(tq.limit, maxSessionPage)
	start, shown := q.After, ""
	for range maxPages {
		entries, next, err := h.Directory.List(ctx, q)
		if err != nil {
			return wire.ToolList{}, err
		}
		for _, e := range entries {
			shown = e.Session.Key.Session
			for _, t := range e.Tools {
				if from.covers(&e.Session, t.Name) || !tq.matches(t) {
					continue
				}
				if budget.spent() {
					return wire.ToolList{Tools: rows, NextCursor: last.String()}, nil
				}
				budget.addRow(t.Size() + sessionSize(e.Session))
				s := e.Session
				rows = append(rows, wire.ToolRow{
					Tool: h.toolInfoOf(direct(tq.who), t, nil), SourceType: sourceRemote, Source: s.Key.Session,
					SessionID: s.Key.Session, DeviceID: s.DeviceID, DeviceName: s.DeviceName, UserID: s.UserID,
					Labels: s.Labels, Pod: s.Pod,
				})
				last = cursor{
					Kind: cursorTools, Generation: e.Session.Generation, Session: e.Session.Key.Session, Name: t.Name,
				}
			}
		}
		if next == nil {
			return wire.ToolList{Tools: rows}, nil
		}
		q.After = *next
		if budget.spent() {
			break
		}
	}
	at := hiding(q.After, start, shown, false)
	next := cursor{Kind: cursorTools, Generation: at.Generation, Session: at.Session}
	return wire.ToolList{Tools: rows, NextCursor: next.String()}, nil
}

// builtins holds the gateway's tools, in order of name: static ones, which do not change while the process runs, and a
// snapshot of the live ones.
type builtins struct {
	tools   []ownTool
	reasons string // why some cannot work now
	digest  string // of all of this
	version uint64 // of the live ones
}

// ownTool is a tool of the gateway, with its source.
type ownTool struct {
	registry.ToolSpec
	source string
	from   policy.Source
	in     map[policy.Context]agent.Tool // the tool, by context
}

// sourceType returns the kind of the source, a value of source_type.
func (t ownTool) sourceType() string {
	if t.from == policy.MCP {
		return sourceMCP
	}
	return sourceBuiltin
}

func newBuiltins(from Builtins) (builtins, error) {
	if from == nil {
		return builtins{}, nil
	}
	var b builtins
	for _, t := range from.Specs() {
		t, err := t.Normalize()
		if err != nil {
			return builtins{}, fmt.Errorf("api: built-in tool %q: %w", t.Name, err)
		}
		own := ownTool{t, sourceBuiltin, policy.Builtin, make(map[policy.Context]agent.Tool)}
		for _, in := range policy.Contexts() {
			own.in[in] = from.Tool(in, t.Name)
		}
		b.tools = append(b.tools, own)
	}
	return b.sorted(), nil
}

// sorted returns the tools in order of name, with their digest.
func (b builtins) sorted() builtins {
	b.tools = slices.SortedFunc(slices.Values(b.tools), func(a, b ownTool) int { return cmp.Compare(a.Name, b.Name) })
	b.reasons = b.whyNot()
	sum := sha256.New()
	for _, t := range b.tools {
		fmt.Fprintf(sum, "%q %s", t.source, t.Hash())
	}
	fmt.Fprint(sum, b.reasons)
	b.digest = hex.EncodeToString(sum.Sum(nil))
	return b
}

// whyNot returns why some of the tools cannot work now, or "" if all can.
func (b builtins) whyNot() string {
	var reasons strings.Builder
	for _, t := range b.tools {
		for _, in := range policy.Contexts() {
			if why := agent.WhyNot(t.in[in]); why != "" {
				fmt.Fprintf(&reasons, "%q %q %q", t.Name, in, why)
			}
		}
	}
	return reasons.String()
}

// own returns the gateway's current tools. It checks whether each can work; running does not.
func (h *handler) own() *builtins {
	last := h.running()
	if last.reasons != last.whyNot() {
		now := last.sorted()
		last = &now
		h.lastBuiltins.Store(last)
	}
	return last
}

// running returns the gateway's current tools. Their digest is that of the last check whether they can work.
func (h *handler) running() *builtins {
	last, set := h.lastBuiltins.Load(), agent.LiveSet{}
	live, ok := h.Builtins.(agent.LiveTools)
	if ok {
		set = live.Live()
	}
	if last == nil || last.version != set.Version {
		now := h.builtins.with(set)
		last = &now
		h.lastBuiltins.Store(last)
	}
	return last
}

// with returns the tools together with live ones.
func (b builtins) with(set agent.LiveSet) builtins {
	b.tools, b.version = slices.Clip(b.tools), set.Version
	for _, t := range set.Tools {
		source, from := agent.SourceOf(t)
		live := ownTool{t.Spec(), source, from, make(map[policy.Context]agent.Tool)}
		for _, in := range policy.Contexts() {
			live.in[in] = t
		}
		b.tools = append(b.tools, live)
	}
	return b.sorted()
}

// named returns the gateway's tool with a name, or nil if there is none.
func (b *builtins) named(name string) *ownTool {
	i, found := slices.BinarySearchFunc(b.tools, name,
		func(t ownTool, name string) int { return cmp.Compare(t.Name, name) })
	if !found {
		return nil
	}
	return &b.tools[i]
}

// matching returns the tools with which a list continues. They belong to no session, so a query that filters sessions
// excludes them.
func (b *builtins) matching(tq toolQuery, from cursor) []ownTool {
	after, some := from.builtinsAfter()
	if !some || !tq.target.IsZero() {
		return nil
	}
	var found []ownTool
	for _, t := range b.tools {
		if t.Name > after && tq.from(t.sourceType()) && tq.matches(t.ToolSpec) {
			found = append(found, t)
		}
	}
	return found
}
