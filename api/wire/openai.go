package wire

// Completion is an answer of /v1/chat/completions, in OpenAI's format.
type Completion struct {
	ID      string             `json:"id" schema:"pattern=^chatcmpl-"`
	Object  string             `json:"object" schema:"enum=chat.completion"`
	Created int64              `json:"created"` // unix time in seconds
	Model   string             `json:"model"`
	Choices []CompletionChoice `json:"choices" schema:"minItems=1,maxItems=1"`
	Usage   CompletionUsage    `json:"usage"`
}

// CompletionChoice is the only choice of a completion.
//
//schema:inline
type CompletionChoice struct {
	Index        int               `json:"index" schema:"enum=0"`
	Message      CompletionMessage `json:"message"`
	LogProbs     *struct{}         `json:"logprobs"` // always null
	FinishReason FinishReason      `json:"finish_reason"`
}

// CompletionMessage is the message of a completion.
//
//schema:inline
type CompletionMessage struct {
	Role      string           `json:"role" schema:"enum=assistant"`
	Content   *string          `json:"content"` // the model's text; null if it only calls tools
	Reasoning string           `json:"reasoning_content,omitempty"`
	ToolCalls []CompletionCall `json:"tool_calls,omitempty"`
	Refusal   *string          `json:"refusal"` // why the model refused to answer
}

// CompletionCall is a call of one of the caller's own tools. Each is in one chunk.
type CompletionCall struct {
	Index    *int               `json:"index,omitempty" schema:"minimum=0"` // in streams only
	ID       string             `json:"id"`
	Type     string             `json:"type" schema:"enum=function"`
	Function CompletionFunction `json:"function"`
}

// CompletionFunction is the function of a CompletionCall.
//
//schema:inline
type CompletionFunction struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"` // as written by the model; may be invalid JSON
}

// CompletionUsage counts the tokens of a completion.
type CompletionUsage struct {
	Prompt     int `json:"prompt_tokens" schema:"minimum=0"`
	Completion int `json:"completion_tokens" schema:"minimum=0"`
	Total      int `json:"total_tokens" schema:"minimum=0"`
}

// FinishReason is why a completion ends.
//
//schema:enum=stop|length|content_filter|tool_calls
type FinishReason = string

// CompletionChunk is a part of a streamed completion.
type CompletionChunk struct {
	ID      string                  `json:"id" schema:"pattern=^chatcmpl-"`
	Object  string                  `json:"object" schema:"enum=chat.completion.chunk"`
	Created int64                   `json:"created"`
	Model   string                  `json:"model"`
	Choices []CompletionChunkChoice `json:"choices" schema:"maxItems=1"` // empty in the chunk with the token counts

	// With `include_usage`: null except in the last chunk.
	Usage **CompletionUsage `json:"usage,omitempty"`
}

// CompletionChunkChoice is the only choice of a CompletionChunk.
type CompletionChunkChoice struct {
	Index        int             `json:"index" schema:"enum=0"`
	Delta        CompletionDelta `json:"delta"`
	LogProbs     *struct{}       `json:"logprobs"` // always null
	FinishReason *FinishReason   `json:"finish_reason"`
}

// CompletionDelta is the content that a CompletionChunk adds.
type CompletionDelta struct {
	Role      string           `json:"role,omitempty" schema:"enum=assistant"` // in the first chunk
	Content   *string          `json:"content,omitempty"`
	Refusal   *string          `json:"refusal,omitempty"`
	Reasoning string           `json:"reasoning_content,omitempty"`
	ToolCalls []CompletionCall `json:"tool_calls,omitempty"`
}

// Model is a model in OpenAI's list format.
type Model struct {
	ID      string `json:"id"`
	Object  string `json:"object" schema:"enum=model"`
	Created int64  `json:"created" schema:"enum=0"` // not known
	OwnedBy string `json:"owned_by" schema:"enum=farhand"`
}

// ModelList has the available models.
type ModelList struct {
	Object string  `json:"object" schema:"enum=list"`
	Data   []Model `json:"data"`
}

// OpenAIError is an error in OpenAI's format.
type OpenAIError struct {
	Error OpenAIErrorDetail `json:"error"`
}

// OpenAIErrorDetail describes an error.
//
//schema:inline
type OpenAIErrorDetail struct {
	Message string  `json:"message"` // for people: the problem and what to do
	Type    string  `json:"type" schema:"enum=invalid_request_error|rate_limit_error|server_error"`
	Param   *string `json:"param"` // the invalid field

	// `invalid_api_key`, `invalid_request_error`, `model_not_found` and `rate_limit_exceeded` as in OpenAI's API,
	// otherwise the gateway's own code.
	Code string `json:"code"`
}
