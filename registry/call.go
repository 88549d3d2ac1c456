package registry

import (
	"context"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/farhand/farhand/internal/strictjson"
)

// Call is one invocation of one tool of one session.
type Call struct {
	ID      string
	Route   Route
	Args    JSON          // an object; empty if Long has the arguments
	Timeout time.Duration // how long the caller waits, counted from Router.Call

	// Long has arguments that are dropped once the device has the call. Nil: the arguments are in Args.
	Long *LongArgs

	// Durable says that the call has a record in the store. The record is claimed before the device gets the call, and
	// the answer is stored before the caller gets it.
	Durable bool

	// Attempt counts earlier attempts under this id that were rejected because their route was stale.
	Attempt int64

	// Approved says that a person decided that this very call may run. A device that would ask its own person need not.
	Approved bool

	// Order makes the call wait until the ordered calls before it have ended. InOrder, if set, is called when the call
	// is queued in its order. It may be called again, and is never called if the call is refused before. Accepted is
	// when the first attempt began, and zero in that attempt. By it, a pod puts a further attempt before the calls that
	// were accepted later.
	Order    Order
	InOrder  func()
	Accepted time.Time

	// Record, if set, is updated while the call runs. It belongs to the calling goroutine.
	Record *Record
}

// Age returns how long ago an ordered call was accepted, in a further attempt; zero: this is the first.
func (c *Call) Age() time.Duration {
	if c.Order == OrderNone || c.Accepted.IsZero() {
		return 0
	}
	return time.Since(c.Accepted)
}

// Order says which calls of a session run one at a time, in the order in which they were accepted.
type Order string

// The orders. A call of one order does not wait for calls of another.
const (
	OrderNone    Order = ""
	OrderSession Order = "session" // all calls of the session with this order
	OrderTool    Order = "tool"    // those of the same tool
)

// Arguments returns the arguments from Long or Args. With Long, they are gone once the device has the call.
func (c *Call) Arguments() JSON {
	if c.Long != nil {
		return c.Long.Args
	}
	return c.Args
}

// LongArgs holds the arguments of a call that are large enough for memory to matter: a device may take minutes to
// answer. They belong to the calling goroutine.
type LongArgs struct {
	Args JSON
	Sent func() // called once, when the device has the call; must not be nil
}

// Drop releases the arguments, because the device has the call and it will not be sent again. Further calls do nothing,
// and neither does a call on nil.
func (a *LongArgs) Drop() {
	if a == nil || a.Args.IsZero() {
		return
	}
	a.Args = JSON{}
	a.Sent()
}

// NewCallID returns a random id, a UUID of version 4. It is never reused and cannot be guessed.
func NewCallID() string { return uuid.NewString() }

// Route is a call's target: the session as known at the time of choice, and the tool's definition.
type Route struct {
	Session Session
	Spec    ToolSpec
	Target  Target // the caller's target; a session that does not match it never gets the call

	// Remembered says that the session comes from the cache, not from a read for this call. A rejection based on it may
	// be out of date; Router.ResolveAgain reads the session again.
	Remembered bool

	// Attributes is the digest of the session's attributes, on which hooks decide. Zero: unused.
	Attributes uint64
}

// Result is a device's answer. A tool that ran and failed has Success false and a nil error, because the gateway did
// its job.
type Result struct {
	Success    bool        `json:"success"`
	Output     string      `json:"output"`
	Structured JSON        `json:"structured,omitzero"` // set when the device sent JSON other than a string
	Error      string      `json:"error,omitempty"`
	Parts      []Part      `json:"parts,omitempty"`      // non-text output: images, audio, files
	Violations []Violation `json:"violations,omitempty"` // of the tool's output schema by the answer
	Withheld   *Error      `json:"withheld,omitempty"`   // why readers do not get the device's answer; nil if they do
	Notice     string      `json:"-"`                    // a hook's text for the model that reads the result
}

// NewResult builds a result from a device's output. A string becomes the text. Any other value is kept as Structured,
// and its JSON text becomes the output.
func NewResult(success bool, output JSON, message string) Result {
	r := Result{Success: success, Error: message}
	switch {
	case output.IsZero() || output.String() == "null":
	case output.IsString():
		r.Output = strictjson.Text(output.Raw())
	default:
		r.Output, r.Structured = output.String(), output
	}
	if !success && r.Output == "" {
		r.Output = message // so that a model reads why
	}
	return r
}

// Remark returns a note for the model if the answer does not satisfy the tool's output schema, and why; else empty. The
// device can influence the text.
func (r *Result) Remark() string {
	if len(r.Violations) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("[The answer does not satisfy the output schema of its tool:")
	for _, v := range r.Violations {
		b.WriteString("\n" + v.Pointer + ": " + v.Message)
	}
	b.WriteString("]")
	return b.String()
}

// State returns the final state of a call with this result.
func (r Result) State() State {
	if r.Success {
		return StateSucceeded
	}
	return StateFailed
}

// Amend returns the result for readers. rec is the call's record without the result.
type Amend func(ctx context.Context, rec Record, res Result) Result

// CallStore keeps the records of calls that must outlive their request. A record expires one retention time after its
// last change.
type CallStore interface {
	// CreateCall stores a new record in state accepted. Its deadline is the store's now plus HoldMS plus TimeoutMS. A
	// call with HoldMS waits until BeginCall. A record in state queued stays in it, and its deadline is now plus
	// HoldMS. If the record's idempotency key is taken, nothing is stored, and the record of the call that has the key
	// is returned with created false. Keys are scoped to a tenant and live for the idempotency TTL.
	CreateCall(ctx context.Context, r Record) (stored Record, created bool, err error)

	// CallByKey returns the record for an idempotency key. It fails with CodeCallNotFound if the key is free.
	CallByKey(ctx context.Context, tenant, key string) (Record, error)

	// MoveCall applies an event atomically, by the state machine of State. Moved.Applied is false if the event does not
	// apply in the call's present state, which is in the returned record. If the event is final, Moved.Watchers lists
	// the pods to wake. It fails with CodeCallNotFound if there is no such record.
	//
	// For an answer (EventSucceed, EventFail), c.Session must be the call's session and the call's proof one of
	// c.Proofs, unless c.Here is set. Otherwise it fails with CodeCallNotFound. With c.Reported, an end that does not
	// apply because the record already has the answer marks that answer as late.
	MoveCall(ctx context.Context, tenant, callID string, e Event, c Change) (moved Moved, err error)

	// BeginCall starts a waiting call on a pod, in state accepted, and sets its deadline to the store's now plus
	// timeout. EventQueue makes it wait again. BeginCall returns false if the call no longer waits, because it was
	// begun before or has ended. If several callers race, one begins it. It fails with CodeCallNotFound if there is no
	// such record.
	BeginCall(ctx context.Context, tenant, callID, pod string, timeout time.Duration) (Record, bool, error)

	// ReadCall returns a record. If its deadline has passed and its pod did not end it, ReadCall ends it first: expired
	// if it had not been delivered, timed_out otherwise. It fails with CodeCallNotFound if there is none.
	ReadCall(ctx context.Context, tenant, callID string) (Record, error)

	// WatchCall returns the record. Unless it is final, WatchCall also registers pod to be woken by a Reply with Wake
	// when it is.
	WatchCall(ctx context.Context, tenant, callID, pod string) (Record, error)

	// KeepCalls stores records of calls that ran without one: slow calls while they run, and calls whose answer may
	// still come. State.Keep merges a record with an existing one. An answer that MoveCall applies to such a record is
	// late: a caller that still waited would have kept it. If IsStoreFull is true of the error, the records that fitted
	// are stored, so that one tenant cannot keep out those of others.
	KeepCalls(ctx context.Context, records []Record) error

	// FreeKey frees an idempotency key, if it still belongs to that call. Nothing ran, so the key can be used again.
	FreeKey(ctx context.Context, tenant, key, callID string) error

	// AppendCallEvents adds to the event logs of calls. A log is capped, expires with its record, and is ordered by
	// CallEvent.Rank: an event that arrives too late is dropped. The methods above log every step of a record
	// themselves, except that it is queued: a waiting call takes no log. If IsStoreFull is true of the error, the
	// events that fitted are stored.
	AppendCallEvents(ctx context.Context, events []CallEvent) error

	// CallEvents returns at most limit events of a call in order, starting after the one with the id after.
	CallEvents(ctx context.Context, tenant, callID, after string, limit int) ([]CallEvent, error)
}

// Moved is the outcome of MoveCall.
type Moved struct {
	Record   Record
	Applied  bool
	Watchers []string // pods to wake
}

// CallEvent is one line of a call's event log.
type CallEvent struct {
	ID       string    `json:"-"` // set by the store; grows along the log
	Tenant   string    `json:"-"`
	CallID   string    `json:"call_id"`
	Type     string    `json:"type"`
	State    State     `json:"state,omitempty"`
	Progress *float64  `json:"progress,omitempty"`
	Total    *float64  `json:"total,omitempty"`
	Message  string    `json:"message,omitempty"`
	Chunk    string    `json:"chunk,omitempty"`
	At       time.Time `json:"at"`

	Session string `json:"-"` // the session whose budget is charged
	UserID  string `json:"-"` // the caller's user, whose budget is also charged; empty: none
}

// Report is a running call's progress report. Every field is optional: nil and empty fields are ignored.
type Report struct {
	Progress *float64 // current progress
	Total    *float64 // the value of Progress at the end
	Message  string
	Chunk    string // a part of the output
}

// Rank orders the events of one call. A log rejects an event with a lower rank than its last, and one with the same
// rank unless the rank is odd. So a log stays in order whichever pods write to it, and only a late answer can follow
// the end of its call.
func (e CallEvent) Rank() int {
	if e.Type == CallEventState {
		return e.State.traits().rank
	}
	return progressRank
}

// StateEvent returns the event for a call's change to a state.
func StateEvent(tenant, callID string, s State, at time.Time) CallEvent {
	return CallEvent{Tenant: tenant, CallID: callID, Type: CallEventState, State: s, At: at}
}

// Types of call events.
const (
	CallEventState     = "state"
	CallEventProgress  = "progress"
	CallEventTruncated = "truncated" // later reports of the device are dropped; Message says why
)

// EventPage is how many events of a call are read at once. Each may be as long as a chunk of output.
const EventPage = 16

// CallQuery selects calls. Empty fields do not restrict.
type CallQuery struct {
	Tenant    string
	Tool      string
	SessionID string
	DeviceID  string
	UserID    string // of the caller
	Parent    string // the group call whose children are listed
	Pod       string // of the caller or of the device
	State     State

	// From and To bound the time at which the call's end was recorded, by the store's clock. From is inclusive, To
	// exclusive.
	From, To time.Time

	Before string // the cursor that the previous page returned
	Limit  int
}

// Matches reports whether a call matches all of the query's fields except the times.
func (q CallQuery) Matches(r *Record) bool {
	return (q.Tool == "" || q.Tool == r.Tool) && (q.SessionID == "" || q.SessionID == r.SessionID) &&
		(q.DeviceID == "" || q.DeviceID == r.DeviceID) && (q.UserID == "" || q.UserID == r.UserID) &&
		(q.Parent == "" || q.Parent == r.Parent) &&
		(q.Pod == "" || q.Pod == r.Pod || q.Pod == r.Owner) && (q.State == "" || q.State == r.State)
}
