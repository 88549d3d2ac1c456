package wire

import (
	"encoding/json"

	"github.com/farhand/farhand/registry"
)

// CallRequest is a request for a call. An empty body means {}. Duplicate keys and null are rejected: omit the field
// instead.
//
//schema:closed
type CallRequest struct {
	// Validated against the tool's parameters, then passed to the device exactly as sent. At most 64 levels deep.
	Args json.RawMessage `json:"args,omitempty" schema:"type=object,open"`

	Target Target `json:"target,omitzero"`

	// How long to wait for the device, as an integer without exponent. Default: the tool's timeout, otherwise the
	// gateway's (30 s). Longer timeouts are cut to the gateway's maximum.
	TimeoutMS int64 `json:"timeout_ms,omitempty" schema:"minimum=1"`

	// Default: `sync`. `async`: respond with 202 once the call has a record; the call continues in the background.
	Mode string `json:"mode,omitempty" schema:"enum=sync|async"`

	IdempotencyKey IdempotencyKey `json:"idempotency_key,omitempty"`

	// The session to use if several match. `any`: any of them. `newest`: the last connected of those that define the
	// tool like the longest connected one. Among several with the same `device_id`, both use the longest connected one.
	// Default: the error `ambiguous_target`.
	Select string `json:"select,omitempty" schema:"enum=any|newest"`

	// Lets a call to a sleeping device wait for it. `target` must then name one device.
	Queue   *Queue  `json:"queue,omitempty"`
	Ordered Ordered `json:"ordered,omitempty"`
}

// Queue lets a call to a sleeping device wait for it.
//
//schema:closed
type Queue struct {
	// The longest wait, 1 s to the gateway's maximum (`FARHAND_QUEUE_TTL`).
	TTLMS int64 `json:"ttl_ms" schema:"minimum=1000"`
}

// Ordered makes the calls that set it run one at a time on a device, in the order in which they were accepted. `true`:
// the calls of the session with `true`. `tool`: the calls of the tool with `tool`. An asynchronous call is accepted
// when the response arrives. The timeout includes the wait. Tools of the gateway ignore it.
type Ordered = json.RawMessage

// Target selects the session. All members must match.
//
//schema:closed
type Target struct {
	SessionID string `json:"session_id,omitempty" schema:"minLength=1"`
	DeviceID  string `json:"device_id,omitempty" schema:"minLength=1"`

	// The user as named by credentials. The gateway's own credentials name no user, so nothing matches.
	UserID string `json:"user_id,omitempty" schema:"minLength=1"`

	Labels Labels `json:"labels,omitempty"`
}

// CallAnswer is the result of a call. The server writes it by hand, because it is the answer that it gives most.
type CallAnswer struct {
	CallID string `json:"call_id" schema:"format=uuid"`
	State  string `json:"state" schema:"enum=succeeded|failed"`

	// Whether the tool succeeded. A tool that ran and failed is not an error of the gateway.
	Success bool `json:"success"`

	Output string `json:"output"`

	// The output as JSON, if the device sent JSON other than a string.
	Structured registry.JSON `json:"structured,omitzero"`

	Parts      Parts            `json:"parts,omitempty"`
	Violations OutputViolations `json:"output_violations,omitempty"`
	Error      string           `json:"error,omitempty"`
	SessionID  SessionID        `json:"session_id,omitempty"` // absent for built-in tools
	DeviceID   string           `json:"device_id,omitempty"`
	DurationMS int64            `json:"duration_ms" schema:"minimum=0"`
}

// CallAccepted is the answer to an asynchronous call, which continues without its request.
type CallAccepted struct {
	CallID    string    `json:"call_id" schema:"format=uuid"`
	Mode      string    `json:"mode" schema:"enum=async"`
	State     CallState `json:"state"`
	SessionID SessionID `json:"session_id,omitempty"` // absent for built-in tools
	DeviceID  string    `json:"device_id,omitempty"`

	// The approval that an asynchronous call waits or waited for. The call's timeout starts when a person allows it.
	ApprovalID ApprovalID `json:"approval_id,omitempty"`

	Approvers []string `json:"approvers,omitempty"` // who may decide, if known

	// The place of a queued call in the queue of its device, from 1 on.
	Position int `json:"place,omitempty" schema:"minimum=1"`

	// When a queued call expires if its device has not taken it.
	ExpiresAt string `json:"expires_at,omitempty" schema:"format=date-time"`
}

// QueuedCalls are the calls that wait for a device, in order. The first one may be running.
type QueuedCalls struct {
	Calls []CallRecord `json:"calls"`
}

// CallRecord is the record of a call. The members from success on are as in CallAnswer. They are absent until the
// device has answered.
type CallRecord struct {
	CallID    string    `json:"call_id" schema:"format=uuid"`
	Tool      string    `json:"tool"`
	SessionID SessionID `json:"session_id,omitempty"`
	DeviceID  string    `json:"device_id,omitempty"`
	UserID    string    `json:"user_id,omitempty"` // of the caller

	// builtin: a built-in tool. mcp:NAME: a tool of that MCP server. Absent for tools of devices.
	Source string `json:"source,omitempty" schema:"pattern=^(builtin|mcp:.+)$"`

	// The turn of a conversation in which the call was made. Absent outside conversations.
	TurnID string `json:"turn_id,omitempty"`

	// The trace of the request, if the gateway makes traces.
	TraceID string `json:"trace_id,omitempty" schema:"pattern=^[0-9a-f]{32}$"`

	// The group call that this call is a child of.
	ParentID string `json:"parent_id,omitempty" schema:"format=uuid"`

	// Of a group call, its own: `all`, `first`, `quorum` or `race`.
	Mode string `json:"mode" schema:"enum=sync|async|all|first|quorum|race"`

	// Of a group call that has ended.
	Counts *GroupCounts `json:"counts,omitempty"`

	State      CallState  `json:"state"`
	Status     CallStatus `json:"status"`
	Dispatched Dispatched `json:"dispatched"`

	// For calls without a result: nothing ran, and a retry may succeed.
	Retryable *bool `json:"retryable,omitempty"`

	Late      bool       `json:"late"` // the answer came after the caller had received another outcome
	Timeline  []CallStep `json:"timeline"`
	TimeoutMS int64      `json:"timeout_ms" schema:"minimum=0"`

	// Of a queued call: its place in the queue of its device, from 1 on, if one call was read.
	Position int `json:"place,omitempty" schema:"minimum=1"`

	// When a queued call expires.
	ExpiresAt string `json:"expires_at,omitempty" schema:"format=date-time"`

	// The approval that the call waits or waited for. The timeout of an asynchronous call starts when a person allows
	// it.
	ApprovalID ApprovalID `json:"approval_id,omitempty"`

	// Equal for equal arguments. The arguments are not stored.
	ArgsDigest string `json:"args_digest,omitempty" schema:"pattern=^[0-9a-f]{64}$"`

	Pod   string `json:"pod"`             // the pod that received the request
	Owner string `json:"owner,omitempty"` // the pod that delivered the call to the device

	// Present, like the next four members, once the device has answered. Lists and feeds omit the tool's output.
	Success *bool `json:"success,omitempty"`

	// Only false: the output was not stored, as for short synchronous calls. Then output, structured and parts are
	// absent.
	OutputKept *bool `json:"output_kept,omitempty" schema:"enum=false"`

	Output     *string          `json:"output,omitempty"`
	Structured registry.JSON    `json:"structured,omitzero"`
	Parts      Parts            `json:"parts,omitempty"`
	Violations OutputViolations `json:"output_violations,omitempty"`
	Error      string           `json:"error,omitempty"`
	Problem    *CallProblem     `json:"problem,omitempty"` // for calls without a result
}

// CallStep is a state of a call, and its start time.
//
//schema:inline
type CallStep struct {
	State CallState `json:"state"`
	At    Time      `json:"at"`
}

// CallProblem is why a call ended without a result, as returned to its caller.
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

// ActivityType is the type of a feed entry.
//
//schema:enum=session.connected|session.updated|session.disconnected|session.tools|call.finished|call.progress
//schema:enum=turn.started|turn.finished|pod.died|approval.requested|approval.decided
//schema:enum=budget.warning|budget.spent
type ActivityType = string

// Activity is a feed entry.
type Activity struct {
	Type      ActivityType       `json:"type"`
	At        Time               `json:"at"`
	Pod       string             `json:"pod"` // the pod that reports it
	SessionID SessionID          `json:"session_id,omitempty"`
	DeviceID  string             `json:"device_id,omitempty"`
	UserID    string             `json:"user_id,omitempty"` // the session's user
	Tools     *[]ToolName        `json:"tools,omitempty"`   // with `session.tools`: all tools now offered
	Reason    string             `json:"reason,omitempty"`
	Call      *CallRecord        `json:"call,omitempty"`
	Turn      *registry.TurnNote `json:"turn,omitempty"` // with `turn.started` and `turn.finished`
	Approval  *ApprovalNote      `json:"approval,omitempty"`
}

// ApprovalNote is an approval in the feed.
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

// EventTicket is a ticket that opens one event stream, once.
type EventTicket struct {
	Ticket    string `json:"ticket"`
	URL       string `json:"url"`        // the path of the stream with the ticket, for an EventSource
	ExpiresIn int    `json:"expires_in"` // seconds
}

// UploadRequest asks for a slot for a file that is an argument of a call.
//
//schema:closed
type UploadRequest struct {
	Size   int64  `json:"size" schema:"minimum=1"` // in bytes
	SHA256 string `json:"sha256" schema:"pattern=^[0-9a-f]{64}$"`

	// Default: `application/octet-stream`.
	MIMEType string `json:"mime_type,omitempty" schema:"maxLength=127"`
}

// Upload is a slot. PUT the bytes to `url`, with Content-Length and Content-Type as asked for, and name the upload in
// arguments as `{"$upload": "upload_id"}`. The device gets `{"url", "sha256", "size", "mime_type"}` in its place.
type Upload struct {
	UploadID  string `json:"upload_id"`
	URL       string `json:"url"`        // relative to the gateway
	ExpiresAt Time   `json:"expires_at"` // for the upload
}
