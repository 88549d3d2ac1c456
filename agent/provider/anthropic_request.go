package provider

import (
	"encoding/json"
	"fmt"
	"strings"
)

// opening stands for the words of a user who has said nothing yet.
const opening = "Begin."

// body translates a request.
func (m *Anthropic) body(r Request) ([]byte, error) {
	b := anthropicBody{
		Model: m.cfg.Name, Stream: true, Stop: r.Stop, System: textBlocks(r.System), Temperature: r.Temperature,
	}
	messages, err := m.turns(r.Messages)
	if err != nil {
		return nil, err
	}
	b.Messages = begunByUser(messages)
	for _, t := range r.Tools {
		schema, err := schemaOf(t)
		if err != nil {
			return nil, err
		}
		tool := anthropicTool{Name: t.Name, Description: t.Description, InputSchema: schema, Strict: t.Strict}
		b.Tools = append(b.Tools, tool)
	}
	orDefault(&r.MaxTokens, m.cfg.MaxTokens)
	b.MaxTokens = r.MaxTokens
	if err := b.addOptions(r); err != nil {
		return nil, err
	}
	if r.Temperature != nil && *r.Temperature > 1 { // OpenAI's goes up to 2
		return nil, unoffered{"temperature", "must be at most 1 for its provider"}
	}
	// A model that thinks takes no temperature but its own, and no order to call a tool. That it thinks is a setting
	// of the gateway; what a caller asks for counts more.
	ordered := len(r.Tools) > 0 && (r.Choice.Mode == ChoiceRequired || r.Choice.Mode == ChoiceTool)
	if r.Temperature == nil && b.TopP == nil && !ordered {
		m.think(&b, r.Messages)
	}
	return json.Marshal(b)
}

// think switches thinking on, if it is wanted and possible: a model that thinks must find its thoughts in front of the
// calls whose results it is given, and those of another model, or from before thinking was switched on, have none.
func (m *Anthropic) think(b *anthropicBody, messages []Message) {
	switch {
	case m.cfg.ThinkingTokens == 0 && !m.cfg.AdaptiveThinking || !thoughtThrough(messages):
	case m.cfg.AdaptiveThinking:
		b.Thinking = &anthropicThinking{Type: "adaptive", Display: "summarized"}
	default:
		b.MaxTokens += m.cfg.ThinkingTokens // the API counts both together
		b.Thinking = &anthropicThinking{Type: "enabled", Budget: m.cfg.ThinkingTokens}
	}
}

// thoughtThrough reports whether the calls of the turn under way come with thoughts that can be sent back.
func thoughtThrough(messages []Message) bool {
	for _, m := range messages[1+lastUser(messages):] {
		if len(m.ToolCalls) > 0 && len(thinkingBlocks(m.Thinking)) == 0 {
			return false
		}
	}
	return true
}

// turns translates a conversation. The API wants the roles to alternate and all results of one message's calls in the
// message behind it, which a user's words may follow; so whatever follows its like is merged with it.
func (a *Anthropic) turns(messages []Message) ([]anthropicMessage, error) {
	var out []anthropicMessage
	for _, m := range messages {
		role, blocks := RoleUser, []anthropicBlock(nil)
		switch m.Role {
		case RoleUser:
			var err error
			if blocks, err = userBlocks(m); err != nil {
				return nil, err
			}
		case RoleTool:
			blocks = append(blocks, a.resultBlock(m))
		case RoleAssistant:
			role, blocks = RoleAssistant, assistantBlocks(m)
		default:
			return nil, fmt.Errorf("a message of the role %q", m.Role)
		}
		if len(blocks) == 0 { // an answer that was cut off before anything was said
			continue
		}
		if last := len(out) - 1; last >= 0 && out[last].Role == role {
			out[last].Content = append(out[last].Content, blocks...)
			continue
		}
		out = append(out, anthropicMessage{Role: role, Content: blocks})
	}
	return out, nil
}

// begunByUser returns messages that begin with the user, as the API wants them: what a caller keeps may begin with a
// greeting of the assistant, or consist of nothing but system messages.
func begunByUser(messages []anthropicMessage) []anthropicMessage {
	if len(messages) > 0 && messages[0].Role == RoleUser {
		return messages
	}
	return append([]anthropicMessage{{Role: RoleUser, Content: textBlocks(opening)}}, messages...)
}

// textBlocks returns a text as a block; blank ones the API refuses.
func textBlocks(text string) []anthropicBlock {
	if strings.TrimSpace(text) == "" {
		return nil
	}
	return []anthropicBlock{{Type: "text", Text: text}}
}

// resultBlock translates a result. A failed one has text only: the API takes no images there.
func (a *Anthropic) resultBlock(m Message) anthropicBlock {
	content := textBlocks(m.Content)
	switch {
	case len(m.Pictures) == 0:
	case !a.images || m.Failed:
		content = append(content, textBlocks(noteUnseen)...)
	default:
		for _, p := range m.Pictures {
			data := p.base64()
			source := &anthropicSource{Type: "base64", MediaType: &p.MIMEType, Data: &data}
			content = append(content, anthropicBlock{Type: "image", Source: source})
		}
	}
	return anthropicBlock{
		Type: "tool_result", ToolUseID: cleanID(m.ToolCallID), Content: content, IsError: m.Failed,
	}
}

// assistantBlocks returns what a model said: its thoughts first, then its words, then its calls. Thoughts without calls
// are of no use to the model, which would leave them out of later turns itself.
func assistantBlocks(m Message) []anthropicBlock {
	var blocks []anthropicBlock
	if len(m.ToolCalls) > 0 {
		blocks = thinkingBlocks(m.Thinking)
	}
	blocks = append(blocks, textBlocks(m.Content)...)
	for _, c := range m.ToolCalls {
		blocks = append(blocks, anthropicBlock{
			Type: "tool_use", ID: cleanID(c.ID), Name: cleanName(c.Name), Input: objectArgs(c.Args),
		})
	}
	return blocks
}

// thinkingBlocks returns the thoughts that the vendor signed. Others it would refuse: those of another model, and one
// that was cut off.
func thinkingBlocks(thoughts []Thought) []anthropicBlock {
	var blocks []anthropicBlock
	for _, t := range thoughts {
		switch {
		case t.Redacted != "":
			blocks = append(blocks, anthropicBlock{Type: "redacted_thinking", Data: t.Redacted})
		case t.Signature != "" && !isReasoning(t):
			blocks = append(blocks, anthropicBlock{Type: "thinking", Thinking: &t.Text, Signature: t.Signature})
		}
	}
	return blocks
}
