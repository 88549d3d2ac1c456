package provider

import "encoding/json"

// anthropicBody is the body of a request for a message. Its fields are those of the vendor's reference.
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
	Metadata     anthropicMetadata  `json:"metadata,omitzero"`
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

type anthropicMetadata struct {
	UserID string `json:"user_id,omitempty"`
}
