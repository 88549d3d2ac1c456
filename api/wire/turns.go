package wire

import "encoding/json"

// MessageRequest has either `content` or a true `regenerate`. Duplicate keys and null are rejected: omit the field
// instead.
//
//schema:closed
type MessageRequest struct {
	Content string `json:"content,omitempty" schema:"minLength=1"` // the user's message

	// Answer the last message again and replace its answer.
	Regenerate bool `json:"regenerate,omitempty"`

	Debug *bool `json:"debug,omitempty"` // send each model request as an event `debug_prompt`

	// Whether to respond with events. Default: true if the header Accept has text/event-stream.
	Stream *bool `json:"stream,omitempty"`

	// The format of tool results in the response. The model always reads the raw text. Default: `markdown`.
	Results string `json:"results,omitempty" schema:"enum=markdown|plain"`

	// The participants of the conversation, which determine the offered tools. Default: `main`, one trusted person. If
	// the credentials set a stricter context, that one applies.
	Context string `json:"context,omitempty" schema:"enum=main|group|group sandboxed"`

	// Offers the tools of the device also while it sleeps. Their calls then wait for it; a later turn learns their
	// outcomes. The header `X-Farhand-Queue` has the same effect.
	Queue *Queue `json:"queue,omitempty"`
}

// TokenUsage is the number of tokens that a turn used.
type TokenUsage struct {
	InputTokens  int `json:"input_tokens" schema:"minimum=0"`
	OutputTokens int `json:"output_tokens" schema:"minimum=0"`
}

// Values of turns.
type (
	// TurnStop is why the model stopped: it was done, reached its token limit, called tools, or refused.
	//
	//schema:enum=stop|tool_calls|length|content_filter
	TurnStop = string

	// TurnCallStatus is the progress of a call in a turn.
	//
	//schema:enum=pending|executing|completed|failed
	TurnCallStatus = string
)

// TurnCall is a call of a tool in a turn.
type TurnCall struct {
	ID     string          `json:"id"` // as in /api/calls
	Name   string          `json:"name"`
	Args   json.RawMessage `json:"args"` // an object, or the model's text if that was not JSON
	Status TurnCallStatus  `json:"status"`
	Output string          `json:"output"`
	Parts  PartList        `json:"parts,omitempty"`
}

// TurnAnswer is the response to a message after the turn has ended.
type TurnAnswer struct {
	Turn         string     `json:"turn_id"`
	SessionID    SessionID  `json:"session_id"`
	FullResponse string     `json:"full_response"` // the model's whole text of this turn
	ToolCalls    []TurnCall `json:"tool_calls"`    // in the order of the model's requests
	Stop         TurnStop   `json:"stop_reason,omitempty"`
	Usage        TokenUsage `json:"usage"`
	MessageCount int        `json:"message_count" schema:"minimum=0"` // of the whole conversation
	Title        string     `json:"title,omitempty"`
	DurationMS   int64      `json:"duration_ms" schema:"minimum=0"`
}

// TurnText is a piece of the answer, or of the model's reasoning.
type TurnText struct {
	Type    string `json:"type" schema:"enum=chunk|thinking"`
	Content string `json:"content"`
}

// TurnToolCall: a tool is being called.
type TurnToolCall struct {
	Type   string          `json:"type" schema:"enum=tool_call"`
	ID     string          `json:"id"`
	Name   string          `json:"name"`
	Args   json.RawMessage `json:"args"`
	Status TurnCallStatus  `json:"status"`
}

// TurnToolResult: a call has ended.
type TurnToolResult struct {
	Type   string         `json:"type" schema:"enum=tool_result"`
	ID     string         `json:"id"`
	Name   string         `json:"name"`
	Output string         `json:"output"`
	Status TurnCallStatus `json:"status"`
	Parts  PartList       `json:"parts,omitempty"`
}

// TurnPrompt is, with `debug`, the next model request.
type TurnPrompt struct {
	Type            string          `json:"type" schema:"enum=debug_prompt"`
	Messages        []PromptMessage `json:"messages"`
	EstimatedTokens int             `json:"estimated_tokens"`
}

// PromptMessage is a message as sent to the model.
//
//schema:open
type PromptMessage struct {
	Role    string `json:"role,omitempty"`
	Content string `json:"content,omitempty"`
}

// TurnTitle is the conversation's new title.
type TurnTitle struct {
	Type  string `json:"type" schema:"enum=title_updated"`
	Title string `json:"title"`
}

// TurnMark marks a point of a turn. `chunk_reset`: the whole text follows and replaces the streamed text. `aborted`: a
// request ended the turn; its messages so far are stored.
type TurnMark struct {
	Type string `json:"type" schema:"enum=chunk_reset|aborted"`
}

// TurnApproval is about an approval. `approval_request`: the turn waits for a person. `approval_decided`: the outcome.
type TurnApproval struct {
	Type string `json:"type" schema:"enum=approval_request|approval_decided"`
	Approval
}

// TurnDone is the end of a turn.
type TurnDone struct {
	Type         string     `json:"type" schema:"enum=done"`
	FullResponse string     `json:"full_response"`
	Turn         string     `json:"turn_id"`
	Stop         TurnStop   `json:"stop_reason,omitempty"`
	Usage        TokenUsage `json:"usage"`
	MessageCount int        `json:"message_count" schema:"minimum=0"`
	DurationMS   int64      `json:"duration_ms" schema:"minimum=0"`
}

// TurnFailed: the turn failed.
type TurnFailed struct {
	Type    string `json:"type" schema:"enum=error"`
	Message string `json:"message"`
	Code    string `json:"code"`                     // as in the chat protocol: `PROVIDER_ERROR`, …
	RetryMS int64  `json:"retry_after_ms,omitempty"` // how long to wait before a retry
}

// Transcript is a conversation, or the last part of a long one.
type Transcript struct {
	SessionID    SessionID `json:"session_id"`
	Title        string    `json:"title"`                            // empty while it has none
	Busy         bool      `json:"busy"`                             // a turn is running
	MessageCount int       `json:"message_count" schema:"minimum=0"` // of the whole conversation
	Messages     []Message `json:"messages"`
}

// Message is a message as shown to people, without the parts that only its model can read.
type Message struct {
	Role        string        `json:"role" schema:"enum=system|user|assistant|tool"`
	Content     string        `json:"content"`
	Thinking    string        `json:"thinking,omitempty"` // the model's visible reasoning
	ToolCalls   []MessageCall `json:"tool_calls,omitempty"`
	ToolCallID  string        `json:"tool_call_id,omitempty"` // for the role `tool`: the call that the message answers
	ToolName    string        `json:"tool_name,omitempty"`
	Failed      bool          `json:"failed,omitempty"` // the tool failed, or did not run
	Parts       PartList      `json:"parts,omitempty"`
	Interrupted bool          `json:"interrupted,omitempty"` // the answer was interrupted at its end

	// It is external content, or was written after external content was read.
	Tainted bool `json:"tainted,omitempty"`

	// Of a result: `outside` if third parties may have written it, `gateway` if no tool ran and the gateway says why,
	// `local` for built-in tools that read no third-party content.
	Source string `json:"source,omitempty" schema:"enum=outside|gateway|local"`

	Approved bool `json:"approved,omitempty"` // of a result: a person approved the call

	// Of a result: the call's arguments that the person has not named. By default they need approval.
	Suspects []Suspect `json:"suspects,omitempty"`

	At   Time   `json:"at,omitempty"`
	Turn string `json:"turn_id,omitempty"`
}

// MessageCall is a call that a model's message requests.
//
//schema:inline
type MessageCall struct {
	ID   string          `json:"id"`
	Name string          `json:"name"`
	Args json.RawMessage `json:"args"` // an object, or the model's text if that was not JSON
}

// Suspect is a value in the arguments of a call that the person has not named.
//
//schema:inline
type Suspect struct {
	Pointer string `json:"pointer"` // JSON Pointer into the arguments
	Value   string `json:"value"`   // shortened
	Source  string `json:"source" schema:"enum=outside|model"`
	Where   string `json:"where,omitempty"` // where the value was found
}
