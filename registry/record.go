package registry

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/farhand/farhand/internal/strictjson"
)

// Retention is how long the record of a call is kept after its last change.
const (
	DefaultRetention      = 15 * time.Minute
	DefaultIdempotencyTTL = 24 * time.Hour
	DefaultActivityTTL    = 24 * time.Hour
)

// Step is one entry of a call's timeline. At is by the clock of the store or, for calls that are not stored while they
// run, by the clock of the pod that saw the step.
type Step struct {
	State State     `json:"state"`
	At    time.Time `json:"at"`
}

// Record is what is known of a call, while it runs and afterwards.
type Record struct {
	CallID     string     `json:"call_id"`
	Tenant     string     `json:"tenant"`
	Tool       string     `json:"tool"`
	SessionID  string     `json:"session_id,omitempty"`
	DeviceID   string     `json:"device_id,omitempty"`
	UserID     string     `json:"user_id,omitempty"` // of the caller
	Caller     string     `json:"caller,omitempty"`  // what else is known of who called: an auth.Identity's note
	ArgsDigest string     `json:"args_digest,omitempty"`
	Source     string     `json:"source,omitempty"`  // SourceLocal, SourceMCP and a server; of a device: empty
	Turn       string     `json:"turn_id,omitempty"` // of the conversation that asked; empty outside of any
	Mode       string     `json:"mode"`              // sync or async
	Pod        string     `json:"pod"`               // the pod that was asked
	Owner      string     `json:"owner,omitempty"`   // the pod that delivered it
	Proof      string     `json:"proof,omitempty"`   // of the connection it was given to; see Session.Proofs
	State      State      `json:"state"`
	Dispatched Dispatched `json:"dispatched"`
	Late       bool       `json:"late,omitempty"` // the answer came after the caller had got another outcome
	Timeline   []Step     `json:"timeline"`
	TimeoutMS  int64      `json:"timeout_ms"`
	Approval   string     `json:"approval_id,omitempty"` // that it waits for, or waited for
	HoldMS     int64      `json:"hold_ms,omitempty"`     // how long it may wait for that beside its timeout
	Deadline   time.Time  `json:"deadline"`              // by the store's clock; zero for calls that are not durable
	Result     *Result    `json:"result,omitempty"`
	Err        *Error     `json:"error,omitempty"`

	Brief  bool            `json:"-"` // the result is without what the tool returned, as in Summary
	args   json.RawMessage // what ArgsDigest is made of, off the critical path
	Stored bool            `json:"-"` // the store got this record while its call ran, so it must get the end, too

	// IdempotencyKey and RequestDigest are set for calls that carry a key; the digest tells whether two requests with
	// one key are the same.
	IdempotencyKey string `json:"idempotency_key,omitempty"`
	RequestDigest  string `json:"request_digest,omitempty"`
}

// usualSteps is how many steps a timeline has room for from the beginning: most calls are accepted, sent and answered.
const usualSteps = 3

// NewRecord begins the record of a call.
func NewRecord(callID, tenant, tool string, args json.RawMessage) Record {
	steps := make([]Step, 1, usualSteps)
	steps[0] = Step{State: StateAccepted, At: time.Now().UTC()}
	return Record{
		CallID: callID, Tenant: tenant, Tool: tool, Mode: ModeSync, State: StateAccepted, Dispatched: DispatchedNo,
		Timeline: steps, args: args,
	}
}

// DigestArgs fills in ArgsDigest, of the arguments as they were sent. Arguments themselves are never recorded.
func (r *Record) DigestArgs() {
	if r == nil || r.ArgsDigest != "" || r.args == nil {
		return
	}
	sum := sha256.Sum256(r.args)
	var text [2 * sha256.Size]byte
	hex.Encode(text[:], sum[:])
	r.ArgsDigest, r.args = string(text[:]), nil
}

// TimeLeft returns how long a call that was kept while it runs has left, by the clock of the pod that runs it: at least
// a millisecond, zero if it is final.
func (r Record) TimeLeft() time.Duration {
	if r.State.Final() || len(r.Timeline) == 0 {
		return 0
	}
	limit := r.Timeline[0].At.Add(time.Duration(r.HoldMS+r.TimeoutMS) * time.Millisecond)
	return max(time.Until(limit), time.Millisecond)
}

// SourceLocal is the source of a local tool, which runs in the gateway: a built-in tool, or one of the program that
// embeds the gateway. In records all of them are "builtin". SourceMCP and the name of an MCP server is the source of a
// tool whose calls a pod passes on to that server.
const (
	SourceLocal = "builtin"
	SourceMCP   = "mcp:"
)

// Local reports whether the tool runs on the pod that its call came to, and not on a device.
func (r *Record) Local() bool { return r.Source != "" }

// Modes of a call.
const (
	ModeSync  = "sync"
	ModeAsync = "async"
)

// Apply moves the record on. It reports false, and changes nothing, if the event means nothing in its state.
func (r *Record) Apply(e Event, c Change, at time.Time) bool {
	next, ok := r.State.Next(e)
	if !ok {
		return false
	}
	// A durable call counts as delivered once a pod has claimed it, which it does before it writes the call to the
	// socket. If that pod dies in between, only the caller's error knows that nobody can say.
	doubted := r.State == StateDelivered && c.Err != nil && c.Err.Dispatched == DispatchedUnknown
	r.Late = r.State.Final()
	r.State = next
	r.Timeline = append(r.Timeline, Step{State: next, At: at})
	if d := next.Dispatched(); d != "" {
		r.Dispatched = d
	} else if c.Err != nil && c.Err.Dispatched != "" && (r.Dispatched != DispatchedYes || doubted) {
		r.Dispatched = c.Err.Dispatched // else the error knows less than the record, and nothing is more than yes
	}
	if c.Owner != "" {
		r.Owner = c.Owner
	}
	if c.Session.Session != "" {
		r.SessionID = c.Session.Session
	}
	if c.Proof != "" {
		r.Proof = c.Proof
	}
	if c.DeviceID != "" {
		r.DeviceID = c.DeviceID
	}
	if c.Result != nil {
		r.Result, r.Err = c.Result, nil
	} else if c.Err != nil {
		r.Err = c.Err
	}
	return true
}

// Change is what comes with an event.
type Change struct {
	Owner    string  // with EventDeliver: the pod that delivers
	Session  Key     // with EventRoute: the call's new session; with an answer: its session, which must be the call's
	DeviceID string  // with EventRoute
	Result   *Result // with EventSucceed and EventFail
	Err      *Error  // with the failures
	Proof    string  // with EventDeliver: of the connection it is given to
	// Proofs are those of the device an answer comes from. The call's proof must be among them; nil if that was looked
	// at before.
	Proofs  []string
	Amended bool // with an answer: its result has been amended
	Told    bool // with an end: its caller knows it already, so an answer in the record was late
	Here    bool // with an answer: the tool ran on the asking pod itself, so that there is no session to compare
}

// NeverRan reports whether the call has ended and certainly has not reached a device.
func (r Record) NeverRan() bool { return r.State.Final() && r.Dispatched == DispatchedNo }

// Outcome returns how the call ended for its caller: a result, or an error. It is only for final states.
func (r Record) Outcome() (Result, error) {
	if r.Result != nil && r.Result.Withheld != nil {
		return Result{}, r.Result.Withheld
	}
	if r.Result != nil {
		return *r.Result, nil
	}
	if r.Err != nil {
		return Result{}, r.Err.With(r.Dispatched)
	}
	switch r.State {
	case StateExpired:
		return Result{}, Errorf(CodeTimeout, "No device took the call before its deadline.").With(DispatchedNo)
	case StateTimedOut:
		return Result{}, TimedOut(time.Duration(r.TimeoutMS)*time.Millisecond, r.Dispatched)
	case StateCancelled:
		return Result{}, Errorf(CodeCancelled, "The call was cancelled.").With(r.Dispatched)
	case StateLost:
		return Result{}, Lost().With(r.Dispatched)
	default:
		return Result{}, Internal(nil).With(r.Dispatched)
	}
}

// EndEvent returns the event the end of the record's call is. Nothing of a tool that runs here can come after its end,
// so what would be lost of a device's call has failed.
func (r *Record) EndEvent(res Result, err error) Event {
	e := EndEvent(res, err)
	if e == EventLose && r.Local() {
		return EventFail
	}
	return e
}

// EndEvent returns the event a call's end is.
func EndEvent(res Result, err error) Event {
	if err == nil {
		if res.Success {
			return EventSucceed
		}
		return EventFail
	}
	e := AsError(err)
	switch {
	case e.Dispatched == DispatchedNo && e.Code != CodeCancelled && e.Code != CodeTimeout:
		return EventReject
	case e.Code == CodeCancelled:
		return EventCancel
	case e.Code == CodeTimeout:
		return EventTimeOut
	default:
		return EventLose
	}
}

// ErrNoCall is returned for an unknown call id, or one of another tenant.
var ErrNoCall = Errorf(CodeCallNotFound, "No call has this id, or its record has expired.")

// IsCallNotFound reports whether err says that there is no such call.
func IsCallNotFound(err error) bool { return errors.Is(err, CodeCallNotFound) }

// Clone returns a copy that shares nothing with r that anybody changes, without what only the pod knows that runs it.
func (r Record) Clone() Record {
	r.Timeline, r.args, r.Stored = slices.Clone(r.Timeline), nil, false
	if r.Result != nil {
		res := *r.Result
		res.Structured = res.Structured.Clone()
		r.Result = &res
	}
	return r
}

// lineWeight is about what a line takes in memory beside the texts that differ much in length.
const lineWeight = 512

// MemorySize returns about how many bytes of memory the session takes, without its tools.
func (s *Session) MemorySize() int {
	sum := lineWeight + len(s.Key.Tenant) + len(s.Key.Session) + len(s.Pod) + len(s.Name) + len(s.DeviceID) +
		len(s.DeviceName) + len(s.UserID) + len(s.Platform)
	for _, list := range [...][]string{s.Capabilities, s.Proofs, s.Heirs} {
		for _, text := range list {
			sum += 16 + len(text)
		}
	}
	for name, value := range s.Labels {
		sum += 32 + len(name) + len(value)
	}
	return sum
}

// MemorySize returns about how many bytes of memory the line takes.
func (a *Activity) MemorySize() int {
	sum := lineWeight + len(a.Reason) + a.Call.MemorySize()
	for _, name := range a.Tools {
		sum += 16 + len(name)
	}
	return sum
}

// MemorySize returns about how many bytes of memory the event takes.
func (e *CallEvent) MemorySize() int { return lineWeight + len(e.Message) + len(e.Chunk) }

// MemorySize returns about how many bytes of memory the record takes with its arguments and result; zero for nil.
func (r *Record) MemorySize() int {
	if r == nil {
		return 0
	}
	sum := lineWeight + len(r.args)
	if r.Result != nil {
		sum += len(r.Result.Output) + r.Result.Structured.Len() + len(r.Result.Error) +
			PartsSize(r.Result.Parts) + ViolationsSize(r.Result.Violations)
	}
	if r.Err != nil {
		sum += len(r.Err.Message) + lineWeight*(len(r.Err.Violations)+len(r.Err.Candidates))
	}
	return sum
}

// promptDigest is the size in bytes from which arguments are digested at once, so that they need not wait in memory.
const promptDigest = 4 << 10

// DigestLongArgs digests arguments that are too long to wait in memory until the record is written.
func (r *Record) DigestLongArgs() {
	if r != nil && len(r.args) > promptDigest {
		r.DigestArgs()
	}
}

// JSON is one JSON value that was checked where it entered the gateway: valid grammar and UTF-8, no name twice in an
// object (RFC 7493). The type is the proof: what takes a JSON does not check it again. The zero value is none.
type JSON = strictjson.Value

// ParseJSON checks a text and keeps it, so it must not be changed afterwards. The error says what is wrong with it.
func ParseJSON(text []byte) (JSON, error) { return strictjson.Parse(text) }

// MustJSON is ParseJSON for texts of the program itself. It panics where ParseJSON fails.
func MustJSON(text string) JSON { return strictjson.Must(text) }
