package provider

import (
	"fmt"
	"strings"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/packages/param"
)

// opening stands for the words of a user who has said nothing yet.
const opening = "Begin."

// params translates a request.
func (m *Anthropic) params(r Request) (anthropic.MessageNewParams, error) {
	p := anthropic.MessageNewParams{Model: m.model, StopSequences: r.Stop}
	if strings.TrimSpace(r.System) != "" {
		p.System = []anthropic.TextBlockParam{{Text: r.System}}
	}
	messages, err := turns(r.Messages)
	if err != nil {
		return p, err
	}
	p.Messages = begunByUser(messages)
	for _, t := range r.Tools {
		tool, err := anthropicTool(t)
		if err != nil {
			return p, err
		}
		p.Tools = append(p.Tools, tool)
	}
	orDefault(&r.MaxTokens, m.maxTokens)
	p.MaxTokens = int64(r.MaxTokens)
	if err := addAnthropicOptions(&p, r); err != nil {
		return p, err
	}
	if r.Temperature != nil && *r.Temperature > 1 { // OpenAI's goes up to 2
		return p, unoffered{"temperature", "must be at most 1 for its provider"}
	}
	// A model that thinks takes no temperature but its own, and no order to call a tool. That it thinks is a setting of the
	// gateway; what a caller asks for counts more.
	if r.Temperature == nil && !p.TopP.Valid() && p.ToolChoice.OfAny == nil && p.ToolChoice.OfTool == nil {
		m.think(&p, r.Messages)
	}
	if r.Temperature != nil {
		p.Temperature = anthropic.Float(*r.Temperature)
	}
	return p, nil
}

// think switches thinking on, if it is wanted and possible: a model that thinks must find its thoughts in front of the
// calls whose results it is given, and those of another model, or from before thinking was switched on, have none.
func (m *Anthropic) think(p *anthropic.MessageNewParams, messages []Message) {
	switch {
	case m.thinking == 0 && !m.adaptive || !thoughtThrough(messages):
	case m.adaptive:
		p.Thinking.OfAdaptive = &anthropic.ThinkingConfigAdaptiveParam{Display: anthropic.ThinkingConfigAdaptiveDisplaySummarized}
	default:
		p.MaxTokens += int64(m.thinking) // the API counts both together
		p.Thinking = anthropic.ThinkingConfigParamOfEnabled(int64(m.thinking))
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
func turns(messages []Message) ([]anthropic.MessageParam, error) {
	var out []anthropic.MessageParam
	for _, m := range messages {
		role, blocks := anthropic.MessageParamRoleUser, []anthropic.ContentBlockParamUnion(nil)
		switch m.Role {
		case RoleUser:
			var err error
			if blocks, err = userBlocks(m); err != nil {
				return nil, err
			}
		case RoleTool:
			blocks = append(blocks, resultBlock(m))
		case RoleAssistant:
			role, blocks = anthropic.MessageParamRoleAssistant, assistantBlocks(m)
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
		out = append(out, anthropic.MessageParam{Role: role, Content: blocks})
	}
	return out, nil
}

// begunByUser returns messages that begin with the user, as the API wants them: what a caller keeps may begin with a greeting
// of the assistant, or consist of nothing but system messages.
func begunByUser(messages []anthropic.MessageParam) []anthropic.MessageParam {
	if len(messages) > 0 && messages[0].Role == anthropic.MessageParamRoleUser {
		return messages
	}
	return append([]anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock(opening))}, messages...)
}

// textBlocks returns a text as a block; blank ones the API refuses.
func textBlocks(text string) []anthropic.ContentBlockParamUnion {
	if strings.TrimSpace(text) == "" {
		return nil
	}
	return []anthropic.ContentBlockParamUnion{anthropic.NewTextBlock(text)}
}

func resultBlock(m Message) anthropic.ContentBlockParamUnion {
	b := &anthropic.ToolResultBlockParam{ToolUseID: cleanID(m.ToolCallID)}
	if strings.TrimSpace(m.Content) != "" {
		b.Content = []anthropic.ToolResultBlockParamContentUnion{{OfText: &anthropic.TextBlockParam{Text: m.Content}}}
	}
	if m.Failed {
		b.IsError = anthropic.Bool(true)
	}
	return anthropic.ContentBlockParamUnion{OfToolResult: b}
}

// assistantBlocks returns what a model said: its thoughts first, then its words, then its calls. Thoughts without calls
// are of no use to the model, which would leave them out of later turns itself.
func assistantBlocks(m Message) []anthropic.ContentBlockParamUnion {
	var blocks []anthropic.ContentBlockParamUnion
	if len(m.ToolCalls) > 0 {
		blocks = thinkingBlocks(m.Thinking)
	}
	blocks = append(blocks, textBlocks(m.Content)...)
	for _, c := range m.ToolCalls {
		blocks = append(blocks, anthropic.NewToolUseBlock(cleanID(c.ID), objectArgs(c.Args), cleanName(c.Name)))
	}
	return blocks
}

// thinkingBlocks returns the thoughts that the vendor signed. Others it would refuse: those of another model, and one
// that was cut off.
func thinkingBlocks(thoughts []Thought) []anthropic.ContentBlockParamUnion {
	var blocks []anthropic.ContentBlockParamUnion
	for _, t := range thoughts {
		switch {
		case t.Redacted != "":
			blocks = append(blocks, anthropic.NewRedactedThinkingBlock(t.Redacted))
		case t.Signature != "" && !isReasoning(t):
			blocks = append(blocks, anthropic.NewThinkingBlock(t.Signature, t.Text))
		}
	}
	return blocks
}

func anthropicTool(t Tool) (anthropic.ToolUnionParam, error) {
	schema, err := schemaOf(t)
	if err != nil {
		return anthropic.ToolUnionParam{}, err
	}
	// The SDK's own type would take the schema apart, and lose the order in which it was written.
	tool := &anthropic.ToolParam{Name: t.Name, InputSchema: param.Override[anthropic.ToolInputSchemaParam](schema)}
	if t.Description != "" {
		tool.Description = anthropic.String(t.Description)
	}
	if t.Strict != nil {
		tool.Strict = anthropic.Bool(*t.Strict)
	}
	return anthropic.ToolUnionParam{OfTool: tool}, nil
}
