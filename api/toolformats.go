package api

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/farhand/farhand/registry"
)

// Formats of the tool list that can be handed to a model as they are.
const (
	formatOpenAI    = "openai"
	formatAnthropic = "anthropic"
	formatMCP       = "mcp"
)

// maxModelName is how long a tool's name may be for OpenAI and Anthropic, in characters.
const maxModelName = 64

// openAITool is a tool as OpenAI's chat completions take it.
type openAITool struct {
	Type     string         `json:"type"`
	Function openAIFunction `json:"function"`
}

type openAIFunction struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Parameters  json.RawMessage `json:"parameters"`
}

// anthropicTool is a tool as Anthropic's messages take it.
type anthropicTool struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	InputSchema json.RawMessage `json:"input_schema"`
}

// mcpTool is a tool as MCP's tools/list returns it.
type mcpTool struct {
	Name        string                `json:"name"`
	Description string                `json:"description"`
	InputSchema json.RawMessage       `json:"inputSchema"`
	Annotations *registry.Annotations `json:"annotations,omitempty"`
}

// formatted lists the tools that may be called, one row for each name, in order of name. A model knows tools by name
// alone, so of several definitions the newest session's is shown.
func (h *handler) formatted(ctx context.Context, tq toolQuery, from cursor, format string) (page, error) {
	specs, err := h.distinct(ctx, tq)
	if err != nil {
		return page{}, err
	}
	maps.DeleteFunc(specs, func(name string, t registry.ToolSpec) bool {
		return !tq.matches(t) || !h.Policy.MayCall(name)
	})
	names := slices.Sorted(maps.Keys(specs))
	shown := func(name string) string { return name }
	if format != formatMCP {
		safe := modelNames(names)
		shown = func(name string) string { return safe[name] }
	}
	answer, rows := page{}, []any{}
	for i, name := range names {
		if name <= from.Name {
			continue
		}
		if len(rows) == tq.limit {
			answer.NextCursor = cursor{Kind: cursorNames, Name: names[i-1]}.String()
			break
		}
		if shown(name) != name {
			if answer.Names == nil {
				answer.Names = make(map[string]string)
			}
			answer.Names[shown(name)] = name
		}
		rows = append(rows, formatTool(specs[name], shown(name), format))
	}
	answer.Tools = rows
	return answer, nil
}

func formatTool(t registry.ToolSpec, name, format string) any {
	switch format {
	case formatOpenAI:
		return openAITool{Type: "function", Function: openAIFunction{name, t.Description, t.Parameters}}
	case formatAnthropic:
		return anthropicTool{name, t.Description, t.Parameters}
	default:
		return mcpTool{name, t.Description, t.Parameters, t.Annotations}
	}
}

// distinct returns the newest definition of every tool of the sessions the filters select, by name.
func (h *handler) distinct(ctx context.Context, tq toolQuery) (map[string]registry.ToolSpec, error) {
	if tq.target.IsZero() {
		return h.distinctOfAll(ctx, tq)
	}
	specs := make(map[string]registry.ToolSpec)
	q := tq.sessions()
	q.Newest = true
	return specs, h.fold(ctx, q, func(e registry.Entry) {
		for _, t := range e.Tools {
			if _, ok := specs[t.Name]; !ok && (tq.name == "" || t.Name == tq.name) {
				specs[t.Name] = t
			}
		}
	})
}

// distinctOfAll does the same without reading the whole fleet: only where definitions differ it asks which is newest.
func (h *handler) distinctOfAll(ctx context.Context, tq toolQuery) (map[string]registry.ToolSpec, error) {
	specs, differ := make(map[string]registry.ToolSpec), make(map[string]bool)
	q := registry.GroupQuery{Tenant: tq.tenant, Name: tq.name, Limit: maxLimit}
	for pages := 0; ; pages++ {
		if pages == maxPages {
			return nil, registry.Errorf(registry.CodeInvalidRequest,
				"There are more different tools than one answer can be made from. Add filters.")
		}
		groups, next, err := h.Directory.Groups(ctx, q)
		if err != nil {
			return nil, err
		}
		for _, g := range groups {
			if _, ok := specs[g.Spec.Name]; ok {
				differ[g.Spec.Name] = true
			}
			specs[g.Spec.Name] = g.Spec
		}
		if next == "" {
			break
		}
		q.After = next
	}
	for name := range differ {
		t, ok, err := h.newest(ctx, tq.tenant, name)
		if err != nil {
			return nil, err
		}
		if ok { // otherwise its last session has just gone, and any definition is as good
			specs[name] = t
		}
	}
	return specs, nil
}

// newest returns the tool of that name as the session that connected last defines it.
func (h *handler) newest(ctx context.Context, tenant, name string) (found registry.ToolSpec, ok bool, err error) {
	q := registry.Query{Tenant: tenant, Tool: name, Limit: 1, Newest: true}
	_, err = h.walk(ctx, q, func(e registry.Entry) {
		for _, t := range e.Tools {
			if t.Name == name && !ok {
				found, ok = t, true
			}
		}
	})
	return found, ok, err
}

// modelNames gives every name one that models accept: letters, digits, _ and -. Dots become underscores; where that
// name is taken, a part of a hash of the original tells the two apart. No two names come out equal.
func modelNames(names []string) map[string]string {
	shown, taken := make(map[string]string, len(names)), make(map[string]bool, len(names))
	for _, name := range names {
		if !strings.Contains(name, ".") {
			shown[name], taken[name] = name, true
		}
	}
	for _, name := range names {
		if shown[name] != "" {
			continue
		}
		plain := strings.ReplaceAll(name, ".", "_")
		safe := plain
		for try := int64(0); taken[safe]; try++ { // ends: every try is another name
			sum := sha256.Sum256([]byte(name + " " + itoa(try)))
			safe = plain[:min(len(plain), maxModelName-9)] + "_" + hex.EncodeToString(sum[:4])
		}
		shown[name], taken[safe] = safe, true
	}
	return shown
}
