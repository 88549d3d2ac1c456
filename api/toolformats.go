package api

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/mcpcontent"
	"github.com/farhand/farhand/api/wire"
	"github.com/farhand/farhand/registry"
)

// Forms of the tool list. All but the flat and the grouped form can be passed to a model unchanged.
const (
	formFlat      = "flat"    // a row for each tool of each session
	formGrouped   = "grouped" // a row for each definition
	formOpenAI    = "openai"
	formAnthropic = "anthropic"
	formMCP       = "mcp"
)

// formatted lists the tools that may be called, one row for each name, in order of name. A model knows tools only by
// name, so of several definitions it shows that of the most senior session: a device that connects later cannot take
// over a name. A built-in tool always keeps its own definition.
func formatted[Row any](
	ctx context.Context, h *handler, tq toolQuery, from cursor, row func(t registry.ToolSpec, name string) Row,
) (answer wire.FormatList[Row], err error) {
	specs, err := h.distinct(ctx, tq)
	if err != nil {
		return answer, err
	}
	own := make(map[string]*ownTool)
	for _, t := range h.own().matching(tq, cursor{}) {
		specs[t.Name], own[t.Name] = t.ToolSpec, &t
	}
	by := direct(tq.who)
	by.Waits = true
	maps.DeleteFunc(specs, func(name string, t registry.ToolSpec) bool {
		return !tq.matches(t) || !h.mayCall(by, t, own[name]).Allowed // without an own tool, it is a device's
	})
	names := slices.Sorted(maps.Keys(specs))
	_, isMCP := any(answer).(wire.MCPToolList) // whose rows have their own names and schemas
	shown := func(name string) string { return name }
	if !isMCP {
		safe := agent.ModelNames(names)
		shown = func(name string) string { return safe[name] }
	}
	budget := pageBudget{tq.limit, pageBytes}
	answer.Tools, answer.Names, answer.OutputSchemas = []Row{}, wire.ChangedNames{}, wire.OutputSchemas{}
	for i, name := range names {
		if name <= from.Name {
			continue
		}
		if budget.spent() {
			answer.NextCursor = cursor{Kind: cursorNames, Name: names[i-1]}.String()
			break
		}
		if shown(name) != name {
			answer.Names[shown(name)] = name
		}
		if schema := specs[name].OutputSchema; schema != nil && !isMCP {
			answer.OutputSchemas[shown(name)] = schema
		}
		budget.addRow(specs[name].Size() + rowOverhead)
		answer.Tools = append(answer.Tools, row(specs[name], shown(name)))
	}
	return answer, nil
}

func openAITool(t registry.ToolSpec, name string) wire.OpenAITool {
	return wire.OpenAITool{Type: "function", Function: wire.OpenAIFunction{
		Name: name, Description: t.Description, Parameters: t.Parameters,
	}}
}

func anthropicTool(t registry.ToolSpec, name string) wire.AnthropicTool {
	return wire.AnthropicTool{Name: name, Description: t.Description, InputSchema: t.Parameters}
}

func mcpTool(t registry.ToolSpec, name string) wire.MCPTool {
	return wire.MCPTool{
		Name: name, Description: t.Description, InputSchema: t.Parameters,
		OutputSchema: mcpcontent.OutputSchema(t), Annotations: t.Annotations, Meta: mcpcontent.Meta(t),
	}
}

// distinct returns the oldest definition of each tool of the selected sessions, by name.
func (h *handler) distinct(ctx context.Context, tq toolQuery) (map[string]registry.ToolSpec, error) {
	if tq.all() && tq.from(sourceRemote) {
		return h.distinctOfAll(ctx, tq)
	}
	specs := make(map[string]registry.ToolSpec)
	if !tq.from(sourceRemote) {
		return specs, nil
	}
	since := make(map[string]time.Time)
	return specs, h.fold(ctx, tq.sessions(), func(e registry.Entry) {
		for _, t := range e.Tools {
			if tq.name != "" && t.Name != tq.name {
				continue
			}
			if known, ok := since[t.Name]; !ok || e.Session.Seniority().Before(known) {
				specs[t.Name], since[t.Name] = t, e.Session.Seniority()
			}
		}
	})
}

// distinctOfAll is distinct for all sessions, without reading the whole fleet. It looks up the oldest definition only
// where definitions differ.
func (h *handler) distinctOfAll(ctx context.Context, tq toolQuery) (map[string]registry.ToolSpec, error) {
	specs := make(map[string]registry.ToolSpec)
	differ := make(map[string]map[string]registry.ToolSpec) // by name and hash
	q := registry.OfferedToolQuery{Tenant: tq.who.Tenant, Name: tq.name, Limit: maxLimit}
	for pages := 0; ; pages++ {
		if pages == maxPages {
			return nil, registry.Errorf(registry.CodeInvalidRequest,
				"There are too many different tools for one response. Add filters.")
		}
		groups, next, err := h.Directory.OfferedTools(ctx, q)
		if err != nil {
			return nil, err
		}
		for _, g := range groups {
			name := g.Spec.Name
			first, known := specs[name]
			switch {
			case !known:
				specs[name] = g.Spec
				continue
			case differ[name] == nil:
				differ[name] = map[string]registry.ToolSpec{first.Hash(): first}
			}
			differ[name][g.Spec.Hash()] = g.Spec
		}
		if next == "" {
			break
		}
		q.After = next
	}
	for name, defined := range differ {
		oldest, err := h.Directory.Definitions(ctx, tq.who.Tenant, name)
		if err != nil {
			return nil, err
		}
		for _, hash := range slices.Backward(oldest) { // if no age is known, the first definition stays
			if spec, ok := defined[hash]; ok {
				specs[name] = spec
			}
		}
	}
	return specs, nil
}

func (h *handler) groupRowOf(who auth.Identity, t registry.ToolSpec, sessions int) wire.GroupRow {
	return wire.GroupRow{Tool: h.toolInfoOf(direct(who), t, nil), SourceType: sourceRemote, Sessions: sessions}
}

// ownGroupRowOf is groupRowOf for a tool of the gateway.
func (h *handler) ownGroupRowOf(who auth.Identity, t ownTool) wire.GroupRow {
	return wire.GroupRow{Tool: h.toolInfoOf(direct(who), t.ToolSpec, &t), SourceType: t.sourceType()}
}

// groupChunk is how many groups are read at a time, because a definition can be long. maxGroupPages is the maximum
// number of such reads for one page.
const (
	groupChunk    = 64
	maxGroupPages = 2 * maxLimit / groupChunk
)

// groupedAll groups the tools of all sessions. The directory counts them, so the cost does not grow with the fleet.
func (h *handler) groupedAll(ctx context.Context, tq toolQuery, from cursor) (wire.ToolGroupList, error) {
	rows, last, budget := []wire.GroupRow{}, from, pageBudget{tq.limit, pageBytes}
	for _, t := range h.own().matching(tq, from) {
		if budget.spent() {
			return wire.ToolGroupList{Tools: rows, NextCursor: last.String()}, nil
		}
		budget.addRow(t.Size() + rowOverhead)
		rows = append(rows, h.ownGroupRowOf(tq.who, t))
		last = cursor{Kind: cursorGroups, Name: t.Name, Builtin: true}
	}
	switch {
	case !tq.from(sourceRemote):
		return wire.ToolGroupList{Tools: rows}, nil
	case budget.spent():
		return wire.ToolGroupList{Tools: rows, NextCursor: last.String()}, nil
	}
	q := registry.OfferedToolQuery{Tenant: tq.who.Tenant, Name: tq.name, After: from.afterBuiltins().Name}
	for range maxGroupPages {
		q.Limit = min(budget.rows, groupChunk) // so a page ends at the end of a directory page
		groups, next, err := h.Directory.OfferedTools(ctx, q)
		if err != nil {
			return wire.ToolGroupList{}, err
		}
		for _, g := range groups {
			if tq.matches(g.Spec) {
				budget.addRow(g.Spec.Size() + rowOverhead)
				rows = append(rows, h.groupRowOf(tq.who, g.Spec, g.Sessions))
			}
		}
		if next == "" {
			return wire.ToolGroupList{Tools: rows}, nil
		}
		q.After = next
		if budget.spent() {
			break
		}
	}
	return wire.ToolGroupList{Tools: rows, NextCursor: cursor{Kind: cursorGroups, Name: q.After}.String()}, nil
}

// groupedSome groups the tools of the sessions that the filters select and the caller may see. It reads each of these
// sessions.
func (h *handler) groupedSome(ctx context.Context, tq toolQuery, from cursor) (wire.ToolGroupList, error) {
	type place struct{ name, hash string }
	compare := func(a, b place) int {
		return cmp.Or(strings.Compare(a.name, b.name), strings.Compare(a.hash, b.hash))
	}
	groups := make(map[place]*registry.OfferedTool)
	rows, last, budget := []wire.GroupRow{}, from, pageBudget{tq.limit, pageBytes}
	for _, t := range h.own().matching(tq, from) { // none if sessions are selected: own tools have no session
		if budget.spent() {
			return wire.ToolGroupList{Tools: rows, NextCursor: last.String()}, nil
		}
		budget.addRow(t.Size() + rowOverhead)
		rows = append(rows, h.ownGroupRowOf(tq.who, t))
		last = cursor{Kind: cursorNames, Name: t.Name, Builtin: true}
	}
	if !tq.from(sourceRemote) {
		return wire.ToolGroupList{Tools: rows}, nil
	}
	err := h.fold(ctx, tq.sessions(), func(e registry.Entry) {
		for _, t := range e.Tools {
			if !tq.matches(t) {
				continue
			}
			at := place{t.Name, t.Hash()}
			if groups[at] == nil {
				groups[at] = &registry.OfferedTool{Spec: t}
			}
			groups[at].Sessions++
		}
	})
	if err != nil {
		return wire.ToolGroupList{}, err
	}
	from = from.afterBuiltins()
	for _, at := range slices.SortedFunc(maps.Keys(groups), compare) {
		if compare(at, place{from.Name, from.Hash}) <= 0 {
			continue
		}
		if budget.spent() {
			return wire.ToolGroupList{Tools: rows, NextCursor: last.String()}, nil
		}
		last = cursor{Kind: cursorNames, Name: at.name, Hash: at.hash}
		budget.addRow(groups[at].Spec.Size() + rowOverhead)
		rows = append(rows, h.groupRowOf(tq.who, groups[at].Spec, groups[at].Sessions))
	}
	return wire.ToolGroupList{Tools: rows}, nil
}
