package wire

import (
	"encoding/json"

	"github.com/farhand/farhand/registry"
)

// CallRequest: an empty body means {}. No key may appear twice in an object, and null stands for nothing: leave the
// field out.
//
//schema:closed
type CallRequest struct {
	// Checked against the tool's parameters, then handed to the device exactly as sent. At most 64 levels deep.
	Args json.RawMessage `json:"args,omitempty" schema:"type=object,open"`

	Target Target `json:"target,omitzero"`

	// How long to wait for the device, as a number without fraction and exponent. Default: the tool's own, else the
	// gateway's (30 s). A longer wish than the gateway allows is cut to what it allows.
	TimeoutMS int64 `json:"timeout_ms,omitempty" schema:"minimum=1"`

	// Default: `sync`. `async`: answer 202 as soon as the call has a record; the call goes on by itself.
	Mode string `json:"mode,omitempty" schema:"enum=sync|async"`

	IdempotencyKey IdempotencyKey `json:"idempotency_key,omitempty"`

	// Which session to take when several match: whichever, or the one that connected last of those that define the tool
	// as the longest connected device does. Of several that name one `device_id` both mean the longest connected.
	// Without it that is the error `ambiguous_target`.
	Select string `json:"select,omitempty" schema:"enum=any|newest"`
}

// Target is which session is meant. Several members must all match.
//
//schema:closed
type Target struct {
	SessionID string `json:"session_id,omitempty" schema:"minLength=1"`
	DeviceID  string `json:"device_id,omitempty" schema:"minLength=1"`

	// As credentials name users. Those of the gateway itself name none: nothing matches.
	UserID string `json:"user_id,omitempty" schema:"minLength=1"`

	Labels Labels `json:"labels,omitempty"`
}

// CallAnswer is the answer to a call whose tool has answered. The server writes it by hand, because it is the answer
// that it gives most.
type CallAnswer struct {
	CallID string `json:"call_id" schema:"format=uuid"`
	State  string `json:"state" schema:"enum=succeeded|failed"`

	// Whether the tool did what it is for. A tool that ran and failed is no error of the gateway.
	Success bool `json:"success"`

	Output string `json:"output"`

	// The output as JSON, when the device sent JSON other than a string.
	Structured registry.JSON `json:"structured,omitzero"`

	Parts      Parts            `json:"parts,omitempty"`
	Violations OutputViolations `json:"output_violations,omitempty"`
	Error      string           `json:"error,omitempty"`
	SessionID  SessionID        `json:"session_id,omitempty"` // absent for a tool of the gateway itself
	DeviceID   string           `json:"device_id,omitempty"`
	DurationMS int64            `json:"duration_ms" schema:"minimum=0"`
}

// CallAccepted is the answer to an asynchronous call, which continues without its request.
type CallAccepted struct {
	CallID    string    `json:"call_id" schema:"format=uuid"`
	Mode      string    `json:"mode" schema:"enum=async"`
	State     CallState `json:"state"`
	SessionID SessionID `json:"session_id,omitempty"` // absent for a tool of the gateway itself
	DeviceID  string    `json:"device_id,omitempty"`

	// The approval that an asynchronous call waits for, or waited for. Its time starts when a person allows it.
	ApprovalID ApprovalID `json:"approval_id,omitempty"`

	Approvers []string `json:"approvers,omitempty"` // who may decide about it, as far as that is known
}

// CallRecord is the record of a call. The members from success on are those of a call's answer. They are absent until
// the device has answered.
type CallRecord struct {
	CallID    string    `json:"call_id" schema:"format=uuid"`
	Tool      string    `json:"tool"`
	SessionID SessionID `json:"session_id,omitempty"`
	DeviceID  string    `json:"device_id,omitempty"`
	UserID    string    `json:"user_id,omitempty"` // of the caller

	// builtin: the tool is one of the gateway itself. mcp: and a name: of that MCP server. Absent for tools of devices.
	Source string `json:"source,omitempty" schema:"pattern=^(builtin|mcp:.+)$"`

	// The turn of a conversation in which the call was made. Absent outside of conversations.
	TurnID string `json:"turn_id,omitempty"`

	Mode       string     `json:"mode" schema:"enum=sync|async"`
	State      CallState  `json:"state"`
	Status     CallStatus `json:"status"`
	Dispatched Dispatched `json:"dispatched"`

	// Of calls that ended without a result: nothing ran, and asking again may help.
	Retryable *bool `json:"retryable,omitempty"`

	Late      bool       `json:"late"` // the answer came after the caller had been told something else
	Timeline  []CallStep `json:"timeline"`
	TimeoutMS int64      `json:"timeout_ms" schema:"minimum=0"`

	// The approval that the call waits for, or waited for. The time of an asynchronous call starts when a person allows
	// it.
	ApprovalID ApprovalID `json:"approval_id,omitempty"`

	// Equal for equal arguments. The arguments themselves are not kept.
	ArgsDigest string `json:"args_digest,omitempty" schema:"pattern=^[0-9a-f]{64}$"`

	Pod   string `json:"pod"`             // the pod that was asked
	Owner string `json:"owner,omitempty"` // the pod that delivered the call to the device

	// This and the next four once the device has answered, as in the answer to the call; in lists and feeds without
	// what the tool returned.
	Success *bool `json:"success,omitempty"`

	// Only false: what the tool returned was not kept, as of a call that its caller waited for and that was soon over.
	// Then output, structured and parts are absent.
	OutputKept *bool `json:"output_kept,omitempty" schema:"enum=false"`

	Output     *string          `json:"output,omitempty"`
	Structured registry.JSON    `json:"structured,omitzero"`
	Parts      Parts            `json:"parts,omitempty"`
	Violations OutputViolations `json:"output_violations,omitempty"`
	Error      string           `json:"error,omitempty"`
	Problem    *CallProblem     `json:"problem,omitempty"` // of calls that ended without a result
}

// CallStep is a state of a call, and when it began.
//
//schema:inline
type CallStep struct {
	State CallState `json:"state"`
	At    Time      `json:"at"`
}

// CallProblem is why a call ended without a result, like the answer to its caller.
//
//schema:inline
type CallProblem struct {
	Code   ErrorCode `json:"code"`
	Detail string    `json:"detail"`
}

// CallList is a page of the finished calls.
type CallList struct {
	Calls      []CallRecord `json:"calls"`
	NextCursor NextCursor   `json:"next_cursor,omitempty"`
}

// CallEvent is a line of a call's log.
type CallEvent struct {
	CallID   string    `json:"call_id" schema:"format=uuid"`
	Type     string    `json:"type" schema:"enum=state|progress|truncated"`
	State    CallState `json:"state,omitempty"`
	Progress *float64  `json:"progress,omitempty"`
	Total    *float64  `json:"total,omitempty"`
	Message  string    `json:"message,omitempty"`
	Chunk    string    `json:"chunk,omitempty"` // a part of the output
	At       Time      `json:"at"`
}

// ActivityType is what an entry of the feed is about.
//
//schema:enum=session.connected|session.updated|session.disconnected|session.tools|call.finished|call.progress
//schema:enum=turn.started|turn.finished|pod.died|approval.requested|approval.decided
type ActivityType = string

// Activity is an entry of the feed.
type Activity struct {
	Type      ActivityType       `json:"type"`
	At        Time               `json:"at"`
	Pod       string             `json:"pod"` // the pod that tells
	SessionID SessionID          `json:"session_id,omitempty"`
	DeviceID  string             `json:"device_id,omitempty"`
	UserID    string             `json:"user_id,omitempty"` // whose session it is
	Tools     *[]ToolName        `json:"tools,omitempty"`   // with `session.tools`: all that are offered now
	Reason    string             `json:"reason,omitempty"`
	Call      *CallRecord        `json:"call,omitempty"`
	Turn      *registry.TurnNote `json:"turn,omitempty"` // with `turn.started` and `turn.finished`
	Approval  *ApprovalNote      `json:"approval,omitempty"`
}

// ApprovalNote is what the feed says of an approval.
type ApprovalNote struct {
	ID        ApprovalID    `json:"id"`
	CallID    string        `json:"call_id" schema:"format=uuid"`
	Tool      string        `json:"tool"`
	UserID    string        `json:"user_id,omitempty"`
	State     ApprovalState `json:"state"`
	DecidedBy string        `json:"decided_by,omitempty"`
	ExpiresAt Time          `json:"expires_at"`
}

// TicketRequest is a request for a ticket of an event stream.
//
//schema:closed
type TicketRequest struct {
	// The stream: `/api/events`, or `/api/calls/{id}/events`.
	Path string `json:"path,omitempty" schema:"default=/api/events"`
}

// EventTicket is a ticket with which a page opens one event stream, once.
type EventTicket struct {
	Ticket    string `json:"ticket"`
	URL       string `json:"url"`        // the path of the stream with the ticket, for an EventSource
	ExpiresIn int    `json:"expires_in"` // seconds
}
