package wire

import (
	"encoding/json"

	"github.com/farhand/farhand/registry"
)

// GroupRequest calls one tool of many devices: one parent call with a child call for each device.
//
//schema:closed
type GroupRequest struct {
	Tool ToolName `json:"tool"`

	// The same for every device. Validated against each device's definition of the tool.
	Args json.RawMessage `json:"args,omitempty" schema:"type=object,open"`

	// Default: all connected devices that the caller can use and that offer the tool.
	Target GroupTarget `json:"target,omitzero"`

	// Every device that the target matches.
	Select string `json:"select,omitempty" schema:"enum=all"`

	// `all` (default): every device. `first`: until one succeeds; the others are cancelled. `quorum`: until `quorum`
	// devices succeed. `race`: the next device is called after `stagger_ms` without an answer, or after a failure,
	// until one succeeds.
	Mode GroupMode `json:"mode,omitempty"`

	Quorum    int   `json:"quorum,omitempty" schema:"minimum=1,maximum=1000000"`     // with the mode `quorum`
	StaggerMS int64 `json:"stagger_ms,omitempty" schema:"minimum=1,maximum=3600000"` // with the mode `race`; default 500

	// How long the whole call may take. Default: 5 minutes. Longer timeouts are cut to the gateway's maximum.
	TimeoutMS int64 `json:"timeout_ms,omitempty" schema:"minimum=1"`

	// How long each device may take. Default: the tool's timeout, otherwise the gateway's (30 s).
	DeviceTimeoutMS int64 `json:"device_timeout_ms,omitempty" schema:"minimum=1,maximum=86400000"`

	Concurrency int `json:"concurrency,omitempty" schema:"minimum=1,maximum=256"` // devices at a time; default 64

	// With the mode `all`: calls the devices that sleep, too. Their calls wait for them.
	Queue *Queue `json:"queue,omitempty"`

	IdempotencyKey IdempotencyKey `json:"idempotency_key,omitempty"`
}

// GroupMode is when a group call has what it asks for.
//
//schema:enum=all|first|quorum|race
type GroupMode = string

// GroupTarget selects devices: by user and labels, which must all match, or by a list of ids.
//
//schema:closed
type GroupTarget struct {
	UserID     string   `json:"user_id,omitempty" schema:"minLength=1"`
	Labels     Labels   `json:"labels,omitempty"`
	DeviceIDs  []string `json:"device_ids,omitempty" schema:"minItems=1,maxItems=1000"`
	SessionIDs []string `json:"session_ids,omitempty" schema:"minItems=1,maxItems=1000"`
}

// IsZero reports whether the target selects all devices.
func (t GroupTarget) IsZero() bool {
	return t.UserID == "" && len(t.Labels)+len(t.DeviceIDs)+len(t.SessionIDs) == 0
}

// GroupCounts say what became of the devices of a group call. Each device that was called is counted once more, as
// succeeded, failed, cancelled or queued.
type GroupCounts = registry.GroupCounts

// GroupAnswer is the table of a group call. It is streamed: results come as devices answer.
type GroupAnswer struct {
	CallID  string        `json:"call_id" schema:"format=uuid"` // of the parent
	Mode    GroupMode     `json:"mode"`
	Results []GroupResult `json:"results"`

	// `succeeded`: the call has what its mode asks for, with `all` a success of every device whose call is not queued.
	State string `json:"state" schema:"enum=succeeded|failed|cancelled|timed_out|rejected"`

	Counts  GroupCounts  `json:"counts"`
	Error   string       `json:"error,omitempty"`   // why the call has not what its mode asks for, if known
	Problem *CallProblem `json:"problem,omitempty"` // why the call ended early
}

// GroupResult is what became of the call of one device: as CallAnswer, or with a problem.
type GroupResult struct {
	CallID    string    `json:"call_id,omitempty" schema:"format=uuid"` // of the child
	SessionID SessionID `json:"session_id,omitempty"`
	DeviceID  string    `json:"device_id,omitempty"`
	State     CallState `json:"state"`

	Success    *bool            `json:"success,omitempty"` // absent, like the next four members, without a result
	Output     *string          `json:"output,omitempty"`  // absent in the answer to a repeated request
	Structured registry.JSON    `json:"structured,omitzero"`
	Parts      Parts            `json:"parts,omitempty"`
	Violations OutputViolations `json:"output_violations,omitempty"`

	Error      string `json:"error,omitempty"`
	DurationMS *int64 `json:"duration_ms,omitempty" schema:"minimum=0"`

	Position  int    `json:"place,omitempty" schema:"minimum=1"`             // of a queued call, as in CallAccepted
	ExpiresAt string `json:"expires_at,omitempty" schema:"format=date-time"` // of a queued call

	Dispatched Dispatched   `json:"dispatched,omitempty"` // with problem: whether the device may have acted
	Problem    *CallProblem `json:"problem,omitempty"`
}
