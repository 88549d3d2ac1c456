package provider

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// opening is the user message that is added to a conversation that does not begin with the user.
const opening = "Begin."

func (m *Anthropic) body(r Request) ([]byte, error) {
	b := anthropicBody{
		Model: m.cfg.Name, Stream: true, Stop: r.Stop, System: textBlocks(r.System), Temperature: r.Temperature,
	}
	var err error
	if b.Messages, err = m.turns(r.Messages); err != nil {
		return nil, err
	}
	// The API requires that the user begins. A caller's conversation may begin with a greeting of the assistant.
	if len(b.Messages) == 0 || b.Messages[0].Role != RoleUser {
		b.Messages = slices.Insert(b.Messages, 0, anthropicMessage{Role: RoleUser, Content: textBlocks(opening)})
	}
	for _, t := range r.Tools {
		schema, err := schemaOf(t)
		if err != nil {
			return nil, err
		}
		tool := anthropicTool{Name: t.Name, Description: t.Description, InputSchema: schema, Strict: t.Strict}
		b.Tools = append(b.Tools, tool)
	}
	b.MaxTokens = cmp.Or(max(r.MaxTokens, 0), m.cfg.MaxTokens)
	if err := b.addOptions(r); err != nil {
		return nil, err
	}
	if r.Temperature != nil && *r.Temperature > 1 { // OpenAI allows up to 2
		return nil, unoffered{"temperature", "must be at most 1 for this provider"}
	}
	// A model that thinks accepts no temperature and no forced tool call. Thinking is a setting of the gateway, so the
	// options of the caller take precedence.
	ordered := len(r.Tools) > 0 && (r.Choice.Mode == ChoiceRequired || r.Choice.Mode == ChoiceTool)
	if r.Temperature == nil && b.TopP == nil && !ordered {
		m.think(&b, r.Messages)
	}
	return json.Marshal(b)
}

// addOptions translates the options that the Messages API supports. It returns an error that names any other. Options
// with no effect (a penalty of zero, the default tier) are accepted.
func (b *anthropicBody) addOptions(r Request) error {
	o := r.Options
	for name, asked := range map[string]bool{
		"seed": o.Seed != nil, "logit_bias": len(o.LogitBias) > 0, "verbosity": o.Verbosity != "",
		"metadata":          len(o.Metadata) > 0,
		"prompt_cache_key":  o.CacheKey != "",
		"presence_penalty":  o.PresencePenalty != nil && *o.PresencePenalty != 0,
		"frequency_penalty": o.FrequencyPenalty != nil && *o.FrequencyPenalty != 0,
		"service_tier":      !slices.Contains([]string{"", "auto", "default"}, o.ServiceTier),
	} {
		if asked {
			return unoffered{param: name}
		}
	}
	if o.TopP != nil && *o.TopP != 1 {
		b.TopP = o.TopP
	}
	if user := cmp.Or(o.SafetyIdentifier, o.User); user != "" {
		b.Metadata = map[string]string{"user_id": user}
	}
	b.addChoice(r)
	switch o.Effort {
	case "", "low", "medium", "high", "xhigh":
		b.OutputConfig.Effort = o.Effort
	default:
		return unoffered{"reasoning_effort", "must be low, medium, high or xhigh for this provider"}
	}
	if o.Format == nil {
		return nil
	}
	if o.Format.Schema == nil {
		return unoffered{"response_format", "must have the type json_schema for this provider"}
	}
	b.OutputConfig.Format = &anthropicFormat{Type: "json_schema", Schema: o.Format.Schema}
	return nil
}

// addChoice sets whether tools must be called, and whether several at once.
func (b *anthropicBody) addChoice(r Request) {
	if len(r.Tools) == 0 {
		return
	}
	choice := anthropicChoice{Type: "auto"}
	if r.Options.Parallel != nil {
		choice.DisableParallel = new(!*r.Options.Parallel)
	}
	switch r.Choice.Mode {
	case ChoiceNone:
		choice = anthropicChoice{Type: "none"}
	case ChoiceRequired:
		choice.Type = "any"
	case ChoiceTool:
		choice.Type, choice.Name = "tool", r.Choice.Name
	}
	if choice != (anthropicChoice{Type: "auto"}) { // which is the default
		b.ToolChoice = &choice
	}
}

// think turns thinking on, if it is configured and possible. A model that thinks must find its thoughts before the
// calls whose results it gets. Calls of another model, or from before thinking was turned on, have no thoughts.
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

// thoughtThrough reports whether all calls of the current turn have thoughts that can be sent back.
func thoughtThrough(messages []Message) bool {
	for _, m := range messages[1+lastUser(messages):] {
		if len(m.ToolCalls) > 0 && len(thinkingBlocks(m.Thinking)) == 0 {
			return false
		}
	}
	return true
}

// turns translates a conversation. The API requires that roles alternate, and that all results of one message's calls
// are in the next message, where the user's text may follow. So consecutive messages of one role are merged.
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
		if len(blocks) == 0 { // an interrupted answer without text
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

func userBlocks(m Message) ([]anthropicBlock, error) {
	if len(m.Parts) == 0 {
		return textBlocks(m.Content), nil
	}
	var blocks []anthropicBlock
	for _, p := range m.Parts {
		switch {
		case p.Image == nil:
			blocks = append(blocks, textBlocks(p.Text)...)
		case p.Image.Detail != "" && p.Image.Detail != "auto":
			return nil, unoffered{param: "image_url.detail"}
		case strings.HasPrefix(p.Image.URL, "data:"):
			kind, data, ok := strings.Cut(strings.TrimPrefix(p.Image.URL, "data:"), ";base64,")
			if !ok {
				return nil, unoffered{"image_url.url", "must be a URL, or data in base64, for this provider"}
			}
			blocks = append(blocks, imageBlock(kind, data))
		default:
			source := &anthropicSource{Type: "url", URL: p.Image.URL}
			blocks = append(blocks, anthropicBlock{Type: "image", Source: source})
		}
	}
	return blocks, nil
}

// textBlocks returns a text as a block. It returns none for blank text, because the API rejects it.
func textBlocks(text string) []anthropicBlock {
	if strings.TrimSpace(text) == "" {
		return nil
	}
	return []anthropicBlock{{Type: "text", Text: text}}
}

// resultBlock translates a result. A failed result has text only, because the API accepts no images there.
func (a *Anthropic) resultBlock(m Message) anthropicBlock {
	content := textBlocks(m.Content)
	switch {
	case len(m.Pictures) == 0:
	case !a.images || m.Failed:
		content = append(content, textBlocks(noteUnseen)...)
	default:
		for _, p := range m.Pictures {
			content = append(content, imageBlock(p.MIMEType, p.base64()))
		}
	}
	return anthropicBlock{
		Type: "tool_result", ToolUseID: cleanID(m.ToolCallID), Content: content, IsError: m.Failed,
	}
}

func imageBlock(mimeType, data string) anthropicBlock {
	source := &anthropicSource{Type: "base64", MediaType: &mimeType, Data: &data}
	return anthropicBlock{Type: "image", Source: source}
}

// assistantBlocks returns the blocks of a model's message. Thoughts without calls are dropped: later turns ignore them.
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

// thinkingBlocks returns the thoughts that the vendor signed. The API would reject others.
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
