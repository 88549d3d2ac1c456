package api

import (
	"encoding/json"
	"strings"

	"github.com/farhand/farhand/agent/provider"
)

// readMessages reads the conversation. What the system or a developer says, wherever it stands, goes before all else.
func (r *completionRequest) readMessages(f fields) error {
	all, err := f.list("messages", "messages")
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return badParam("messages", "The field \"messages\" must have at least one message.")
	}
	var system []string
	open := openCalls{}
	for i, text := range all {
		at := index("messages", i)
		m, err := readCompletionMessage(text, at)
		if err != nil {
			return err
		}
		if m.Role == provider.RoleSystem {
			system = append(system, m.Content)
			continue
		}
		if err := open.follow(&m, at); err != nil {
			return err
		}
		r.completion.Messages = append(r.completion.Messages, m)
	}
	if err := open.settled("messages"); err != nil {
		return err
	}
	if len(r.completion.Messages) == 0 && len(system) == 0 {
		return badParam("messages", "The field \"messages\" has nothing to answer.")
	}
	r.completion.System = strings.Join(system, "\n\n")
	return nil
}

func readCompletionMessage(text json.RawMessage, at string) (m provider.Message, err error) {
	f, err := readFields(text, at)
	if err != nil {
		return m, err
	}
	role, err := f.str("role", at+".role")
	if err != nil {
		return m, err
	}
	if m.Content, err = readContent(f["content"], at+".content"); err != nil {
		return m, err
	}
	_, said := f["content"]
	switch m.Role = provider.Role(role); role {
	case "system", "developer":
		m.Role = provider.RoleSystem
	case "user":
	case "assistant":
		if m.ToolCalls, err = readAskedCalls(f, at); err != nil {
			return m, err
		}
		said = said || len(m.ToolCalls) > 0
	case "tool":
		if m.ToolCallID, err = f.str("tool_call_id", at+".tool_call_id"); err != nil {
			return m, err
		}
	default:
		return m, badParam(at+".role", "The role of a message must be system, developer, user, assistant or tool.")
	}
	if !said {
		return m, badParam(at+".content", "%s is missing.", named(at+".content"))
	}
	return m, nil
}

// readContent reads text, written as one string or as parts.
func readContent(text json.RawMessage, at string) (string, error) {
	if len(text) == 0 {
		return "", nil
	}
	var whole string
	if json.Unmarshal(text, &whole) == nil {
		return whole, nil
	}
	var parts []json.RawMessage
	if json.Unmarshal(text, &parts) != nil {
		return "", badParam(at, "%s must be a string or an array of parts.", named(at))
	}
	var b strings.Builder
	for i, part := range parts {
		at := index(at, i)
		f, err := readFields(part, at)
		if err != nil {
			return "", err
		}
		if kind, err := f.str("type", at+".type"); err != nil || kind != "text" {
			return "", badParam(at+".type", "Only parts of the type \"text\" are read.")
		}
		s, err := f.str("text", at+".text")
		if err != nil {
			return "", err
		}
		b.WriteString(s)
	}
	return b.String(), nil
}

// readAskedCalls reads the calls an assistant asked for.
func readAskedCalls(f fields, at string) ([]provider.ToolCall, error) {
	all, err := f.list("tool_calls", at+".tool_calls")
	if err != nil {
		return nil, err
	}
	var calls []provider.ToolCall
	for i, text := range all {
		at := index(at+".tool_calls", i)
		outer, err := readFields(text, at)
		if err != nil {
			return nil, err
		}
		var call provider.ToolCall
		if call.ID, err = outer.str("id", at+".id"); err != nil {
			return nil, err
		}
		inner, err := readFields(outer["function"], at+".function")
		if err != nil {
			return nil, err
		}
		if call.Name, err = inner.str("name", at+".function.name"); err != nil {
			return nil, err
		}
		if call.Args, err = inner.str("arguments", at+".function.arguments"); err != nil {
			return nil, err
		}
		if call.ID == "" || call.Name == "" {
			return nil, badParam(at, "A call needs an id and the name of its function.")
		}
		calls = append(calls, call)
	}
	return calls, nil
}

// openCalls are the calls of the last assistant message that have no result yet, by id.
type openCalls map[string]string

// follow checks that a message may come next: models refuse calls without results and results without calls. It tells
// a result the name of its tool.
func (o openCalls) follow(m *provider.Message, at string) error {
	if m.Role == provider.RoleTool {
		name, ok := o[m.ToolCallID]
		if !ok {
			return badParam(at+".tool_call_id", "A message of the role \"tool\" must answer a call of the assistant's message before it.")
		}
		m.ToolName = name
		delete(o, m.ToolCallID)
		return nil
	}
	if err := o.settled(at); err != nil {
		return err
	}
	for _, call := range m.ToolCalls {
		if _, twice := o[call.ID]; twice {
			return badParam(at+".tool_calls", "Two calls have the id %.80q.", call.ID)
		}
		o[call.ID] = call.Name
	}
	return nil
}

func (o openCalls) settled(at string) error {
	if len(o) > 0 {
		return badParam(at, "Each call of an assistant must be followed by a message of the role \"tool\" with its result.")
	}
	return nil
}
