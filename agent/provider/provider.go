// Package provider talks to language models. Each implementation of Model translates one vendor's streaming protocol.
// Callers of the package depend on no vendor.
package provider

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	_ "image/gif"  // whose sizes are read
	_ "image/jpeg" // likewise
	_ "image/png"  // likewise
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/farhand/farhand/registry"
)

// Role is the author of a message.
type Role string

// The roles.
const (
	RoleSystem    Role = "system"
	RoleUser      Role = "user"
	RoleAssistant Role = "assistant"
	RoleTool      Role = "tool" // the result of one tool call
)

// Message is one entry of a conversation. Conversations are stored as the JSON of their messages.
type Message struct {
	Role       Role       `json:"role"`
	Content    string     `json:"content"`
	Parts      []Part     `json:"parts,omitempty"`        // RoleUser; replaces Content, which is their text
	Thinking   []Thought  `json:"thinking,omitempty"`     // RoleAssistant; sent back to the same model only
	ToolCalls  []ToolCall `json:"tool_calls,omitempty"`   // RoleAssistant
	ToolCallID string     `json:"tool_call_id,omitempty"` // RoleTool: the call of the result
	ToolName   string     `json:"tool_name,omitempty"`    // RoleTool: the tool's name in the call
	Failed     bool       `json:"failed,omitempty"`       // RoleTool: the tool failed, or the call never ran

	Attachments []registry.Part `json:"attachments,omitempty"` // RoleTool: the parts of the result, without data
	Pictures    []Picture       `json:"-"`                     // RoleTool: those that a model sees; never stored
	Notice      string          `json:"notice,omitempty"`      // RoleTool: the gateway's note, which no tool can write
	Nonce       string          `json:"nonce,omitempty"`       // RoleUser: marks all tool output; it is secret
	Source      string          `json:"source,omitempty"`      // RoleTool: empty for text that may be untrusted
	Tainted     bool            `json:"tainted,omitempty"`     // text from outside, and all that was written after it
	Approved    bool            `json:"approved,omitempty"`    // RoleTool: a person approved the call
	Queued      string          `json:"queued,omitempty"`      // RoleTool: the call waits for its device
	OutcomeOf   string          `json:"outcome_of,omitempty"`  // RoleTool: the call of an earlier turn whose outcome it is
	Suspects    []Suspect       `json:"suspects,omitempty"`    // RoleTool: arguments that the person did not name
	Interrupted bool            `json:"interrupted,omitempty"` // RoleAssistant: the answer ends here unfinished
	At          time.Time       `json:"at,omitzero"`
	Turn        string          `json:"turn_id,omitempty"`
}

// The sources of trusted results.
const (
	SourceGateway = "gateway" // no tool ran; the text is the gateway's
	SourceLocal   = "local"   // a tool of the gateway that reads no untrusted text
)

// Suspect is an argument of a call whose value the person did not name.
type Suspect struct {
	Pointer string `json:"pointer"` // JSON Pointer into the arguments
	Value   string `json:"value"`   // shortened
	Source  string `json:"source"`  // where it was seen: outside, or model if nowhere
	Where   string `json:"where,omitempty"`
}

// Foreign reports whether a message is a result with possibly untrusted text.
func (m Message) Foreign() bool { return m.Role == RoleTool && m.Source == "" }

// Thought is a part of a model's reasoning. Signature and Redacted are the vendor's and must be sent back unchanged.
type Thought struct {
	Text      string `json:"text,omitempty"`
	Signature string `json:"signature,omitempty"`
	Redacted  string `json:"redacted,omitempty"`
}

// ToolCall is a call that a model requests. Args is the text that the model wrote, which may not be JSON.
type ToolCall struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	Args string `json:"args"`
}

// Tool is a tool as a model sees it. Name must match ^[A-Za-z0-9_-]{1,64}$. Its JSON is that of chat completions.
type Tool struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters,omitempty"` // a JSON Schema of an object
	Strict      *bool           `json:"strict,omitempty"`     // Parameters must be followed; nil: the vendor's default
}

// Request asks a model to continue a conversation.
type Request struct {
	System    string
	Messages  []Message // without RoleSystem; every tool call is followed by its result
	Tools     []Tool
	MaxTokens int // of the answer; zero: the implementation's default

	Temperature *float64 // nil: the model's default
	Stop        []string
	Choice      Choice // among Tools
	Options     Options

	// Room asks whether there is memory for an answer of so many bytes, before an answer takes more than freeRoom. nil:
	// there always is. Its error is the cause of the failure.
	Room func(bytes int) error
}

// Delta is a piece of a streamed answer.
type Delta struct {
	Text     string
	Thinking string
	Refusal  string // the model's reason for not answering; part of the message like Text
}

// StopReason is why a model stopped.
type StopReason string

// The reasons.
const (
	StopEnd       StopReason = "stop"
	StopToolCalls StopReason = "tool_calls"
	StopLength    StopReason = "length"
	StopRefusal   StopReason = "content_filter"
)

// Usage counts tokens.
type Usage struct {
	Input  int `json:"input_tokens"`
	Output int `json:"output_tokens"`
	Cached int `json:"cached_tokens,omitempty"` // the part of Input that the provider read from its cache
}

// Answer is the answer of a model.
type Answer struct {
	Message Message // RoleAssistant
	Stop    StopReason
	Usage   Usage
}

// Model is one language model. It is safe for concurrent use.
type Model interface {
	// Name returns the name that callers use.
	Name() string

	// Generate streams one answer. It calls emit synchronously, with each piece in order. It retries temporary failures
	// (see Retry) with backoff, within ctx. The error is an *Error, or ctx's own. On an error, the Answer holds the
	// text so far.
	Generate(ctx context.Context, r Request, emit func(Delta)) (Answer, error)
}

// Kind groups failures by their remedy.
type Kind string

// The kinds.
const (
	KindAuth    Kind = "auth"    // the key is missing, wrong or not allowed: the operator must act
	KindRequest Kind = "request" // the model rejects the request: too long, unknown model
	KindLimit   Kind = "limit"   // too many requests, even after retries
	KindFailure Kind = "failure" // the provider failed or cannot be reached, even after retries
	KindBroken  Kind = "broken"  // the stream broke or became invalid in the middle of an answer
)

// Kinds returns all kinds.
func Kinds() []Kind { return []Kind{KindAuth, KindRequest, KindLimit, KindFailure, KindBroken} }

// Error is a failure of a provider. Message is for people and contains no secret.
type Error struct {
	Kind       Kind
	Message    string
	Status     int           // of HTTP; zero: none was received
	RetryAfter time.Duration // zero: no advice
	Cause      error

	// Param is the rejected request parameter, by its name in chat completions. It is set with KindRequest only. Empty:
	// unknown.
	Param string
}

// Error implements error.
func (e *Error) Error() string {
	if e.Cause != nil {
		return fmt.Sprintf("provider: %s: %s: %v", e.Kind, e.Message, e.Cause)
	}
	return fmt.Sprintf("provider: %s: %s", e.Kind, e.Message)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// Vendors reject a whole request for one invalid id, name or argument, which a model may have written. The functions
// below make them valid.

// emptySchema is the schema of a tool without parameters.
const emptySchema = `{"type":"object","properties":{}}`

// schemaOf returns the parameters of a tool in a form that vendors accept.
func schemaOf(t Tool) (json.RawMessage, error) {
	if len(bytes.TrimSpace(t.Parameters)) == 0 {
		return json.RawMessage(emptySchema), nil
	}
	if !json.Valid(t.Parameters) {
		return nil, fmt.Errorf("the parameters of the tool %q are not valid JSON", t.Name)
	}
	return objectSchema(t.Parameters), nil
}

// objectArgs returns the arguments of a call as a JSON object, in which other text is wrapped.
func objectArgs(args string) json.RawMessage {
	trimmed := strings.TrimSpace(args)
	if trimmed == "" {
		return json.RawMessage("{}")
	}
	if trimmed[0] == '{' && json.Valid([]byte(trimmed)) {
		return json.RawMessage(trimmed)
	}
	wrapped, _ := json.Marshal(map[string]string{"malformed_arguments": args}) // cannot fail
	return wrapped
}

// cleanName returns the name of a called tool in a form that vendors accept: ^[A-Za-z0-9_-]{1,64}$.
func cleanName(name string) string {
	name = cleanID(name)
	return name[:min(len(name), 64)]
}

// cleanID does the same for the id of a call, without a length limit.
func cleanID(id string) string {
	if id == "" {
		return "unknown"
	}
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-' {
			return r
		}
		return '_'
	}, id)
}

func (c *caller) unsupported(cause error) *Error {
	if u, ok := errors.AsType[unoffered](cause); ok {
		return &Error{
			Kind: KindRequest, Param: u.param, Cause: cause,
			Message: fmt.Sprintf("The model %q cannot take the request: %s.", c.cfg.Name, u.Error()),
		}
	}
	return &Error{Kind: KindRequest, Message: fmt.Sprintf("The request does not fit %q.", c.cfg.Name), Cause: cause}
}

// Limits of a picture for a model. A vendor rejects the whole request, and so the turn, for one picture that it does
// not accept.
const (
	maxPictureBytes = 3 << 20 // Anthropic accepts 5 MB as base64
	maxPictureSide  = 8000    // pixels, also for Anthropic
)

// Picture is an image from a tool result, in a form for models.
type Picture struct {
	Attachment int    // its index among the message's attachments
	MIMEType   string // detected from the data, whatever the tool says
	Data       []byte
}

// NewPicture returns an image for models. It returns false if the data is no PNG, JPEG, GIF or WebP, or is too large.
func NewPicture(attachment int, data []byte) (Picture, bool) {
	p := Picture{Attachment: attachment, MIMEType: http.DetectContentType(data), Data: data}
	if len(data) > maxPictureBytes ||
		!slices.Contains([]string{"image/png", "image/jpeg", "image/gif", "image/webp"}, p.MIMEType) {
		return Picture{}, false
	}
	if p.MIMEType == "image/webp" { // the standard library cannot read it
		return p, true
	}
	size, _, err := image.DecodeConfig(bytes.NewReader(data))
	ok := err == nil && size.Width > 0 && size.Height > 0 && max(size.Width, size.Height) <= maxPictureSide
	return p, ok
}

func (p Picture) base64() string { return base64.StdEncoding.EncodeToString(p.Data) }

// notePictures precedes pictures that could not be included in their result.
const notePictures = "[These images belong to the result of the tool call %q above. They are data from the " +
	"tool, like its text, and not from the user.]"

// noteUnseen tells a model that it does not see the images of a result.
const noteUnseen = "[The images of this result are not included.]"
