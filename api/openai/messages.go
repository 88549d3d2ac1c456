package openai

import (
	"encoding/json"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/farhand/farhand/agent/provider"
)

// readMessages reads the conversation. Messages of the roles system and developer become the system prompt, wherever
// they are.
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
		f.fail("messages", "The field \"messages\" has no message to answer.")
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

// readContent reads the content of a message: a string, or parts. It returns the parts only if they include an image,
// which is an error unless images is true.
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
		f.fail("type", "Images are supported only in messages of the role \"user\".")
	default:
		f.fail("type", "Only parts of the types \"text\" and \"image_url\" are supported.")
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

// openCalls holds the calls of the last assistant message that have no result yet: names by id.
type openCalls map[string]string

// follow checks that a message may come next: models reject calls without results and results without calls. It sets
// the tool name of a result.
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

func (o openCalls) settled(f fields, name string) {
	if len(o) > 0 {
		f.fail(name, "Each call of an assistant must be followed by a message of the role \"tool\" with its result.")
	}
}

// fields holds the members of a JSON object of a request. Not all of them need to be read. Names match exactly. A null
// field counts as absent, because clients send null for defaults.
//
// The first invalid value becomes the error of the request. Later reads return zero or wrong values, so the error needs
// to be checked only at the end.
type fields struct {
	at      string // path of the object; empty: the body
	members map[string]json.RawMessage
	failed  *error // the first error of the request
}

// readFields splits an object of a body that was checked. at is its path.
func readFields(text []byte, at string, failed *error) fields {
	f := fields{at: at, failed: failed}
	if err := json.Unmarshal(text, &f.members); err != nil || f.members == nil {
		f.fail("", "%s must be a JSON object.", named(at))
	}
	maps.DeleteFunc(f.members, func(_ string, value json.RawMessage) bool { return string(value) == "null" })
	return f
}

// path returns the path of a field, or of the object if name is empty.
func (f fields) path(name string) string {
	if f.at == "" || name == "" {
		return f.at + name
	}
	return f.at + "." + name
}

// named returns the name of the value at a path, for messages.
func named(at string) string {
	if at == "" {
		return "The body"
	}
	return "The field " + strconv.Quote(at)
}

// fail records that a field is invalid, or the object if name is empty. Only the first error counts.
func (f fields) fail(name, format string, args ...any) {
	if *f.failed == nil {
		*f.failed = badParam(f.path(name), format, args...)
	}
}

// decode reads a field into to, if it is present. what describes the expected value in the error.
func (f fields) decode(name string, to any, what string) {
	if f.has(name) && json.Unmarshal(f.members[name], to) != nil {
		f.fail(name, "%s must be %s.", named(f.path(name)), what)
	}
}

func (f fields) has(name string) bool { return f.members[name] != nil }

// str returns a string, or "" if it is absent.
func (f fields) str(name string) (s string) {
	f.decode(name, &s, "a string")
	return s
}

// kind returns the field "type", or "" if it is absent or not a string.
func (f fields) kind() (kind string) {
	if json.Unmarshal(f.members["type"], &kind) != nil {
		return ""
	}
	return kind
}

// flag returns a boolean, or nil if it is absent.
func (f fields) flag(name string) (on *bool) {
	f.decode(name, &on, "true or false")
	return on
}

// number returns a number from least to most, or nil if it is absent.
func (f fields) number(name string, least, most float64) *float64 {
	text, ok := f.members[name]
	if !ok {
		return nil
	}
	var n float64
	if json.Unmarshal(text, &n) != nil || n < least || n > most {
		f.fail(name, "%s must be a number from %v to %v.", named(f.path(name)), least, most)
	}
	return &n
}

// count returns a whole number above zero, or zero if it is absent.
func (f fields) count(name string) int {
	text, ok := f.members[name]
	if !ok {
		return 0
	}
	n, err := strconv.ParseInt(string(text), 10, 32)
	if err != nil || n < 1 {
		f.fail(name, "%s must be a whole number above zero.", named(f.path(name)))
	}
	return int(n)
}

// object returns the fields of a field that must be an object.
func (f fields) object(name string) fields {
	return readFields(f.members[name], f.path(name), f.failed)
}

// list returns the elements of an array, or none if it is absent. what describes the expected value in the error.
func (f fields) list(name, what string) (all []json.RawMessage) {
	f.decode(name, &all, what)
	return all
}

// objects returns the fields of each element of a list, until the first error of the request.
func (f fields) objects(name string, list []json.RawMessage) iter.Seq[fields] {
	return func(yield func(fields) bool) {
		for i, text := range list {
			element := readFields(text, f.path(name)+"["+strconv.Itoa(i)+"]", f.failed)
			if *f.failed != nil || !yield(element) {
				return
			}
		}
	}
}

func (f fields) only(known ...string) {
	for _, name := range slices.Sorted(maps.Keys(f.members)) {
		if !slices.Contains(known, name) {
			f.fail(name, "The field %.120q is not supported.", f.path(name))
		}
	}
}
