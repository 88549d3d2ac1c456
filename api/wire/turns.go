package wire

import "encoding/json"

// MessageRequest: either `content` or `regenerate` that is true, and not both. No key may appear twice in an object,
// and null stands for nothing: leave the field out.
//
//schema:closed
type MessageRequest struct {
	Content string `json:"content,omitempty" schema:"minLength=1"` // what is said

	// Answer the last message again; the answer it had is forgotten.
	Regenerate bool `json:"regenerate,omitempty"`

	Debug *bool `json:"debug,omitempty"` // show each request to the model as an event `debug_prompt`

	// Whether to answer with events. Default: whether the header Accept has text/event-stream.
	Stream *bool `json:"stream,omitempty"`

	// Default: `markdown`. How results of tools are written in the answer. The model always reads the raw text.
	Results string `json:"results,omitempty" schema:"enum=markdown|plain"`

	// Who takes part in the conversation, which decides on the tools it is offered. Default: `main`, one trusted
	// person. What the credentials say is not taken back: the stricter of the two holds.
	Context string `json:"context,omitempty" schema:"enum=main|group|group sandboxed"`
}

// TokenUsage is how many tokens a turn used.
type TokenUsage struct {
	InputTokens  int `json:"input_tokens" schema:"minimum=0"`
	OutputTokens int `json:"output_tokens" schema:"minimum=0"`
}

// Words of turns.
type (
	// TurnStop is why the model stopped: of its own accord, at its limit of tokens, or because it refuses.
	//
	//schema:enum=stop|tool_calls|length|content_filter
	TurnStop = string

	// TurnCallStatus is how far a call of a turn has come.
	//
	//schema:enum=pending|executing|completed|failed
	TurnCallStatus = string
)

// TurnCall is a call of a tool in a turn.
type TurnCall struct {
	ID     string          `json:"id"` // as in /api/calls
	Name   string          `json:"name"`
	Args   json.RawMessage `json:"args"` // an object; or the text the model wrote, where that was no JSON
	Status TurnCallStatus  `json:"status"`
	Output string          `json:"output"`
	Parts  PartList        `json:"parts,omitempty"`
}

// TurnAnswer is the answer to a message, after the turn has ended.
type TurnAnswer struct {
	Turn         string     `json:"turn_id"`
	SessionID    SessionID  `json:"session_id"`
	FullResponse string     `json:"full_response"` // all that the model said in this turn
	ToolCalls    []TurnCall `json:"tool_calls"`    // in the order they were asked for
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

// TurnPrompt: with `debug`: what the model is asked next.
type TurnPrompt struct {
	Type            string          `json:"type" schema:"enum=debug_prompt"`
	Messages        []PromptMessage `json:"messages"`
	EstimatedTokens int             `json:"estimated_tokens"`
}

// PromptMessage is a message as the model is sent it.
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

// TurnMark: `chunk_reset`: what was streamed is about to be given whole. `aborted`: the turn was ended by a request;
// what was said is kept.
type TurnMark struct {
	Type string `json:"type" schema:"enum=chunk_reset|aborted"`
}

// TurnApproval: `approval_request`: the turn waits for a person. `approval_decided`: what came of it.
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
	RetryMS int64  `json:"retry_after_ms,omitempty"` // how long to wait before the message is sent again
}

// Transcript is a conversation, or the last part of a long one.
type Transcript struct {
	SessionID    SessionID `json:"session_id"`
	Title        string    `json:"title"`                            // empty while it has none
	Busy         bool      `json:"busy"`                             // a turn is under way
	MessageCount int       `json:"message_count" schema:"minimum=0"` // of the whole conversation
	Messages     []Message `json:"messages"`
}

// Message is a message as shown to people, without the parts that only its model can read.
type Message struct {
	Role        string        `json:"role" schema:"enum=system|user|assistant|tool"`
	Content     string        `json:"content"`
	Thinking    string        `json:"thinking,omitempty"` // what the model thought, as far as it shows
	ToolCalls   []MessageCall `json:"tool_calls,omitempty"`
	ToolCallID  string        `json:"tool_call_id,omitempty"` // of a message of the role `tool`: the call it answers
	ToolName    string        `json:"tool_name,omitempty"`
	Failed      bool          `json:"failed,omitempty"` // the tool failed, or did not run
	Parts       PartList      `json:"parts,omitempty"`
	Interrupted bool          `json:"interrupted,omitempty"` // the answer was cut off there

	// It is from outside, or was written after something from outside was read.
	Tainted bool `json:"tainted,omitempty"`

	// Of a result: `outside` if strangers may have written it, `gateway` if no tool ran and the gateway says why,
	// `local` for tools of the gateway that read nothing of strangers.
	Source string `json:"source,omitempty" schema:"enum=outside|gateway|local"`

	Approved bool `json:"approved,omitempty"` // of a result: a person approved the call

	// Of a result: the arguments of the call that the person has not named, for which a person is asked by default.
	Suspects []Suspect `json:"suspects,omitempty"`

	At   Time   `json:"at,omitempty"`
	Turn string `json:"turn_id,omitempty"`
}

// MessageCall is a call that a message of a model asks for.
//
//schema:inline
type MessageCall struct {
	ID   string          `json:"id"`
	Name string          `json:"name"`
	Args json.RawMessage `json:"args"` // an object; or the text the model wrote, where that was no JSON
}

// Suspect is a value in the arguments of a call that the person has not named.
//
//schema:inline
type Suspect struct {
	Pointer string `json:"pointer"` // JSON Pointer into the arguments
	Value   string `json:"value"`   // shortened
	Source  string `json:"source" schema:"enum=outside|model"`
	Where   string `json:"where,omitempty"` // what has the value
}
