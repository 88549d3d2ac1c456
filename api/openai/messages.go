package openai

import (
	"encoding/json"
	"strings"

	"github.com/farhand/farhand/agent/provider"
)

// readMessages reads the conversation. The messages of the system and of developers become the system prompt, wherever
// they stand.
func (r *request) readMessages(f fields) error {
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
		m, err := readMessage(text, at)
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

func readMessage(text json.RawMessage, at string) (m provider.Message, err error) {
	f, err := readFields(text, at)
	if err != nil {
		return m, err
	}
	role, err := f.str("role", at+".role")
	if err != nil {
		return m, err
	}
	if m.Content, m.Parts, err = readContent(f["content"], at+".content", role == "user"); err != nil {
		return m, err
	}
	_, said := f["content"]
	switch m.Role = provider.Role(role); role {
	case "system", "developer":
		m.Role = provider.RoleSystem
	case "user":
	case "assistant":
		if m.ToolCalls, err = readToolCalls(f, at); err != nil {
			return m, err
		}
		if refusal, err := f.str("refusal", at+".refusal"); err != nil {
			return m, err
		} else if m.Content == "" && refusal != "" { // clients send a refusal back like this
			m.Content, said = refusal, true
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

// readContent reads the content of a message: one string, or parts. It returns the parts only if an image is among
// them, which is an error unless images is true.
func readContent(text json.RawMessage, at string, images bool) (string, []provider.Part, error) {
	if len(text) == 0 {
		return "", nil, nil
	}
	var whole string
	if json.Unmarshal(text, &whole) == nil {
		return whole, nil, nil
	}
	var list []json.RawMessage
	if json.Unmarshal(text, &list) != nil {
		return "", nil, badParam(at, "%s must be a string or an array of parts.", named(at))
	}
	var b strings.Builder
	parts, shown := make([]provider.Part, len(list)), false
	for i, one := range list {
		var err error
		if parts[i], err = readPart(one, index(at, i), images); err != nil {
			return "", nil, err
		}
		shown = shown || parts[i].Image != nil
		b.WriteString(parts[i].Text)
	}
	if !shown {
		parts = nil
	}
	return b.String(), parts, nil
}

func readPart(text json.RawMessage, at string, images bool) (p provider.Part, err error) {
	f, err := readFields(text, at)
	if err != nil {
		return p, err
	}
	kind, err := f.str("type", at+".type")
	switch {
	case err == nil && kind == "text":
		p.Text, err = f.str("text", at+".text")
		return p, err
	case err == nil && kind == "refusal" && !images:
		p.Text, err = f.str("refusal", at+".refusal")
		return p, err
	case err == nil && kind == "image_url" && images:
		p.Image, err = readImage(f["image_url"], at+".image_url")
		return p, err
	case err == nil && kind == "image_url":
		return p, badParam(at+".type", "Images are read in messages of the role \"user\".")
	default:
		return p, badParam(at+".type", "Only parts of the types \"text\" and \"image_url\" are read.")
	}
}

func readImage(text json.RawMessage, at string) (*provider.Image, error) {
	f, err := readFields(text, at)
	if err != nil {
		return nil, err
	}
	var image provider.Image
	if image.URL, err = f.str("url", at+".url"); err != nil {
		return nil, err
	}
	lower := strings.ToLower(image.URL[:min(len(image.URL), 11)])
	if !strings.HasPrefix(lower, "https://") && !strings.HasPrefix(lower, "http://") && lower != "data:image/" {
		return nil, badParam(at+".url", "The address of an image must begin with https:, http: or data:image/.")
	}
	image.Detail, err = f.str("detail", at+".detail")
	return &image, err
}

// readToolCalls reads the calls that an assistant asked for.
func readToolCalls(f fields, at string) ([]provider.ToolCall, error) {
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

// follow checks that a message may come next: models refuse calls without results and results without calls. It fills
// in the name of a result's tool.
func (o openCalls) follow(m *provider.Message, at string) error {
	if m.Role == provider.RoleTool {
		name, ok := o[m.ToolCallID]
		if !ok {
			return badParam(at+".tool_call_id",
				"A message of the role \"tool\" must answer a call of the assistant's message before it.")
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
		return badParam(at,
			"Each call of an assistant must be followed by a message of the role \"tool\" with its result.")
	}
	return nil
}
