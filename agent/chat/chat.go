// Package chat implements the agent. It holds conversations whose tools run on the device of the conversation. A
// message starts a turn. In a turn the model answers and requests tools until it requests no more.
//
// It imports registry, and agent with its subpackages. The APIs use Agent (chat.go); Engine is its one implementation.
// Start reading at Engine in engine.go. loop.go has the common part of all turns and the turn of a stored conversation.
// generate.go has the turn of a conversation that its caller keeps.
package chat

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/internal/envconf"
	"github.com/farhand/farhand/registry"
)

// EventType is the kind of an Event. The values are the frame types of the device protocol.
type EventType string

// The events of a turn.
const (
	EventChunk       EventType = "chunk"         // Content: a piece of the answer
	EventThinking    EventType = "thinking"      // Content: a piece of the model's reasoning
	EventToolCall    EventType = "tool_call"     // ID, Name, Args, Status
	EventToolResult  EventType = "tool_result"   // ID, Name, Output, Status, Parts
	EventChunkReset  EventType = "chunk_reset"   // the whole text follows and replaces its pieces
	EventDone        EventType = "done"          // FullResponse: the text of all iterations
	EventAborted     EventType = "aborted"       // the turn was aborted
	EventTitle       EventType = "title_updated" // Title
	EventDebugPrompt EventType = "debug_prompt"  // Messages, EstimatedTokens
	EventError       EventType = "error"         // Message, Code: the turn failed; nothing follows

	EventApprovalRequest EventType = "approval_request" // Approval: the turn waits for a person to decide about a call
	EventApprovalDecided EventType = "approval_decided" // Approval: a person has decided, or the time is up
)

// Status is the progress of a tool call in a turn.
type Status string

// The statuses.
const (
	StatusPending   Status = "pending"
	StatusExecuting Status = "executing"
	StatusCompleted Status = "completed"
	StatusFailed    Status = "failed"
)

// Event is an event in a turn.
type Event struct {
	Type            EventType
	Content         string
	Refusal         bool   // with EventChunk: Content explains why the model does not answer
	ID              string // of the call, as in /api/calls
	Name            string // of the tool, as its source names it
	Args            json.RawMessage
	Output          string
	Parts           []registry.Part // without data
	Status          Status
	FullResponse    string
	Title           string
	Messages        []provider.Message
	EstimatedTokens int
	Message         string
	Code            string
	RetryAfter      time.Duration // with EventError: when to retry; zero: unknown
	Approval        *registry.Approval
}

// Codes of EventError, and of Error.
const (
	CodeEmptyContent  = "EMPTY_CONTENT"
	CodeSessionBusy   = "SESSION_BUSY"
	CodeNoUserMessage = "NO_USER_MESSAGE"
	CodeAuth          = "AUTH_ERROR"
	CodeProvider      = "PROVIDER_ERROR"
	CodeAgent         = "AGENT_ERROR"
	CodeAgentInit     = "AGENT_INIT_FAILED"
)

// Format is the format of tool results for people. The model always reads the raw text.
type Format string

// The formats.
const (
	FormatMarkdown Format = "markdown" // in a fence
	FormatPlain    Format = "plain"
)

// Ask is the request for a turn.
type Ask struct {
	Key        registry.Key // the conversation, and the session whose tools are included
	Caller     auth.Identity
	Content    string            // the user's message; ignored with Regenerate
	Regenerate bool              // answer the last user message again
	Debug      bool              // emit debug_prompt before each request to the model
	Format     Format            // default: FormatMarkdown
	Kind       agent.ContextKind // who takes part; default: agent.ContextMain
	Owner      registry.Owner    // the owner of the conversation, if this is its first turn
	Queue      time.Duration     // how long calls may wait if the device sleeps; zero: its tools are not offered then
}

// Reply is the result of a turn.
type Reply struct {
	Turn         string // id of the turn
	FullResponse string
	Refusal      string       // the end of FullResponse: why the model does not answer; empty if it does
	Calls        []CallReport // in the order of the model's requests
	Usage        provider.Usage
	Stop         provider.StopReason
	MessageCount int
	Title        string
	Duration     time.Duration
}

// Refused reports whether the model refused and gave a reason.
func (r Reply) Refused() bool { return r.Refusal != "" && r.Refusal != noteRefused }

// CallReport is one tool call of a turn.
type CallReport struct {
	ID     string
	Name   string
	Args   json.RawMessage
	Status Status
	Output string
	Parts  []registry.Part // without data
}

// Error is the error of a failed turn. Message is for people.
type Error struct {
	Code    string
	Message string
	Cause   error
}

// Error implements error.
func (e *Error) Error() string { return e.Code + ": " + e.Message }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// RetryAfter returns how long to wait before a retry, as the provider or the gateway advises. Zero: no advice.
func (e *Error) RetryAfter() time.Duration {
	if p, ok := errors.AsType[*provider.Error](e.Cause); ok {
		return p.RetryAfter
	}
	if c, ok := errors.AsType[*registry.Error](e.Cause); ok {
		return c.RetryAfter
	}
	return 0
}

// Agent holds conversations for the API and for devices.
type Agent interface {
	// Ask runs one turn and returns when it has ended. It calls emit with every event, from one goroutine at a time.
	// The last event is done, aborted or error. Cancelling ctx stops the turn and cancels its running calls. The cause
	// ErrAborted means that the user aborted the turn. Text so far is kept, marked as interrupted. The error is an
	// *Error whose event was emitted, or ErrAborted.
	Ask(ctx context.Context, a Ask, emit func(Event)) (Reply, error)

	// Complete runs a turn of a conversation that its caller keeps.
	Complete(ctx context.Context, c Completion, emit func(Event)) (Reply, []provider.ToolCall, error)

	// Transcript returns a conversation. Busy reports whether a turn is running.
	Transcript(ctx context.Context, key registry.Key) (Transcript, error)

	// CountMessages returns how many messages a conversation has.
	CountMessages(ctx context.Context, key registry.Key) (int, error)

	// Models returns the names of the models, the default first.
	Models() []string
}

// Completion is the request for a turn without memory, with the whole conversation, as in OpenAI's chat completions.
type Completion struct {
	Queue time.Duration // as of Ask

	Key         registry.Key // the session whose tools are included; an empty Session: none
	Caller      auth.Identity
	Turn        string // id of the turn, for streamed answers that name it before they end; empty: a new one
	Model       string // empty: the default
	System      string
	Messages    []provider.Message
	Tools       []provider.Tool // run by the caller: a call of one ends the turn and is returned
	MaxTokens   int
	Temperature *float64
	Stop        []string
	Choice      provider.Choice // for all tools; provider.ChoiceNone: no tool is offered or runs
	Options     provider.Options
}

// Transcript is a conversation as people see it.
type Transcript struct {
	Title    string
	Messages []provider.Message // the last message is marked if it was interrupted
	Busy     bool
}

// Limits are the limits of turns. A zero field has its default.
type Limits struct {
	Turn          time.Duration `env:"TURN_TIMEOUT" envDefault:"10m" doc:"Time limit of a turn."`
	Wait          time.Duration `env:"TURN_WAIT" envDefault:"30s" doc:"How long a message waits for the turn before it, then fails with SESSION_BUSY."`
	Continuation  time.Duration `env:"HANDOUT_TTL" envDefault:"15m" doc:"How long /v1/chat/completions stores device results after handing a call to its caller, who may continue on any pod."`
	Iterations    int           `env:"TURN_MAX_STEPS" envDefault:"40" doc:"Model requests of one turn."`
	ToolCalls     int           `env:"TURN_MAX_CALLS" envDefault:"200" doc:"Tool calls of one turn."`
	Tokens        int           `env:"TURN_MAX_TOKENS" envDefault:"1000000" doc:"Tokens of one turn, input and output, over all its requests."`
	ContextTokens int           `env:"CONTEXT_TOKENS" envDefault:"100000" doc:"Estimated tokens of a model request; older messages are left out."`
	MaxResult     int64         `env:"MAX_RESULT" envDefault:"32KiB" doc:"Bytes of a tool result that a model reads; a longer one is cut to head and tail."`
	MaxTurns      int           `env:"MAX_TURNS" envDefault:"1000" doc:"Turns running or waiting on this pod, at most half per tenant."`

	ParallelCalls int // concurrent tool calls of one answer; default 8
	Waiting       int // turns of one session that wait on this pod for their conversation; default 4
}

// leastResult is the minimum of MaxResult. The text that remains next to the truncation note must still be useful.
const leastResult = 1 << 10

// withDefaults returns the limits with defaults filled in.
func (l Limits) withDefaults() Limits {
	envconf.Default(&l)
	l.ParallelCalls, l.Waiting = cmp.Or(l.ParallelCalls, 8), cmp.Or(l.Waiting, 4)
	return l
}

// validate checks limits after defaults are filled in.
func (l Limits) validate() error {
	counts := min(l.Iterations, l.ToolCalls, l.Tokens, l.ParallelCalls, l.ContextTokens, l.MaxTurns, l.Waiting)
	if counts < 1 || min(l.Turn, l.Continuation, l.Wait) < 1 || l.MaxResult < leastResult {
		return fmt.Errorf("chat: all Limits must be positive, and MaxResult at least %d", leastResult)
	}
	return nil
}
