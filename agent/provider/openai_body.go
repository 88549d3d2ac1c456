package provider

import "encoding/json"

// openAIBody is the body of a request for chat completions. Its fields are those of the vendor's reference.
type openAIBody struct {
	Model         string            `json:"model"`
	Messages      []openAIMessage   `json:"messages,omitempty"`
	Stream        bool              `json:"stream"`
	StreamOptions openAIStreaming   `json:"stream_options"`
	Tools         []openAITool      `json:"tools,omitempty"`
	ToolChoice    any               `json:"tool_choice,omitempty"` // a string, or an openAITool
	Parallel      *bool             `json:"parallel_tool_calls,omitempty"`
	MaxTokens     int               `json:"max_tokens,omitempty"`
	MaxCompletion int               `json:"max_completion_tokens,omitempty"`
	Temperature   *float64          `json:"temperature,omitempty"`
	TopP          *float64          `json:"top_p,omitempty"`
	Presence      *float64          `json:"presence_penalty,omitempty"`
	Frequency     *float64          `json:"frequency_penalty,omitempty"`
	Seed          *int64            `json:"seed,omitempty"`
	LogitBias     map[string]int64  `json:"logit_bias,omitzero"`
	Stop          []string          `json:"stop,omitempty"`
	Format        *openAIFormat     `json:"response_format,omitempty"`
	Effort        string            `json:"reasoning_effort,omitempty"`
	Verbosity     string            `json:"verbosity,omitempty"`
	ServiceTier   string            `json:"service_tier,omitempty"`
	User          string            `json:"user,omitempty"`
	SafetyID      string            `json:"safety_identifier,omitempty"`
	CacheKey      string            `json:"prompt_cache_key,omitempty"`
	Metadata      map[string]string `json:"metadata,omitzero"`
}

type openAIStreaming struct {
	IncludeUsage bool `json:"include_usage"`
}

// openAIMessage is a message of any role.
type openAIMessage struct {
	Role       Role             `json:"role"`
	Content    any              `json:"content,omitempty"` // a *string, or []openAIPart
	ToolCalls  []openAIToolCall `json:"tool_calls,omitempty"`
	ToolCallID *string          `json:"tool_call_id,omitempty"`

	// At most one of these, as the server calls it.
	ReasoningContent string `json:"reasoning_content,omitempty"`
	Reasoning        string `json:"reasoning,omitempty"`
}

type openAIPart struct {
	Type  string  `json:"type"`
	Text  *string `json:"text,omitempty"`
	Image *Image  `json:"image_url,omitempty"`
}

type openAIToolCall struct {
	ID       string             `json:"id"`
	Type     string             `json:"type"`
	Function openAICallFunction `json:"function"`
}

type openAICallFunction struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// openAITool is a tool, or the choice of one by its name.
type openAITool struct {
	Type     string         `json:"type"`
	Function openAIFunction `json:"function"`
}

type openAIFunction struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters,omitempty"`
	Strict      *bool           `json:"strict,omitempty"`
}

type openAIFormat struct {
	Type   string            `json:"type"`
	Schema *openAIJSONSchema `json:"json_schema,omitempty"`
}

type openAIJSONSchema struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Schema      json.RawMessage `json:"schema"`
	Strict      *bool           `json:"strict,omitempty"`
}
