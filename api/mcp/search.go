package mcp

import (
	"context"
	"strconv"
	"strings"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/mcpcontent"
	"github.com/farhand/farhand/internal/strictjson"
	"github.com/farhand/farhand/registry"
)

// The two tools of a scope with Search, for fleets with too many tools to show a model.
const (
	toolSearch = "search_tools"
	toolCall   = "call_tool"
)

const searchList = `"tools":[{"name":"` + toolCall + `","title":"Call a tool",` +
	`"description":"Calls a tool that ` + toolSearch + ` has found, by the name and the session it was found with.",` +
	`"inputSchema":{"type":"object","properties":{` +
	`"name":{"type":"string","description":"The tool's name."},` +
	`"session":{"type":"string","description":"The session that offers it. Leave it out for a tool without one."},` +
	`"arguments":{"type":"object","description":"As the tool's inputSchema requires."}},` +
	`"required":["name"],"additionalProperties":false}},` +
	`{"name":"` + toolSearch + `","title":"Search for tools",` +
	`"description":"Finds tools of connected devices whose name or description contains a text, with their schemas.",` +
	`"inputSchema":{"type":"object","properties":{` +
	`"query":{"type":"string","description":"A part of the name or of the description. Empty: every tool."},` +
	`"limit":{"type":"integer","minimum":1,"maximum":100,"description":"How many to return; 20 if left out."},` +
	`"cursor":{"type":"string","description":"nextCursor of the previous page."}},"additionalProperties":false},` +
	`"annotations":{"readOnlyHint":true,"openWorldHint":false}}]`

const (
	searchLimit = 100
	searchUsual = 20
)

func (s *Server) callSearch(ctx context.Context, r *request, name string, args registry.JSON) (result, error) {
	members, err := membersOf(args)
	if err != nil {
		return result{}, err
	}
	switch name {
	case toolSearch:
		return s.searchTools(ctx, r, members)
	case toolCall:
		return s.callFound(ctx, r, members)
	default:
		return result{}, registry.Errorf(registry.CodeToolNotFound,
			"There is no tool %.80q here. Find it with %s, and call it with %s.", name, toolSearch, toolCall)
	}
}

// callFound calls a tool by the name and the session that searchTools returned. Policy and audit use the tool's own
// name.
func (s *Server) callFound(ctx context.Context, r *request, members fields) (result, error) {
	tool, _ := members.text("name")
	if !registry.ValidToolName(tool) {
		return badArgument("name", "must be the name of a tool"), nil
	}
	at := r.Scope.target("")
	if r.Scope.Session == "" && members.get("session").IsZero() {
		at = r.withoutSession(at)
	}
	if v := members.get("session"); !v.IsZero() {
		id, ok := members.text("session")
		if !ok || at.SessionID != "" && at.SessionID != id {
			return badArgument("session", "must be the session that the tool was found with"), nil
		}
		at.SessionID = id
	}
	args := members.get("arguments")
	if !args.IsZero() && !args.IsObject() {
		return badArgument("arguments", "must be an object"), nil
	}
	return s.call(ctx, r, agent.Request{Tool: tool, Target: at, Args: args})
}

// badArgument returns the error for a model that sent an invalid argument to one of the two tools.
func badArgument(name, must string) result {
	return result{members: invalidContent(&registry.Error{
		Message: "The arguments are invalid.", Violations: []registry.Violation{{Pointer: "/" + name, Message: must}},
	})}
}

func (s *Server) searchTools(ctx context.Context, r *request, members fields) (result, error) {
	if err := r.Out.ReservePage(ctx); err != nil {
		return result{}, err
	}
	query, _ := members.text("query")
	limit := searchUsual
	if v := members.get("limit"); !v.IsZero() {
		n, err := strconv.Atoi(v.String())
		if err != nil || n < 1 || n > searchLimit {
			return badArgument("limit", "must be a whole number from 1 to "+strconv.Itoa(searchLimit)), nil
		}
		limit = n
	}
	var after cursor
	if word, ok := members.text("cursor"); ok && word != "" {
		var err error
		if after, err = parseCursor(word); err != nil {
			return badArgument("cursor", "must be nextCursor of the previous page"), nil
		}
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	p := &toolPage{
		Server: s, request: r, last: after, named: make(map[string]int), query: strings.ToLower(query), limit: limit,
	}
	next, err := p.fill(ctx, after)
	if err != nil {
		return result{}, err
	}
	found := append(append([]byte{'{'}, p.encode(next, appendFound)...), '}')
	b := append(mcpcontent.AppendText([]byte(`"content":[`), string(found)), `],"structuredContent":`...)
	return result{members: append(b, found...)}, nil
}

func appendFound(b []byte, row *toolRow) []byte {
	b = strictjson.AppendString(append(b, `"name":`...), row.spec.Name)
	if row.at != nil {
		b = strictjson.AppendString(append(b, `,"session":`...), row.at.Key.Session)
		b = strictjson.AppendString(append(b, `,"device":`...), deviceName(row.at))
	}
	return strictjson.AppendString(append(b, `,"description":`...), row.spec.Description)
}

func (p *toolPage) matches(t registry.ToolSpec) bool {
	return p.query == "" || strings.Contains(strings.ToLower(t.Name), p.query) ||
		strings.Contains(strings.ToLower(t.Description), p.query)
}
