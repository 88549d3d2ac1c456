package registry

import (
	"context"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/farhand/farhand/internal/strictjson"
)

// Call is one invocation of one tool of one session.
type Call struct {
	ID      string
	Route   Route
	Args    JSON          // an object; none if Long has them
	Timeout time.Duration // how long the caller waits, counted from Router.Call

	// Long has the arguments if they are not to be kept once the device has the call. Nil: Args has them.
	Long *LongArgs

	// Durable says that the call has a record in the store: it is claimed there before the device sees it, and its
	// answer is stored before anybody gets it.
	Durable bool

	// Attempt is how often the call was made before under this id, and refused because its route was stale.
	Attempt int64

	// Record, if it is set, is updated while the call runs. It belongs to the goroutine that calls.
	Record *Record
}

// Arguments returns the arguments, wherever the call has them. They are gone once the device has a call with Long.
func (c *Call) Arguments() JSON {
	if c.Long != nil {
		return c.Long.Args
	}
	return c.Args
}

// LongArgs are the arguments of a call that is long enough for its memory to matter: a device may take minutes to
// answer. They belong to the goroutine that calls.
type LongArgs struct {
	Args JSON
	Sent func() // called once, when the device has the call; must not be nil
}

// Drop gives the arguments up, because the device has the call: it will not be sent again. Further calls do nothing,
// and so does Drop of nil.
func (a *LongArgs) Drop() {
	if a == nil || a.Args.IsZero() {
		return
	}
	a.Args = JSON{}
	a.Sent()
}

// NewCallID returns a random id, a UUID of version 4, never reused and not guessable.
func NewCallID() string { return uuid.NewString() }

// Route is where a call goes: the session that was chosen, as it was known then, and the tool as it was specified.
type Route struct {
	Session Session
	Spec    ToolSpec
	Target  Target // what the caller asked for; a session that does not match it never gets the call

	// Remembered says that the session was not read for this call, but for an earlier one. A refusal based on it may be
	// wrong by now; Router.ResolveAgain reads the session again.
	Remembered bool

	// Attributes is the digest of the session's attributes, on which hooks decide. Zero: they do not matter.
	Attributes uint64
}

// Result is what a device answered. A tool that ran and failed has Success false and a nil error: the gateway did
// its job.
type Result struct {
	Success    bool        `json:"success"`
	Output     string      `json:"output"`
	Structured JSON        `json:"structured,omitzero"` // set when the device sent JSON other than a string
	Error      string      `json:"error,omitempty"`
	Parts      []Part      `json:"parts,omitempty"`      // what is no text: images, audio, files
	Violations []Violation `json:"violations,omitempty"` // of the tool's output schema by the answer
	Withheld   *Error      `json:"withheld,omitempty"`   // why the device's answer is withheld from readers; nil if not
	Notice     string      `json:"-"`                    // a hook's text for a model that reads the result
}

// NewResult builds a result from the output a device sent: a string is taken as text, any other value
// is kept as it is and its text becomes the output.
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

// Remark returns what a model is told of the answer beside it: that it does not satisfy the output schema of its tool,
// and why; empty if there is nothing to tell. The device has a say in the text.
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

// State returns the final state this result puts its call in.
func (r Result) State() State {
	if r.Success {
		return StateSucceeded
	}
	return StateFailed
}

// Amend returns the result as it may be read. rec is the record of the call without the result.
type Amend func(ctx context.Context, rec Record, res Result) Result

// CallStore keeps the records of calls that must outlive their request. Its methods are safe for concurrent use; a
// failure of the store is an *Error with CodeStoreUnavailable. Records expire one retention time after their last
// change. No method keeps a slice that it is given.
type CallStore interface {
	// CreateCall stores a new record, in state accepted, with its deadline set to the store's now plus HoldMS plus
	// TimeoutMS. A call with HoldMS is held: it waits for BeginCall. If the record carries an idempotency key that is
	// taken, nothing is stored and the record of the call that has the key is returned with created false. Keys are
	// scoped to a tenant and live for the idempotency TTL.
	CreateCall(ctx context.Context, r Record) (stored Record, created bool, err error)

	// CallByKey returns the record of the call an idempotency key belongs to, CodeCallNotFound if it is free.
	CallByKey(ctx context.Context, tenant, key string) (Record, error)

	// MoveCall applies an event, atomically and by the state machine of State. Moved.Applied is false if the event
	// means nothing in the call's present state, which is in the returned record. With an answer (EventSucceed,
	// EventFail) c.Session must be the call's session and the call's proof one of c.Proofs, unless c.Here is set, or
	// the call is not found. When the event is final, Moved.Watchers are the pods that asked to be woken.
	// CodeCallNotFound if there is no such record. With c.Told, an end that does not apply because the answer is in the
	// record marks that as late.
	MoveCall(ctx context.Context, tenant, callID string, e Event, c Change) (moved Moved, err error)

	// BeginCall starts the time of a held call on a pod: its deadline is the store's now plus timeout from then on. It
	// reports false if the call is not held any more, because it was begun before or has ended. Of several that begin a
	// call, one does. CodeCallNotFound if there is no such record.
	BeginCall(ctx context.Context, tenant, callID, pod string, timeout time.Duration) (Record, bool, error)

	// ReadCall returns a record. A record whose deadline has passed and whose pod did not end it is ended first:
	// expired if it had not been delivered, timed_out otherwise. CodeCallNotFound if there is none.
	ReadCall(ctx context.Context, tenant, callID string) (Record, error)

	// WatchCall returns the record and, unless it is final, registers pod to be woken (by a Reply with Wake) when it
	// is.
	WatchCall(ctx context.Context, tenant, callID, pod string) (Record, error)

	// KeepCalls stores records of calls that ran without one: slow calls while they run, and calls whose answer may
	// still come. State.Keep decides what becomes of a record that is there already. An answer that MoveCall applies to
	// such a record came late, because a caller that still waited would have kept it. If IsStoreFull is true of its
	// error, it has stored the records for which there was room: one tenant must not keep those of others out.
	KeepCalls(ctx context.Context, records []Record) error

	// FreeKey frees an idempotency key, if it still belongs to that call. Nothing ran, so the key may be used again.
	FreeKey(ctx context.Context, tenant, key, callID string) error

	// AppendCallEvents adds to the event logs of calls, each of which is capped, expires with the record and is in the
	// order of CallEvent.Rank: an event that comes too late is dropped. The methods above put every step of a record
	// into its log by themselves. If IsStoreFull is true of its error, it has stored the events for which there was
	// room.
	AppendCallEvents(ctx context.Context, events []CallEvent) error

	// CallEvents returns the events of one call after the one with the id after, in order, at most limit.
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

	Session string // the session whose budget is charged
}

// Report is what a running call says of itself. Every field is optional: nil and empty ones say nothing.
type Report struct {
	Progress *float64 // how far the call is
	Total    *float64 // the value of Progress at the end
	Message  string
	Chunk    string // a part of the output
}

// Rank orders the events of one call: a log takes none of a lower rank than its last, and one of the same only if the
// rank is odd. So a log is in order whichever pods write to it, and nothing but a late answer follows the end of its
// call.
func (e CallEvent) Rank() int {
	if e.Type == CallEventState {
		return e.State.rank()
	}
	return progressRank
}

// StateEvent is the event that says which state a call is in.
func StateEvent(tenant, callID string, s State, at time.Time) CallEvent {
	return CallEvent{Tenant: tenant, CallID: callID, Type: CallEventState, State: s, At: at}
}

// Types of call events.
const (
	CallEventState     = "state"
	CallEventProgress  = "progress"
	CallEventTruncated = "truncated" // later reports of the device are not kept; Message says why
)

// Activity is one line of the feed of a tenant: what dashboards follow.
type Activity struct {
	ID        string    `json:"-"` // set by the store; grows along the feed
	Tenant    string    `json:"-"`
	Type      string    `json:"type"`
	At        time.Time `json:"at"`
	Pod       string    `json:"pod"`
	SessionID string    `json:"session_id,omitempty"`
	DeviceID  string    `json:"device_id,omitempty"`
	UserID    string    `json:"user_id,omitempty"` // of the session; of a call and a turn, their own fields say it
	Tools     []string  `json:"tools,omitempty"`   // with ActivityTools: all that are offered now
	Reason    string    `json:"reason,omitempty"`
	Call      *Record   `json:"call,omitempty"` // with ActivityCall: without result
	Turn      *TurnNote `json:"turn,omitempty"` // with ActivityTurnStarted and ActivityTurnFinished

	// Approval is set with ActivityApprovalRequested and ActivityApprovalDecided.
	Approval *ApprovalNote `json:"approval,omitempty"`
}

// ApprovalNote is what the feed says about an approval. It never contains arguments.
type ApprovalNote struct {
	ID        string        `json:"id"`
	CallID    string        `json:"call_id"`
	Tool      string        `json:"tool"`
	Owner     string        `json:"owner,omitempty"` // as of Approval
	State     ApprovalState `json:"state"`
	DecidedBy string        `json:"decided_by,omitempty"`
	ExpiresAt time.Time     `json:"expires_at"`
}

// TurnNote is what the feed says about a turn of a conversation. It never contains what was said. All but the first
// three fields are set only for a turn that has finished.
type TurnNote struct {
	ID         string `json:"id"`
	Model      string `json:"model"`
	UserID     string `json:"user_id,omitempty"` // of the user who asked
	Outcome    string `json:"outcome,omitempty"` // done, aborted or error
	Code       string `json:"code,omitempty"`    // of the error
	Calls      int    `json:"calls,omitempty"`   // tool calls the model asked for
	Input      int    `json:"input_tokens,omitempty"`
	Output     int    `json:"output_tokens,omitempty"`
	DurationMS int64  `json:"duration_ms,omitempty"`
}

// ActivityOwner says whose a line of the feed is.
type ActivityOwner struct {
	User    string
	Private bool // it is about a call or a turn: what is nobody's is not everybody's
}

// Owner returns whose the line is.
func (a *Activity) Owner() ActivityOwner {
	switch {
	case a.Call != nil:
		return ActivityOwner{a.Call.UserID, true}
	case a.Turn != nil:
		return ActivityOwner{a.Turn.UserID, true}
	case a.Approval != nil: // whoever may see what is nobody's may decide it
		return ActivityOwner{User: a.Approval.Owner}
	default:
		return ActivityOwner{User: a.UserID}
	}
}

// SeenBy reports whether the line exists for a viewer. An empty viewer sees everything.
func (o ActivityOwner) SeenBy(viewer string) bool {
	return viewer == "" || o.User == viewer || o.User == "" && !o.Private
}

// Summary returns the record as the feed has it: without the tool's output and the caller's note, and with errors of
// at most MaxErrorText.
func (r Record) Summary() Record {
	r.Proof, r.Caller = "", ""
	if r.Result != nil {
		r.Brief = true
		r.Result = &Result{Success: r.Result.Success, Error: TruncateText(r.Result.Error, MaxErrorText)}
	}
	if e := r.Err; e != nil && (len(e.Message) > MaxErrorText || len(e.Violations)+len(e.Candidates) > 0) {
		short := *e
		short.Message, short.Violations, short.Candidates = TruncateText(e.Message, MaxErrorText), nil, nil
		r.Err = &short
	}
	return r
}

// MaxErrorText is how many bytes of an error the feed keeps.
const MaxErrorText = 1 << 10

// TruncateText returns at most limit bytes of s, in whole characters. A text that was truncated ends with "…".
func TruncateText(s string, limit int) string {
	const mark = "…"
	if len(s) <= limit {
		return s
	}
	n := limit - len(mark)
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return strings.Clone(s[:n]) + mark
}

// Types of activity.
const (
	ActivityConnected    = "session.connected"
	ActivityUpdated      = "session.updated" // device, labels or capabilities changed
	ActivityDisconnected = "session.disconnected"
	ActivityTools        = "session.tools"
	ActivityCall         = "call.finished"
	ActivityCallProgress = "call.progress" // the device has begun; the call's own log has the rest
	ActivityTurnStarted  = "turn.started"
	ActivityTurnFinished = "turn.finished"
	ActivityPodDied      = "pod.died"

	ActivityApprovalRequested = "approval.requested"
	ActivityApprovalDecided   = "approval.decided" // also when nobody answered in time
)

// Defaults of how many lines the feed of a tenant keeps, and how many bytes. Both bounds are rough.
const (
	DefaultActivityCap   = 10_000
	DefaultActivityBytes = 16 << 20
)

// ActivityStore keeps the feed, capped per tenant in lines and in bytes. Entries that cannot be parsed are skipped. Its
// methods are safe for concurrent use, and keep no slice that they are given.
type ActivityStore interface {
	// AppendActivity adds to the feeds, in order.
	AppendActivity(ctx context.Context, all []Activity) error

	// ReadActivity returns the entries of a feed after the one with the id after, in order, at most limit. If there are
	// none it waits for up to wait. The empty id is the beginning of the feed.
	ReadActivity(ctx context.Context, tenant, after string, limit int, wait time.Duration) ([]Activity, error)

	// LastActivity returns the entries before the one with id before, newest first, at most limit. The empty id is
	// the end of the feed.
	LastActivity(ctx context.Context, tenant, before string, limit int) ([]Activity, error)

	// FindCall returns the record of a call that has ended, as long as the feed has it, and CodeCallNotFound otherwise.
	// Both cases are cheap.
	FindCall(ctx context.Context, tenant, callID string) (Record, error)
}

// EventPage is how many events of a call are read at once. Each may be as long as a chunk of its output.
const EventPage = 16

// CallQuery selects calls. Empty fields do not restrict.
type CallQuery struct {
	Tenant    string
	Tool      string
	SessionID string
	DeviceID  string
	UserID    string // of the caller
	State     State
	Before    string // the cursor that the previous page returned
	Limit     int
}
