package scripted

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/farhand/farhand/agent/provider"
)

type anthropicBody struct {
	Model       string             `json:"model"`
	System      anthropicContent   `json:"system"`
	Messages    []anthropicMessage `json:"messages"`
	Tools       []tool             `json:"tools"`
	Stream      bool               `json:"stream"`
	MaxTokens   *int               `json:"max_tokens"`
	Temperature *float64           `json:"temperature"`
	Stop        []string           `json:"stop_sequences"`
	Thinking    struct {
		Type   string `json:"type"`
		Budget int    `json:"budget_tokens"`
	} `json:"thinking"`
}

type anthropicMessage struct {
	Role    string           `json:"role"`
	Content anthropicContent `json:"content"`
}

// anthropicContent is blocks, or a text, which is short for one block.
type anthropicContent []anthropicBlock

// UnmarshalJSON implements json.Unmarshaler.
func (c *anthropicContent) UnmarshalJSON(data []byte) error {
	if data[0] == '"' {
		*c = anthropicContent{{Type: "text"}}
		return json.Unmarshal(data, &(*c)[0].Text)
	}
	return json.Unmarshal(data, (*[]anthropicBlock)(c))
}

type anthropicBlock struct {
	Type      string           `json:"type"`
	Text      string           `json:"text"`
	Thinking  string           `json:"thinking"`
	Signature string           `json:"signature"`
	Data      string           `json:"data"`
	ID        string           `json:"id"`
	Name      string           `json:"name"`
	Input     json.RawMessage  `json:"input"`
	ToolUseID string           `json:"tool_use_id"`
	Content   anthropicContent `json:"content"`
	IsError   bool             `json:"is_error"`
	Source    struct {
		Type      string `json:"type"`
		URL       string `json:"url"`
		MediaType string `json:"media_type"`
		Data      string `json:"data"`
	} `json:"source"`
}

func (anthropic) read(r *Request) error {
	var b anthropicBody
	if err := json.Unmarshal(r.Raw, &b); err != nil {
		return refuse("The request body is not valid JSON: %v", err)
	}
	r.Model, r.Temperature, r.Stop = b.Model, b.Temperature, b.Stop
	for _, s := range b.System {
		r.System += s.Text
	}
	switch {
	case r.Header.Get("anthropic-version") == "":
		return refuse("anthropic-version: header is required")
	case b.MaxTokens == nil:
		return refuse("max_tokens: Field required")
	case *b.MaxTokens < 1:
		return refuse("max_tokens: Input should be greater than or equal to 1")
	case b.Model == "":
		return refuse("model: Field required")
	case !b.Stream:
		return refuse("scripted servers only stream")
	case b.Temperature != nil && (*b.Temperature < 0 || *b.Temperature > 1):
		return refuse("temperature: range: 0..1")
	case len(b.Messages) == 0:
		return refuse("messages: at least one message is required")
	case b.Messages[0].Role != "user":
		return refuse("messages: first message must use the \"user\" role")
	}
	r.MaxTokens = *b.MaxTokens
	if err := readTools(r, "tools.%d", b.Tools); err != nil {
		return err
	}
	if err := checkThinking(b); err != nil {
		return err
	}
	return readAnthropicMessages(r, b.Messages)
}

func checkThinking(b anthropicBody) error {
	switch {
	case b.Thinking.Type != "enabled" && b.Thinking.Type != "adaptive":
		return nil
	case b.Thinking.Type == "enabled" && b.Thinking.Budget < 1024:
		return refuse("thinking.enabled.budget_tokens: Input should be greater than or equal to 1024")
	case b.Thinking.Type == "enabled" && b.Thinking.Budget >= *b.MaxTokens:
		return refuse("`max_tokens` must be greater than `thinking.budget_tokens`")
	case b.Temperature != nil && *b.Temperature != 1:
		return refuse("`temperature` may only be set to 1 when thinking is enabled")
	}
	// A turn that continues with results must have begun with a thought.
	last := len(b.Messages) - 1
	if last < 1 || len(b.Messages[last].Content) == 0 || b.Messages[last].Content[0].Type != "tool_result" {
		return nil
	}
	said := b.Messages[last-1].Content
	if len(said) == 0 || said[0].Type != "thinking" && said[0].Type != "redacted_thinking" {
		return refuse("messages.%d.content.0.type: Expected `thinking` or `redacted_thinking`. When `thinking` "+
			"is enabled, "+
			"a final `assistant` message must start with a thinking block", last-1)
	}
	return nil
}

func readAnthropicMessages(r *Request, messages []anthropicMessage) error {
	open, used := map[string]string{}, map[string]bool{}
	for i, m := range messages {
		if i > 0 && messages[i-1].Role == m.Role {
			return refuse("messages: roles must alternate between \"user\" and \"assistant\", but found multiple "+
				"\"%s\" roles "+
				"in a row", m.Role)
		}
		if len(m.Content) == 0 {
			return refuse("messages.%d: all messages must have non-empty content", i)
		}
		var err error
		switch m.Role {
		case "user":
			err = readAnthropicUser(r, i, m, open)
		case "assistant":
			err = readAnthropicAssistant(r, i, m, open, used)
		default:
			err = refuse("messages.%d.role: Input should be 'user' or 'assistant'", i)
		}
		if err != nil {
			return err
		}
	}
	if len(open) > 0 {
		return withoutResult(len(messages)-1, open)
	}
	return nil
}

func readAnthropicUser(r *Request, i int, m anthropicMessage, open map[string]string) error {
	spoken := false
	for n, b := range m.Content {
		if err := checkText(i, b); err != nil {
			return err
		}
		switch b.Type {
		case "text":
			spoken = true
			r.Messages = append(r.Messages, provider.Message{Role: provider.RoleUser, Content: b.Text})
		case "image":
			r.Messages = append(r.Messages, provider.Message{Role: provider.RoleUser,
				Parts: []provider.Part{{Image: b.image()}}})
		case "tool_result":
			name, ok := open[b.ToolUseID]
			switch {
			case !ok:
				return refuse("messages.%d.content.%d: unexpected `tool_use_id` found in `tool_result` blocks: "+
					"%s. Each "+
					"`tool_result` block must have a corresponding `tool_use` block in the previous message.", i, n,
					b.ToolUseID)
			case spoken:
				return refuse("messages.%d: `tool_result` blocks must come before any other content", i)
			}
			delete(open, b.ToolUseID)
			out := provider.Message{Role: provider.RoleTool, ToolCallID: b.ToolUseID, ToolName: name, Failed: b.IsError}
			for _, c := range b.Content {
				if err := checkText(i, c); err != nil {
					return err
				}
				if c.Type == "image" {
					if b.IsError {
						return refuse("messages.%d.content.%d: all content must be type \"text\" "+
							"if \"is_error\" is true", i, n)
					}
					out.Parts = append(out.Parts, provider.Part{Image: c.image()})
				}
				out.Content += c.Text
			}
			r.Messages = append(r.Messages, out)
		default:
			return refuse("messages.%d.content.%d.type: unexpected '%s'", i, n, b.Type)
		}
	}
	if len(open) > 0 {
		return withoutResult(i-1, open)
	}
	return nil
}

// image returns the image of a block.
func (b anthropicBlock) image() *provider.Image {
	if b.Source.Type == "base64" {
		return &provider.Image{URL: "data:" + b.Source.MediaType + ";base64," + b.Source.Data}
	}
	return &provider.Image{URL: b.Source.URL}
}

func readAnthropicAssistant(r *Request, i int, m anthropicMessage, open map[string]string, used map[string]bool) error {
	out := provider.Message{Role: provider.RoleAssistant}
	for n, b := range m.Content {
		if err := checkText(i, b); err != nil {
			return err
		}
		where := fmt.Sprintf("messages.%d.content.%d", i, n)
		switch b.Type {
		case "text":
			out.Content += b.Text
		case "thinking":
			if b.Signature != sign(b.Thinking) {
				return refuse("%s: Invalid `signature` in `thinking` block", where)
			}
			out.Thinking = append(out.Thinking, provider.Thought{Text: b.Thinking, Signature: b.Signature})
		case "redacted_thinking":
			out.Thinking = append(out.Thinking, provider.Thought{Redacted: b.Data})
		case "tool_use":
			if err := checkToolUse(where, b, used); err != nil {
				return err
			}
			open[b.ID], used[b.ID] = b.Name, true
			out.ToolCalls = append(out.ToolCalls, provider.ToolCall{ID: b.ID, Name: b.Name, Args: string(b.Input)})
		default:
			return refuse("%s.type: unexpected '%s'", where, b.Type)
		}
	}
	r.Messages = append(r.Messages, out)
	return nil
}

func checkToolUse(where string, b anthropicBlock, used map[string]bool) error {
	var input map[string]json.RawMessage
	switch {
	case !idPattern.MatchString(b.ID):
		return refuse("%s.tool_use.id: String should match pattern '%s'", where, idPattern)
	case used[b.ID]:
		return refuse("messages: `tool_use` ids must be unique: %s", b.ID)
	case !namePattern.MatchString(b.Name):
		return refuse("%s.tool_use.name: String should match pattern '%s'", where, namePattern)
	case json.Unmarshal(b.Input, &input) != nil || input == nil:
		return refuse("%s.tool_use.input: Input should be a valid dictionary", where)
	}
	return nil
}

func checkText(i int, b anthropicBlock) error {
	if b.Type == "text" && strings.TrimSpace(b.Text) == "" {
		return refuse("messages.%d: text content blocks must contain non-whitespace text", i)
	}
	return nil
}

func withoutResult(i int, open map[string]string) error {
	return refuse("messages.%d: `tool_use` ids were found without `tool_result` blocks immediately after: %s. "+
		"Each "+
		"`tool_use` block must have a corresponding `tool_result` block in the next message.", i, sortedKeys(open))
}
