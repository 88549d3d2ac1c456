package openai

import (
	"encoding/json"
	"strings"

	"github.com/farhand/farhand/agent/provider"
)

// readMessages reads the conversation. The messages of the system and of developers become the system prompt, wherever
// they stand.
func (r *Request) readMessages(f fields) {
	all := f.list("messages", "an array")
	if len(all) == 0 {
		f.fail("messages", "The field \"messages\" must have at least one message.")
	}
	var system []string
	open := openCalls{}
	for one := range f.objects("messages", all) {
		m := readMessage(one)
		if m.Role == provider.RoleSystem {
			system = append(system, m.Content)
			continue
		}
		open.follow(&m, one)
		r.completion.Messages = append(r.completion.Messages, m)
	}
	open.settled(f, "messages")
	if len(r.completion.Messages) == 0 && len(system) == 0 {
		f.fail("messages", "The field \"messages\" has nothing to answer.")
	}
	r.completion.System = strings.Join(system, "\n\n")
}

func readMessage(f fields) (m provider.Message) {
	role := f.str("role")
	m.Role = provider.Role(role)
	m.Content, m.Parts = readContent(f, role == "user")
	said := f.has("content")
	switch role {
	case "system", "developer":
		m.Role = provider.RoleSystem
	case "user":
	case "assistant":
		m.ToolCalls = readToolCalls(f)
		if refusal := f.str("refusal"); m.Content == "" && refusal != "" { // clients send a refusal back like this
			m.Content, said = refusal, true
		}
		said = said || len(m.ToolCalls) > 0
	case "tool":
		m.ToolCallID = f.str("tool_call_id")
	default:
		f.fail("role", "The role of a message must be system, developer, user, assistant or tool.")
	}
	if !said {
		f.fail("content", "%s is missing.", named(f.path("content")))
	}
	return m
}

// readContent reads the content of a message: one string, or parts. It returns the parts only if an image is among
// them, which is an error unless images is true.
func readContent(f fields, images bool) (string, []provider.Part) {
	var whole string
	text := f.members["content"]
	if len(text) == 0 || json.Unmarshal(text, &whole) == nil {
		return whole, nil
	}
	var b strings.Builder
	var parts []provider.Part
	shown := false
	for one := range f.objects("content", f.list("content", "a string or an array of parts")) {
		p := readPart(one, images)
		parts, shown = append(parts, p), shown || p.Image != nil
		b.WriteString(p.Text)
	}
	if !shown {
		parts = nil
	}
	return b.String(), parts
}

func readPart(f fields, images bool) (p provider.Part) {
	switch kind := f.kind(); {
	case kind == "text":
		p.Text = f.str("text")
	case kind == "refusal" && !images:
		p.Text = f.str("refusal")
	case kind == "image_url" && images:
		p.Image = readImage(f.object("image_url"))
	case kind == "image_url":
		f.fail("type", "Images are read in messages of the role \"user\".")
	default:
		f.fail("type", "Only parts of the types \"text\" and \"image_url\" are read.")
	}
	return p
}

func readImage(f fields) *provider.Image {
	image := provider.Image{URL: f.str("url")}
	lower := strings.ToLower(image.URL[:min(len(image.URL), 11)])
	if !strings.HasPrefix(lower, "https://") && !strings.HasPrefix(lower, "http://") && lower != "data:image/" {
		f.fail("url", "The address of an image must begin with https:, http: or data:image/.")
	}
	image.Detail = f.str("detail")
	return &image
}

// readToolCalls reads the calls that an assistant asked for.
func readToolCalls(f fields) (calls []provider.ToolCall) {
	for one := range f.objects("tool_calls", f.list("tool_calls", "an array")) {
		call := provider.ToolCall{ID: one.str("id")}
		function := one.object("function")
		call.Name, call.Args = function.str("name"), function.str("arguments")
		if call.ID == "" || call.Name == "" {
			one.fail("", "A call needs an id and the name of its function.")
		}
		calls = append(calls, call)
	}
	return calls
}

// openCalls are the calls of the last assistant message that have no result yet, by id.
type openCalls map[string]string

// follow checks that a message may come next: models refuse calls without results and results without calls. It fills
// in the name of a result's tool.
func (o openCalls) follow(m *provider.Message, f fields) {
	if m.Role == provider.RoleTool {
		name, ok := o[m.ToolCallID]
		if !ok {
			f.fail("tool_call_id",
				"A message of the role \"tool\" must answer a call of the assistant's message before it.")
		}
		m.ToolName = name
		delete(o, m.ToolCallID)
		return
	}
	o.settled(f, "")
	for _, call := range m.ToolCalls {
		if _, twice := o[call.ID]; twice {
			f.fail("tool_calls", "Two calls have the id %.80q.", call.ID)
		}
		o[call.ID] = call.Name
	}
}

// settled fails if a call has no result yet.
func (o openCalls) settled(f fields, name string) {
	if len(o) > 0 {
		f.fail(name, "Each call of an assistant must be followed by a message of the role \"tool\" with its result.")
	}
}
