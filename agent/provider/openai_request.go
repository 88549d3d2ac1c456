package provider

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// reasoningFields are the names of the fields in which servers send reasoning, in order of preference.
var reasoningFields = [...]string{"reasoning_content", "reasoning"}

// body translates a request.
func (m *OpenAI) body(r Request) ([]byte, error) {
	b := openAIBody{
		Model: m.cfg.Name, Stream: true, StreamOptions: openAIStreaming{IncludeUsage: true},
		Temperature: r.Temperature, Stop: r.Stop,
	}
	if r.System != "" {
		b.Messages = append(b.Messages, openAIMessage{Role: RoleSystem, Content: &r.System})
	}
	if err := m.addMessages(&b, r.Messages); err != nil {
		return nil, err
	}
	for _, t := range r.Tools {
		schema, err := schemaOf(t)
		if err != nil {
			return nil, err
		}
		f := openAIFunction{Name: t.Name, Description: t.Description, Parameters: schema, Strict: t.Strict}
		b.Tools = append(b.Tools, openAITool{Type: "function", Function: f})
	}
	if r.MaxTokens == 0 {
		r.MaxTokens = m.cfg.MaxTokens
	}
	if m.newLimit {
		b.MaxCompletion = r.MaxTokens
	} else {
		b.MaxTokens = r.MaxTokens
	}
	b.addOptions(r)
	return json.Marshal(b)
}

// addOptions adds the caller's options. Chat completions define all of them. A server that does not know a field must
// report that itself.
func (b *openAIBody) addOptions(r Request) {
	o := r.Options
	b.TopP, b.Presence, b.Frequency, b.Seed = o.TopP, o.PresencePenalty, o.FrequencyPenalty, o.Seed
	b.LogitBias, b.Metadata = o.LogitBias, o.Metadata
	b.Effort, b.Verbosity, b.ServiceTier = o.Effort, o.Verbosity, o.ServiceTier
	b.User, b.SafetyID, b.CacheKey = o.User, o.SafetyIdentifier, o.CacheKey
	switch f := o.Format; {
	case f == nil:
	case f.Schema == nil:
		b.Format = &openAIFormat{Type: "json_object"}
	default:
		schema := openAIJSONSchema{Name: f.Name, Description: f.Description, Schema: f.Schema, Strict: f.Strict}
		b.Format = &openAIFormat{Type: "json_schema", Schema: &schema}
	}
	if len(r.Tools) == 0 { // the server rejects tool options without tools
		return
	}
	b.Parallel = o.Parallel
	switch r.Choice.Mode {
	case ChoiceTool:
		b.ToolChoice = openAITool{Type: "function", Function: openAIFunction{Name: r.Choice.Name}}
	case ChoiceRequired, ChoiceNone:
		b.ToolChoice = r.Choice.Mode
	}
}

func (m *OpenAI) addMessages(b *openAIBody, messages []Message) error {
	turn := 1 + lastUser(messages)
	var pictures []openAIPart // of results; they follow the last result
	for i, msg := range messages {
		if msg.Role != RoleTool && len(pictures) > 0 {
			b.Messages = append(b.Messages, openAIMessage{Role: RoleUser, Content: pictures})
			pictures = nil
		}
		switch msg.Role {
		case RoleUser:
			b.Messages = append(b.Messages, openAIMessage{Role: RoleUser, Content: openAIContent(msg)})
		case RoleTool:
			result := openAIMessage{Role: RoleTool, Content: &msg.Content, ToolCallID: &msg.ToolCallID}
			if len(msg.Pictures) > 0 && !m.images {
				msg.Content += "\n" + noteUnseen
			} else {
				pictures = append(pictures, openAIPictures(msg)...)
			}
			b.Messages = append(b.Messages, result)
		case RoleAssistant:
			if msg.Content != "" || len(msg.ToolCalls) > 0 { // otherwise an interrupted answer without text
				b.Messages = append(b.Messages, m.assistant(msg, i >= turn))
			}
		default:
			return fmt.Errorf("a message of the role %q", msg.Role)
		}
	}
	if len(pictures) > 0 {
		b.Messages = append(b.Messages, openAIMessage{Role: RoleUser, Content: pictures})
	}
	return nil
}

// openAIPictures translates the images of a result. Results in chat completions have text only. So the images follow in
// a user message, which says where they come from.
func openAIPictures(result Message) []openAIPart {
	if len(result.Pictures) == 0 {
		return nil
	}
	note := fmt.Sprintf(notePictures, result.ToolCallID)
	parts := []openAIPart{{Type: "text", Text: &note}}
	for _, p := range result.Pictures {
		image := &Image{URL: "data:" + p.MIMEType + ";base64," + p.base64()}
		parts = append(parts, openAIPart{Type: "image_url", Image: image})
	}
	return parts
}

// lastUser returns the index of the user's last message, or -1 if there is none.
func lastUser(messages []Message) int {
	for i, m := range slices.Backward(messages) {
		if m.Role == RoleUser {
			return i
		}
	}
	return -1
}

// openAIContent translates the content of a user's message.
func openAIContent(m Message) any {
	if len(m.Parts) == 0 {
		return &m.Content
	}
	parts := make([]openAIPart, len(m.Parts))
	for i, p := range m.Parts {
		if p.Image != nil {
			parts[i] = openAIPart{Type: "image_url", Image: p.Image}
		} else {
			parts[i] = openAIPart{Type: "text", Text: &p.Text}
		}
	}
	return parts
}

// assistant translates a model's message. Reasoning is sent back only within its turn: DeepSeek rejects a result whose
// call has no reasoning, and wants no reasoning of earlier turns. OpenAI has no such field.
func (m *OpenAI) assistant(msg Message, current bool) openAIMessage {
	out := openAIMessage{Role: RoleAssistant}
	if msg.Content != "" {
		out.Content = &msg.Content
	}
	for _, c := range msg.ToolCalls {
		out.ToolCalls = append(out.ToolCalls, openAIToolCall{
			ID: c.ID, Type: "function",
			Function: openAICallFunction{Name: cleanName(c.Name), Arguments: string(objectArgs(c.Args))},
		})
	}
	if current && !m.official {
		switch field, text := reasoningOf(msg.Thinking); field {
		case reasoningFields[0]:
			out.ReasoningContent = text
		case reasoningFields[1]:
			out.Reasoning = text
		}
	}
	return out
}

// reasoningOf returns the reasoning from a server of this kind, and the name of its field.
func reasoningOf(thoughts []Thought) (field, text string) {
	var all strings.Builder
	for _, t := range thoughts {
		if isReasoning(t) {
			field = t.Signature
			all.WriteString(t.Text)
		}
	}
	return field, all.String()
}

// isReasoning reports whether a thought is reasoning of chat completions, not a signed thought of a vendor.
func isReasoning(t Thought) bool { return slices.Contains(reasoningFields[:], t.Signature) }

// refusedAtTop are the keywords that the vendors reject at the top of a schema.
var refusedAtTop = [...]string{"oneOf", "anyOf", "allOf", "not", "enum"}

// member is one member of a JSON object.
type member struct {
	name  string
	value json.RawMessage
}

// objectSchema converts a valid JSON text to a schema that the vendors accept: of the type object, without the keywords
// that they reject at the top. The description lists the removed rules for the model. The gateway checks the arguments
// against the original schema. Order and unchanged parts stay as written.
func objectSchema(schema json.RawMessage) json.RawMessage {
	members, ok := membersOf(schema)
	if !ok { // true and false are also schemas
		return json.RawMessage(emptySchema)
	}
	kept, typed, changed := []member(nil), false, false
	var rules []string
	for _, m := range members {
		switch {
		case m.name == "type":
			if typed = string(m.value) == `"object"`; !typed { // ["object","null"], for example
				changed = true
				continue
			}
		case slices.Contains(refusedAtTop[:], m.name):
			rules, changed = append(rules, `"`+m.name+`":`+string(m.value)), true
			continue
		}
		kept = append(kept, m)
	}
	if !typed {
		kept, changed = append([]member{{"type", json.RawMessage(`"object"`)}}, kept...), true
	}
	if !changed {
		return schema
	}
	return joined(described(kept, rules))
}

// described appends rules to the description of a schema.
func described(members []member, rules []string) []member {
	if len(rules) == 0 {
		return members
	}
	text := "The arguments must also satisfy this JSON Schema: {" + strings.Join(rules, ",") + "}"
	i := slices.IndexFunc(members, func(m member) bool { return m.name == "description" })
	if i < 0 {
		return append(members, member{"description", quoted(text)})
	}
	var before string
	if json.Unmarshal(members[i].value, &before) == nil && before != "" {
		text = before + " " + text
	}
	members[i].value = quoted(text)
	return members
}

// membersOf returns the members of a JSON object in order. Of members with the same name it returns the last one. It
// returns false if text is no object.
func membersOf(text json.RawMessage) ([]member, bool) {
	d := json.NewDecoder(bytes.NewReader(text))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return nil, false
	}
	var members []member
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return nil, false
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, false
		}
		m := member{name.(string), value} // in an object, every other token is a name
		members = append(slices.DeleteFunc(members, func(old member) bool { return old.name == m.name }), m)
	}
	return members, true
}

func joined(members []member) json.RawMessage {
	out := []byte{'{'}
	for i, m := range members {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(append(append(out, quoted(m.name)...), ':'), m.value...)
	}
	return append(out, '}')
}

// quoted returns a text as a JSON string.
func quoted(text string) json.RawMessage {
	b, _ := json.Marshal(text) // cannot fail
	return b
}
