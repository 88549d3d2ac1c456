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

// Step is one entry of a call's timeline. At is by the store's clock. For calls that are not stored while they run, At
// is by the clock of the pod that saw the step.
type Step struct {
	State State     `json:"state"`
	At    time.Time `json:"at"`
}

// Record is the state of a call, while it runs and afterwards.
type Record struct {
	CallID     string     `json:"call_id"`
	Tenant     string     `json:"tenant"`
	Tool       string     `json:"tool"`
	SessionID  string     `json:"session_id,omitempty"`
	DeviceID   string     `json:"device_id,omitempty"`
	UserID     string     `json:"user_id,omitempty"` // of the caller
	Caller     string     `json:"caller,omitempty"`  // more about the caller: an auth.Identity's note
	ArgsDigest string     `json:"args_digest,omitempty"`
	Source     string     `json:"source,omitempty"`  // SourceLocal, or SourceMCP and a server; for a device: empty
	Turn       string     `json:"turn_id,omitempty"` // of the calling conversation; empty outside of conversations
	TraceID    string     `json:"trace_id,omitempty"`
	Parent     string     `json:"parent_id,omitempty"` // the group call that this call is a child of
	Group      *GroupNote `json:"group,omitempty"`     // of a group call; nil: it has no children
	Mode       string     `json:"mode"`                // sync or async
	Pod        string     `json:"pod"`                 // the pod that received the request
	Owner      string     `json:"owner,omitempty"`     // the pod that delivered it
	Proof      string     `json:"proof,omitempty"`     // of the connection it was given to; see Session.Proofs
	State      State      `json:"state"`
	Dispatched Dispatched `json:"dispatched"`
	Late       bool       `json:"late,omitempty"` // the answer came after the caller had got another outcome
	Timeline   []Step     `json:"timeline"`
	TimeoutMS  int64      `json:"timeout_ms"`
	Approval   string     `json:"approval_id,omitempty"` // the approval that it waits for, or waited for
	HoldMS     int64      `json:"hold_ms,omitempty"`     // how long it may wait, for approval or its device, before that
	Queue      string     `json:"queue,omitempty"`       // a Session.DeviceKey: the queue that the call may wait in
	Deadline   time.Time  `json:"deadline"`              // by the store's clock; zero for calls that are not durable
	Result     *Result    `json:"result,omitempty"`
	Err        *Error     `json:"error,omitempty"`

	Brief  bool            `json:"-"` // the result lacks the tool's output, as in Summary
	args   json.RawMessage // source of ArgsDigest; hashed off the critical path
	Stored bool            `json:"-"` // the store got this record while its call ran, so it must also get the end

	// IdempotencyKey and RequestDigest are set for calls with a key. The digest shows whether two requests with one key
	// are the same.
	IdempotencyKey string `json:"idempotency_key,omitempty"`
	RequestDigest  string `json:"request_digest,omitempty"`
}

// usualSteps is the initial capacity of a timeline: most calls are accepted, sent and answered.
const usualSteps = 3

// NewRecord returns the initial record of a call.
func NewRecord(callID, tenant, tool string, args json.RawMessage) Record {
	steps := make([]Step, 1, usualSteps)
	steps[0] = Step{State: StateAccepted, At: time.Now().UTC()}
	return Record{
		CallID: callID, Tenant: tenant, Tool: tool, Mode: ModeSync, State: StateAccepted, Dispatched: DispatchedNo,
		Timeline: steps, args: args,
	}
}

// FirstState returns the state in which a store creates the record of a durable call, and how long the call may stay
// undelivered: queued for as long as it may wait, otherwise accepted.
func (r *Record) FirstState() (State, time.Duration) {
	waits := time.Duration(r.HoldMS) * time.Millisecond
	if r.State == StateQueued {
		return StateQueued, waits
	}
	return StateAccepted, waits + time.Duration(r.TimeoutMS)*time.Millisecond
}

// DigestArgs sets ArgsDigest from the arguments as sent. The arguments themselves are never recorded.
func (r *Record) DigestArgs() {
	if r == nil || r.ArgsDigest != "" || r.args == nil {
		return
	}
	sum := sha256.Sum256(r.args)
	var text [2 * sha256.Size]byte
	hex.Encode(text[:], sum[:])
	r.ArgsDigest, r.args = string(text[:]), nil
}

// TimeLeft returns the remaining time of a running call that was stored, by the clock of the pod that runs it. It is at
// least a millisecond, or zero if the call is final.
func (r Record) TimeLeft() time.Duration {
	if r.State.Final() || len(r.Timeline) == 0 {
		return 0
	}
	limit := r.Timeline[0].At.Add(time.Duration(r.HoldMS+r.TimeoutMS) * time.Millisecond)
	return max(time.Until(limit), time.Millisecond)
}

// SourceLocal is the source of a local tool, which runs in the gateway: a built-in tool, or one from the embedding
// program. Records show all of them as "builtin". SourceMCP plus a server's name is the source of a tool of that MCP
// server, to which a pod forwards the calls.
const (
	SourceLocal = "builtin"
	SourceMCP   = "mcp:"
)

// Local reports whether the tool runs on the pod that received its call, and not on a device.
func (r *Record) Local() bool { return r.Source != "" }

// Modes of a call.
const (
	ModeSync  = "sync"
	ModeAsync = "async"
)

// MaxSteps is about how many steps a timeline keeps. Only a call that returns to its queue again and again has so many:
// each further step replaces the two before it.
const MaxSteps = 64

// Apply applies an event. It returns false, and changes nothing, if the event does not apply in this state.
func (r *Record) Apply(e Event, c Change, at time.Time) bool {
	next, ok := r.State.Next(e)
	if !ok {
		return false
	}
	// A pod claims a durable call before it writes the call to the socket, and the claim already counts as delivered.
	// If the pod dies in between, only the caller's error says that delivery is unknown.
	doubted := r.State == StateDelivered && c.Err != nil && c.Err.Dispatched == DispatchedUnknown
	r.Late = r.State.Final()
	r.State = next
	if n := len(r.Timeline); n > MaxSteps { // others may read the slice
		r.Timeline = slices.Clone(r.Timeline[:n-2])
	}
	r.Timeline = append(r.Timeline, Step{State: next, At: at})
	if d := next.Dispatched(); d != "" {
		r.Dispatched = d
	} else if c.Err != nil && c.Err.Dispatched != "" && (r.Dispatched != DispatchedYes || doubted) {
		r.Dispatched = c.Err.Dispatched // otherwise the error knows less than the record, and yes is final
	}
	// An unchanged field is not written: other goroutines may read it.
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
	if !c.Until.IsZero() {
		r.Deadline = c.Until
	}
	if c.Result != nil {
		r.Result, r.Err = c.Result, nil
	} else if c.Err != nil {
		r.Err = c.Err
	}
	return true
}

// Change is the data of an event.
type Change struct {
	Owner    string  // with EventDeliver: the pod that delivers; with EventReturn: that must have; empty: any
	Session  Key     // with EventRoute: the new session; with an answer: its session, which must be the call's
	DeviceID string  // with EventRoute
	Result   *Result // with EventSucceed and EventFail
	Err      *Error  // with the failures
	Proof    string  // with EventDeliver: of the receiving connection
	// Proofs are the proofs of the answering device. The call's proof must be among them. Nil: already checked.
	Proofs   []string
	Amended  bool // with an answer: its result has been amended
	Reported bool // with an end: the caller already got it, so an answer in the record was late
	Here     bool // with an answer: the tool ran on this pod itself, so there is no session to compare

	Until time.Time // with EventQueue: the new deadline, by the store's clock
}

// NeverRan reports whether the call has ended and certainly never reached a device.
func (r Record) NeverRan() bool { return r.State.Final() && r.Dispatched == DispatchedNo }

// Outcome returns the call's result or error for its caller. Use it only for final states.
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
		return Result{}, Cancelled().With(r.Dispatched)
	case StateLost:
		return Result{}, Lost().With(r.Dispatched)
	default:
		return Result{}, Internal(nil).With(r.Dispatched)
	}
}

// EndEvent returns the event for the end of the record's call. A local tool cannot answer after its end, so an end that
// would be lost for a device's call is failed.
func (r *Record) EndEvent(res Result, err error) Event {
	e := EndEvent(res, err)
	if e == EventLose && r.Local() {
		return EventFail
	}
	return e
}

// EndEvent returns the event for the end of a call.
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

// ErrNoCall is returned if a call id is unknown or belongs to another tenant.
var ErrNoCall = Errorf(CodeCallNotFound, "No call has this id, or its record has expired.")

// IsCallNotFound reports whether err says that there is no such call.
func IsCallNotFound(err error) bool { return errors.Is(err, CodeCallNotFound) }

// Clone returns a copy that shares no mutable data with r, without the fields that only the running pod uses.
func (r Record) Clone() Record {
	r.Timeline, r.args, r.Stored = slices.Clone(r.Timeline), nil, false
	if r.Result != nil {
		res := *r.Result
		res.Structured = res.Structured.Clone()
		r.Result = &res
	}
	return r
}

// lineWeight is the approximate size of a line in memory without its long texts.
const lineWeight = 512

// MemorySize returns the approximate size of the session in memory, in bytes, without its tools.
func (s *Session) MemorySize() int {
	sum := lineWeight + len(s.Key.Tenant) + len(s.Key.Session) + len(s.Pod) + len(s.Name) + len(s.DeviceID) +
		len(s.DeviceName) + len(s.UserID) + len(s.Platform)
	for _, list := range [...][]string{s.Capabilities, s.Proofs, s.ReclaimableBy} {
		for _, text := range list {
			sum += 16 + len(text)
		}
	}
	for name, value := range s.Labels {
		sum += 32 + len(name) + len(value)
	}
	return sum
}

// MemorySize returns the approximate size of the line in memory, in bytes.
func (a *Activity) MemorySize() int {
	sum := lineWeight + len(a.Reason) + a.Call.MemorySize()
	for _, name := range a.Tools {
		sum += 16 + len(name)
	}
	return sum
}

// MemorySize returns the approximate size of the event in memory, in bytes.
func (e *CallEvent) MemorySize() int { return lineWeight + len(e.Message) + len(e.Chunk) }

// MemorySize returns the approximate size of the record in memory, in bytes, with its arguments and result. Zero for
// nil.
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

// promptDigest is the size in bytes above which arguments are hashed immediately, to free their memory.
const promptDigest = 4 << 10

// DigestLongArgs hashes arguments that are too long to hold in memory until the record is written.
func (r *Record) DigestLongArgs() {
	if r != nil && len(r.args) > promptDigest {
		r.DigestArgs()
	}
}

// JSON is one JSON value that was checked when it entered the gateway: valid grammar and UTF-8, no duplicate names in
// an object (RFC 7493). The type is the proof: functions that take a JSON do not check it again. The zero value has no
// JSON.
type JSON = strictjson.Value

// ParseJSON checks a text and keeps it, so the caller must not change it afterwards. The error describes the fault.
func ParseJSON(text []byte) (JSON, error) { return strictjson.Parse(text) }

// MustJSON is ParseJSON for texts of the program itself. It panics if ParseJSON fails.
func MustJSON(text string) JSON { return strictjson.Must(text) }

// Modes of a group call: one parent call with a child call for each device.
const (
	GroupAll    = "all"    // every device
	GroupFirst  = "first"  // until one succeeded; the others are cancelled
	GroupQuorum = "quorum" // until a number of them succeeded; the others are cancelled
	GroupRace   = "race"   // one device after the other, until one succeeded
)

// GroupModes returns all modes.
func GroupModes() []string { return []string{GroupAll, GroupFirst, GroupQuorum, GroupRace} }

// GroupNote is what the record of a parent call says about its children.
type GroupNote struct {
	Mode   string       `json:"mode"`
	Counts *GroupCounts `json:"counts,omitempty"` // nil: the call runs, or was cancelled
}

// GroupCounts say what became of the devices of a group call. Each device that was called is in one of the four counts
// after Devices.
type GroupCounts struct {
	Devices   int `json:"devices"` // that were called
	Succeeded int `json:"succeeded"`
	Failed    int `json:"failed"`    // the tool failed, or the call has no result
	Cancelled int `json:"cancelled"` // the outcome no longer mattered
	Queued    int `json:"queued"`    // the call waits for its device

	// Skipped devices matched the target and were not called, as far as known when the call ended: it was decided or
	// out of time before, or they connected only after it had begun.
	Skipped int `json:"skipped"`
}

// With returns the note with the counts in the result of the parent call. It returns nil for a call without children.
func (g *GroupNote) With(res *Result) *GroupNote {
	if g == nil || g.Counts != nil || res == nil || res.Structured.IsZero() {
		return g
	}
	var said struct {
		Counts *GroupCounts `json:"counts"`
	}
	if json.Unmarshal(res.Structured.Raw(), &said) != nil {
		return g
	}
	return &GroupNote{g.Mode, said.Counts}
}
