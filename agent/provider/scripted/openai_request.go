package scripted

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/farhand/farhand/agent/provider"
)

type openAIBody struct {
	Model               string          `json:"model"`
	Messages            []openAIMessage `json:"messages"`
	Stream              bool            `json:"stream"`
	MaxTokens           int             `json:"max_tokens"`
	MaxCompletionTokens int             `json:"max_completion_tokens"`
	Temperature         *float64        `json:"temperature"`
	Stop                []string        `json:"stop"`
	Tools               []struct {
		Type     string `json:"type"`
		Function tool   `json:"function"`
	} `json:"tools"`
}

type openAIMessage struct {
	Role       string         `json:"role"`
	Content    *openAIContent `json:"content"`
	Reasoning  string         `json:"reasoning_content"`
	ToolCallID string         `json:"tool_call_id"`
	ToolCalls  []struct {
		ID       string `json:"id"`
		Type     string `json:"type"`
		Function struct {
			Name      string  `json:"name"`
			Arguments *string `json:"arguments"`
		} `json:"function"`
	} `json:"tool_calls"`
}

// openAIContent is a text or parts.
type openAIContent struct {
	text  string
	parts []provider.Part
}

// UnmarshalJSON implements json.Unmarshaler.
func (c *openAIContent) UnmarshalJSON(data []byte) error {
	if data[0] == '"' {
		return json.Unmarshal(data, &c.text)
	}
	var parts []struct {
		Type  string          `json:"type"`
		Text  string          `json:"text"`
		Image *provider.Image `json:"image_url"`
	}
	if err := json.Unmarshal(data, &parts); err != nil {
		return err
	}
	for _, p := range parts {
		if (p.Type == "image_url") != (p.Image != nil) || p.Type != "image_url" && p.Type != "text" {
			return refuse("Invalid content part")
		}
		c.text += p.Text
		c.parts = append(c.parts, provider.Part{Text: p.Text, Image: p.Image})
	}
	return nil
}

func (openAI) read(r *Request) error {
	var b openAIBody
	if err := json.Unmarshal(r.Raw, &b); err != nil {
		return refuse("We could not parse the JSON body of your request.")
	}
	r.Model, r.MaxTokens, r.Temperature, r.Stop = b.Model, max(b.MaxTokens, b.MaxCompletionTokens), b.Temperature,
		b.Stop
	switch {
	case b.Model == "":
		return refuse("you must provide a model parameter")
	case !b.Stream:
		return refuse("scripted servers only stream")
	case len(b.Messages) == 0:
		return refuse("Invalid 'messages': empty array. Expected an array with minimum length 1, but got an " +
			"empty array instead.")
	case b.MaxTokens > 0 && b.MaxCompletionTokens > 0:
		return refuse("Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.")
	}
	var tools []tool
	for i, t := range b.Tools {
		if t.Type != "function" {
			return refuse("Invalid value: '%s' for 'tools[%d].type'.", t.Type, i)
		}
		tools = append(tools, t.Function)
	}
	if err := readTools(r, "tools[%d].function", tools); err != nil {
		return err
	}
	return readOpenAIMessages(r, b.Messages)
}

// readOpenAIMessages checks messages, mainly that calls and results match.
func readOpenAIMessages(r *Request, messages []openAIMessage) error {
	open := map[string]string{} // the calls that wait for a result, and their tools
	for i, m := range messages {
		if m.Role != "tool" && len(open) > 0 {
			return unanswered(open)
		}
		out := provider.Message{Role: provider.Role(m.Role)}
		if m.Content != nil {
			out.Content, out.Parts = m.Content.text, m.Content.parts
		}
		var err error
		switch m.Role {
		case "system", "user":
			if m.Content == nil {
				err = refuse("Invalid value for 'content': expected a string, got null. (messages[%d])", i)
			}
		case "assistant":
			err = readOpenAICalls(&out, i, m, open)
		case "tool":
			name, ok := open[m.ToolCallID]
			if !ok {
				err = refuse("Invalid parameter: messages with role 'tool' must be a response to a preceding "+
					"message "+
					"with 'tool_calls': '%s'. (messages[%d])", m.ToolCallID, i)
			}
			delete(open, m.ToolCallID)
			out.ToolCallID, out.ToolName = m.ToolCallID, name
		default:
			err = refuse("Invalid value: '%s'. (messages[%d].role)", m.Role, i)
		}
		if err != nil {
			return err
		}
		if m.Role == "system" {
			r.System = strings.TrimPrefix(r.System+"\n"+out.Content, "\n")
			continue
		}
		r.Messages = append(r.Messages, out)
	}
	if len(open) > 0 {
		return unanswered(open)
	}
	return nil
}

func readOpenAICalls(out *provider.Message, i int, m openAIMessage, open map[string]string) error {
	if m.Content == nil && len(m.ToolCalls) == 0 {
		return refuse("Invalid value for 'content': expected a string, got null. (messages[%d])", i)
	}
	if m.Reasoning != "" {
		out.Thinking = []provider.Thought{{Text: m.Reasoning}}
	}
	for n, c := range m.ToolCalls {
		where := fmt.Sprintf("messages[%d].tool_calls[%d]", i, n)
		_, twice := open[c.ID]
		switch {
		case c.ID == "" || len(c.ID) > 40 || twice:
			return refuse("Invalid '%s.id': '%s'.", where, c.ID)
		case c.Type != "function" || c.Function.Arguments == nil:
			return refuse("Missing required parameter: '%s.function.arguments'.", where)
		case !namePattern.MatchString(c.Function.Name):
			return invalidName(where+".function.name", c.Function.Name)
		}
		open[c.ID] = c.Function.Name
		out.ToolCalls = append(out.ToolCalls, provider.ToolCall{ID: c.ID, Name: c.Function.Name,
			Args: *c.Function.Arguments})
	}
	return nil
}

func unanswered(open map[string]string) error {
	return refuse("An assistant message with 'tool_calls' must be followed by tool messages responding to each "+
		"'tool_call_id'. The following tool_call_ids did not have response messages: %s", sortedKeys(open))
}
