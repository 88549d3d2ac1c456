package provider

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/farhand/farhand/internal/strictjson"
)

// reasoningFields are the names of the fields in which servers send reasoning, in order of preference.
var reasoningFields = [...]string{"reasoning_content", "reasoning"}

func (m *OpenAI) body(r Request) ([]byte, error) {
	b := openAIBody{ // chat completions define all options; a server must report itself what it does not know
		Model: m.cfg.Name, Stream: true, StreamOptions: openAIStreaming{IncludeUsage: true},
		Temperature: r.Temperature, Stop: r.Stop, Options: r.Options,
	}
	if r.System != "" {
		b.Messages = append(b.Messages, openAIMessage{Role: RoleSystem, Content: &r.System})
	}
	if err := m.addMessages(&b, r.Messages); err != nil {
		return nil, err
	}
	for _, t := range r.Tools {
		var err error
		if t.Parameters, err = schemaOf(t); err != nil {
			return nil, err
		}
		b.Tools = append(b.Tools, openAITool{Type: "function", Function: t})
	}
	if m.newLimit {
		b.MaxCompletion = cmp.Or(r.MaxTokens, m.cfg.MaxTokens)
	} else {
		b.MaxTokens = cmp.Or(r.MaxTokens, m.cfg.MaxTokens)
	}
	if f := r.Options.Format; f != nil && f.Schema == nil {
		b.Format = &openAIFormat{Type: "json_object"}
	} else if f != nil {
		b.Format = &openAIFormat{Type: "json_schema", Schema: f}
	}
	switch {
	case len(r.Tools) == 0: // the server rejects options of tools
		b.Parallel = nil
	case r.Choice.Mode == ChoiceTool:
		b.ToolChoice = openAITool{Type: "function", Function: Tool{Name: r.Choice.Name}}
	case r.Choice.Mode == ChoiceRequired || r.Choice.Mode == ChoiceNone:
		b.ToolChoice = r.Choice.Mode
	}
	return json.Marshal(b)
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

// openAIPictures translates the images of a result, which follow in a user message: results have text only.
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

func lastUser(messages []Message) int {
	for i, m := range slices.Backward(messages) {
		if m.Role == RoleUser {
			return i
		}
	}
	return -1
}

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

// objectSchema converts a valid JSON text to a schema that the vendors accept: of the type object, without the keywords
// that they reject at the top. The description lists the removed rules for the model. The gateway checks the arguments
// against the original schema. Order and unchanged parts stay as written.
func objectSchema(schema json.RawMessage) json.RawMessage {
	members, err := strictjson.LenientMembers(schema, len(schema))
	if err != nil { // true and false are also schemas
		return json.RawMessage(emptySchema)
	}
	var kept []strictjson.Member
	var rules []string
	typed := false
	for _, m := range members {
		switch name := string(m.Name); {
		case slices.Contains(refusedAtTop[:], name):
			rules = append(rules, `"`+name+`":`+string(m.Value))
			continue
		case name == "type" && string(m.Value) != `"object"`: // ["object","null"], for example
			continue
		case name == "type":
			typed = true
		}
		kept = append(slices.DeleteFunc(kept, func(k strictjson.Member) bool { // of equal names the last counts
			return bytes.Equal(k.Name, m.Name)
		}), m)
	}
	if typed && len(kept) == len(members) {
		return schema
	}
	if !typed {
		kept = slices.Insert(kept, 0, strictjson.Member{Name: []byte("type"), Value: json.RawMessage(`"object"`)})
	}
	if len(rules) > 0 {
		kept = described(kept, "The arguments must also satisfy this JSON Schema: {"+strings.Join(rules, ",")+"}")
	}
	var out bytes.Buffer
	for i, m := range kept {
		separator := ","
		if i == 0 {
			separator = "{"
		}
		fmt.Fprintf(&out, "%s%s:%s", separator, quoted(string(m.Name)), m.Value)
	}
	out.WriteByte('}')
	return out.Bytes()
}

// described appends a text to the description of a schema.
func described(members []strictjson.Member, text string) []strictjson.Member {
	i := slices.IndexFunc(members, func(m strictjson.Member) bool { return string(m.Name) == "description" })
	if i < 0 {
		return append(members, strictjson.Member{Name: []byte("description"), Value: quoted(text)})
	}
	var before string
	if json.Unmarshal(members[i].Value, &before) == nil && before != "" {
		text = before + " " + text
	}
	members[i].Value = quoted(text)
	return members
}

func quoted(text string) json.RawMessage {
	b, _ := json.Marshal(text) // cannot fail
	return b
}
