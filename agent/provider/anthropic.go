package provider

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"github.com/farhand/farhand/internal/ssereader"
)

// Anthropic is a model behind Anthropic's Messages API, version 2023-06-01. All of Anthropic's models and all
// compatible servers support that version, and it has a temperature.
type Anthropic struct {
	caller
	images bool // the model sees images that tools return
}

var _ Model = (*Anthropic)(nil)

// NewAnthropic returns the model. Configuration errors are returned by Generate. No environment variable is read.
func NewAnthropic(cfg Config) *Anthropic {
	cfg.MaxTokens = cmp.Or(max(cfg.MaxTokens, 0), 8192)
	if cfg.ThinkingTokens > 0 {
		cfg.ThinkingTokens = max(cfg.ThinkingTokens, 1024)
	}
	m := &Anthropic{images: isSet(cfg.Images, cfg.BaseURL == "")}
	base := strings.TrimSuffix(cmp.Or(cfg.BaseURL, "https://api.anthropic.com"), "/")
	m.caller = newCaller(cfg, m, strings.TrimSuffix(base, "/v1"), "v1/messages")
	m.header.Set("Anthropic-Version", "2023-06-01")
	if cfg.APIKey != "" {
		m.header.Set("X-Api-Key", cfg.APIKey)
	}
	return m
}

// reader implements vendor.
func (m *Anthropic) reader(a *answer) func(ssereader.Event) error {
	return (&anthropicStream{m: m, a: a, open: map[int64]*block{}}).read
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

func imageBlock(mimeType, data string) anthropicBlock {
	source := &anthropicSource{Type: "base64", MediaType: &mimeType, Data: &data}
	return anthropicBlock{Type: "image", Source: source}
}

// anthropicBody is the body of a Messages API request. Its fields are defined in the vendor's reference.
type anthropicBody struct {
	Model        string             `json:"model"`
	MaxTokens    int                `json:"max_tokens"`
	System       []anthropicBlock   `json:"system,omitempty"`
	Messages     []anthropicMessage `json:"messages"`
	Stream       bool               `json:"stream"`
	Tools        []anthropicTool    `json:"tools,omitempty"`
	ToolChoice   *anthropicChoice   `json:"tool_choice,omitempty"`
	Thinking     *anthropicThinking `json:"thinking,omitempty"`
	Temperature  *float64           `json:"temperature,omitempty"`
	TopP         *float64           `json:"top_p,omitempty"`
	Stop         []string           `json:"stop_sequences,omitzero"`
	OutputConfig anthropicOutput    `json:"output_config,omitzero"`
	Metadata     map[string]string  `json:"metadata,omitempty"`
}

type anthropicMessage struct {
	Role    Role             `json:"role"`
	Content []anthropicBlock `json:"content"`
}

// anthropicBlock is a block of any type.
type anthropicBlock struct {
	Type      string           `json:"type"`
	Text      string           `json:"text,omitempty"`
	Source    *anthropicSource `json:"source,omitempty"`    // image
	Thinking  *string          `json:"thinking,omitempty"`  // thinking
	Signature string           `json:"signature,omitempty"` // thinking
	Data      string           `json:"data,omitempty"`      // redacted_thinking
	ID        string           `json:"id,omitempty"`        // tool_use
	Name      string           `json:"name,omitempty"`      // tool_use
	Input     json.RawMessage  `json:"input,omitempty"`     // tool_use
	ToolUseID string           `json:"tool_use_id,omitempty"`
	Content   []anthropicBlock `json:"content,omitempty"`  // tool_result
	IsError   bool             `json:"is_error,omitempty"` // tool_result
}

type anthropicSource struct {
	Type      string  `json:"type"`
	URL       string  `json:"url,omitempty"`
	MediaType *string `json:"media_type,omitempty"`
	Data      *string `json:"data,omitempty"`
}

type anthropicTool struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	InputSchema json.RawMessage `json:"input_schema"`
	Strict      *bool           `json:"strict,omitempty"`
}

type anthropicChoice struct {
	Type            string `json:"type"`
	Name            string `json:"name,omitempty"`
	DisableParallel *bool  `json:"disable_parallel_tool_use,omitempty"`
}

type anthropicThinking struct {
	Type    string `json:"type"`
	Budget  int    `json:"budget_tokens,omitempty"`
	Display string `json:"display,omitempty"`
}

type anthropicOutput struct {
	Effort string           `json:"effort,omitempty"`
	Format *anthropicFormat `json:"format,omitempty"`
}

type anthropicFormat struct {
	Type   string          `json:"type"`
	Schema json.RawMessage `json:"schema"`
}
