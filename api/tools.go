package api

import (
	"cmp"
	"context"
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
		OutputSchema: t.OutputSchema,
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

func (h *handler) answersFor(by agent.Asker) toolAnswers {
	return toolAnswers{h, by, make(map[string]string)}
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

// toolQuery holds the filters of a tool list.
type toolQuery struct {
	who    auth.Identity
	target registry.Target
	name   string
	text   string // lower case
	source string // empty: all
	limit  int
}

func parseToolQuery(who auth.Identity, q params) (toolQuery, error) {
	tq := toolQuery{who: who, text: strings.ToLower(q.get("q"))}
	var err error
	if tq.source, err = q.oneOf("source_type", sourceBuiltin, sourceMCP, sourceRemote); err != nil {
		return tq, err
	}
	if tq.target, err = q.target(); err != nil {
		return tq, err
	}
	if tq.name, err = q.toolName("name"); err != nil {
		return tq, err
	}
	tq.limit, err = q.limit()
	return tq, err
}

// from reports whether the query includes tools of a kind of source.
func (tq toolQuery) from(source string) bool { return tq.source == "" || tq.source == source }

func (tq toolQuery) matches(t registry.ToolSpec) bool {
	return (tq.name == "" || t.Name == tq.name) &&
		(strings.Contains(strings.ToLower(t.Name), tq.text) ||
			strings.Contains(strings.ToLower(t.Description), tq.text))
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
	return func(c *gin.Context, q params) error {
		return h.respondVersioned(c, q, h.Directory.Version, func(ctx context.Context) (any, error) {
			return h.toolPage(ctx, caller(c), q, form)
		})
	}
}

// listToolsByQuery serves GET /api/tools: the flat list, or the form in the parameters view and format. Each of those
// forms also has its own path, because OpenAPI cannot express that a parameter changes the schema of the answer.
func (h *handler) listToolsByQuery(c *gin.Context, q params) error {
	view, err := q.oneOf("view", formGrouped)
	if err != nil {
		return err
	}
	format, err := q.oneOf("format", formOpenAI, formAnthropic, formMCP)
	if err != nil {
		return err
	}
	if view != "" && format != "" {
		return registry.Errorf(registry.CodeInvalidRequest,
			"view and format exclude one another: a format has one row for each name already.")
	}
	return h.listTools(cmp.Or(view, format, formFlat))(c, q)
}

// toolPage returns a page of the tool list in one form.
func (h *handler) toolPage(ctx context.Context, who auth.Identity, q params, form string) (any, error) {
	tq, err := parseToolQuery(who, q)
	if err != nil {
		return nil, err
	}
	kind := cursorNames
	switch {
	case form == formFlat:
		kind = cursorTools
	case form == formGrouped && tq.all():
		kind = cursorGroups
	}
	from, err := q.cursor(kind)
	switch {
	case err != nil:
		return nil, err
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
	rows, last, budget := []wire.ToolRow{}, from, newPageBudget(tq.limit)
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
	from = from.behindBuiltins()
	q := tq.sessions()
	q.After, q.Limit = from.sessionsAfter(), min(tq.limit, maxSessionPage)
	for range maxPages {
		entries, next, err := h.Directory.List(ctx, q)
		if err != nil {
			return wire.ToolList{}, err
		}
		for _, e := range entries {
			for _, t := range e.Tools {
				if from.covers(e.Session, t.Name) || !tq.matches(t) {
					continue
				}
				if budget.spent() {
					return wire.ToolList{Tools: rows, NextCursor: last.String()}, nil
				}
				budget.addRow(t.Size() + sessionSize(e.Session))
				rows = append(rows, h.toolRowOf(tq.who, e.Session, t))
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
	next := cursor{Kind: cursorTools, Generation: q.After.Generation, Session: q.After.Session}
	return wire.ToolList{Tools: rows, NextCursor: next.String()}, nil
}

func (h *handler) toolRowOf(who auth.Identity, s registry.Session, t registry.ToolSpec) wire.ToolRow {
	return wire.ToolRow{
		Tool: h.toolInfoOf(direct(who), t, nil), SourceType: sourceRemote, Source: s.Key.Session,
		SessionID: s.Key.Session, DeviceID: s.DeviceID, DeviceName: s.DeviceName, UserID: s.UserID,
		Labels: s.Labels, Pod: s.Pod,
	}
}
