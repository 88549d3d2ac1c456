package provider

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/shared"
)

// reasoningFields are the names under which servers send reasoning, in the order of preference.
var reasoningFields = [...]string{"reasoning_content", "reasoning"}

// params translates a request.
func (m *OpenAI) params(r Request) (openai.ChatCompletionNewParams, error) {
	p := openai.ChatCompletionNewParams{
		Model:         m.model,
		StreamOptions: openai.ChatCompletionStreamOptionsParam{IncludeUsage: openai.Bool(true)},
	}
	if r.System != "" {
		p.Messages = append(p.Messages, openai.SystemMessage(r.System))
	}
	if err := m.addMessages(&p, r.Messages); err != nil {
		return p, err
	}
	for _, t := range r.Tools {
		tool, err := openAITool(t)
		if err != nil {
			return p, err
		}
		p.Tools = append(p.Tools, tool)
	}
	if r.MaxTokens == 0 {
		r.MaxTokens = m.maxTokens
	}
	switch {
	case r.MaxTokens == 0:
	case m.newLimit:
		p.MaxCompletionTokens = openai.Int(int64(r.MaxTokens))
	default:
		p.MaxTokens = openai.Int(int64(r.MaxTokens))
	}
	if r.Temperature != nil {
		p.Temperature = openai.Float(*r.Temperature)
	}
	if len(r.Stop) > 0 {
		p.Stop = openai.ChatCompletionNewParamsStopUnion{OfStringArray: r.Stop}
	}
	addOptions(&p, r)
	return p, nil
}

func (m *OpenAI) addMessages(p *openai.ChatCompletionNewParams, messages []Message) error {
	turn := 1 + lastUser(messages)
	for i, msg := range messages {
		switch msg.Role {
		case RoleUser:
			p.Messages = append(p.Messages, openAIUser(msg))
		case RoleTool:
			p.Messages = append(p.Messages, openai.ToolMessage(msg.Content, msg.ToolCallID))
		case RoleAssistant:
			if msg.Content != "" || len(msg.ToolCalls) > 0 { // what was cut off before anything was said
				p.Messages = append(p.Messages, m.assistant(msg, i >= turn))
			}
		default:
			return fmt.Errorf("a message of the role %q", msg.Role)
		}
	}
	return nil
}

// lastUser returns where the last message of the user is; -1: there is none.
func lastUser(messages []Message) int {
	for i, m := range slices.Backward(messages) {
		if m.Role == RoleUser {
			return i
		}
	}
	return -1
}

// assistant translates what a model said. Its reasoning is sent back within the turn it belongs to: DeepSeek refuses a
// result whose call comes without it, and wants none of the turns before. OpenAI has no such field.
func (m *OpenAI) assistant(msg Message, current bool) openai.ChatCompletionMessageParamUnion {
	out := &openai.ChatCompletionAssistantMessageParam{}
	if msg.Content != "" {
		out.Content.OfString = openai.String(msg.Content)
	}
	for _, c := range msg.ToolCalls {
		out.ToolCalls = append(out.ToolCalls, openai.ChatCompletionMessageToolCallUnionParam{
			OfFunction: &openai.ChatCompletionMessageFunctionToolCallParam{
				ID: c.ID,
				Function: openai.ChatCompletionMessageFunctionToolCallFunctionParam{
					Name: cleanName(c.Name), Arguments: string(objectArgs(c.Args)),
				},
			},
		})
	}
	if current && !m.official {
		if field, text := reasoningOf(msg.Thinking); text != "" {
			out.SetExtraFields(map[string]any{field: text})
		}
	}
	return openai.ChatCompletionMessageParamUnion{OfAssistant: out}
}

// reasoningOf returns the reasoning that came from a server of this kind, and the name of its field.
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

// isReasoning tells reasoning of chat completions from thoughts that a vendor signed.
func isReasoning(t Thought) bool { return slices.Contains(reasoningFields[:], t.Signature) }

func openAITool(t Tool) (openai.ChatCompletionToolUnionParam, error) {
	schema, err := schemaOf(t)
	if err != nil {
		return openai.ChatCompletionToolUnionParam{}, err
	}
	// The SDK's own type would take the schema apart into a map, and lose the order in which it was written.
	f := param.Override[shared.FunctionDefinitionParam](struct {
		Name        string          `json:"name"`
		Description string          `json:"description,omitempty"`
		Parameters  json.RawMessage `json:"parameters"`
		Strict      *bool           `json:"strict,omitempty"`
	}{t.Name, t.Description, schema, t.Strict})
	return openai.ChatCompletionFunctionTool(f), nil
}
