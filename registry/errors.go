package registry

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Code is the machine-readable name of a failure. It is an error itself, so errors.Is(err, CodeTimeout) holds for
// every *Error of that code, also for one that crossed Redis and was rebuilt on another pod.
type Code string

// All codes. The table problemKinds in agent/access/auth/problem.go has their HTTP statuses.
const (
	CodeInvalidRequest     Code = "invalid_request"
	CodeUnauthenticated    Code = "unauthenticated"
	CodeForbidden          Code = "forbidden"
	CodePolicyDenied       Code = "policy_denied"
	CodeHookCancelled      Code = "hook_cancelled"
	CodeApprovalDenied     Code = "approval_denied"
	CodeToolNotFound       Code = "tool_not_found"
	CodeSessionNotFound    Code = "session_not_found"
	CodeCallNotFound       Code = "call_not_found"
	CodeNotConnected       Code = "not_connected"
	CodeAmbiguousTarget    Code = "ambiguous_target"
	CodeNeedsForeground    Code = "needs_foreground" // the device's app is in the background
	CodeIdempotency        Code = "idempotency_conflict"
	CodeCancelled          Code = "cancelled"
	CodePayloadTooLarge    Code = "payload_too_large"
	CodeInvalidArguments   Code = "invalid_arguments"
	CodeRateLimited        Code = "rate_limited"
	CodeBudgetExceeded     Code = "budget_exceeded"
	CodeBusy               Code = "busy"
	CodeConnectionLost     Code = "connection_lost"
	CodeLost               Code = "lost"
	CodeInvalidResult      Code = "invalid_result"
	CodeStoreUnavailable   Code = "store_unavailable"
	CodeDraining           Code = "draining"
	CodeTimeout            Code = "timeout"
	CodeProvider           Code = "provider_error"
	CodeAgent              Code = "agent_error"
	CodeInternal           Code = "internal"
	CodeNotFound           Code = "not_found"
	CodeMethodNotAllowed   Code = "method_not_allowed"
	CodeUnsupportedMedia   Code = "unsupported_media_type"
	CodeNotOwner           Code = "not_owner"   // between pods only: the receiving pod has no socket of the session
	CodeStaleRoute         Code = "stale_route" // between pods only: see StaleRoute
	CodeAsksPerson         Code = "asks_person" // between pods only: see AsksPerson
	unknownErrorMessage         = "The gateway had an internal error. Its log has the details."
	StoreUnavailableAdvice      = "The gateway cannot reach its store. Retry after a moment."
)

// Codes returns every code that a client can see, for tests and documents that must cover all of them.
func Codes() []Code {
	return []Code{
		CodeInvalidRequest, CodeUnauthenticated, CodeForbidden, CodePolicyDenied, CodeHookCancelled,
		CodeApprovalDenied, CodeToolNotFound, CodeSessionNotFound, CodeCallNotFound, CodeNotConnected,
		CodeAmbiguousTarget, CodeIdempotency, CodeCancelled, CodePayloadTooLarge, CodeInvalidArguments,
		CodeRateLimited, CodeBudgetExceeded, CodeBusy, CodeConnectionLost, CodeLost, CodeInvalidResult,
		CodeStoreUnavailable, CodeDraining, CodeTimeout, CodeInternal, CodeNotFound, CodeMethodNotAllowed,
		CodeUnsupportedMedia, CodeProvider, CodeAgent, CodeNeedsForeground,
	}
}

// Error makes a Code usable as an errors.Is target.
func (c Code) Error() string { return string(c) }

// transient reports whether a failure with this code may be temporary.
func (c Code) transient() bool {
	switch c {
	case CodeNotConnected, CodeNeedsForeground, CodeRateLimited, CodeBusy, CodeConnectionLost, CodeLost,
		CodeStoreUnavailable, CodeDraining, CodeTimeout, CodeNotOwner:
		return true
	default:
		return false
	}
}

// Dispatched says whether a call reached its device.
type Dispatched string

// The possible values. Only DispatchedNo makes a retry safe for a tool that must not run twice.
const (
	DispatchedNo      Dispatched = "no"
	DispatchedYes     Dispatched = "yes"
	DispatchedUnknown Dispatched = "unknown"
)

// ViolationsSize returns the approximate size of violations in memory and in a store, in bytes.
func ViolationsSize(violations []Violation) int {
	const weight = 50
	sum := 0
	for _, v := range violations {
		sum += weight + len(v.Pointer) + len(v.Message)
	}
	return sum
}

// Violation is one schema violation.
type Violation struct {
	// JSON Pointer (RFC 6901) to the value; empty for the whole.
	Pointer string `json:"pointer"`
	Message string `json:"message"`
}

// String returns the violation as a line of text. A violation of the whole value has no pointer.
func (v Violation) String() string {
	if v.Pointer == "" {
		return v.Message
	}
	return v.Pointer + ": " + v.Message
}

// Candidate is one of several sessions that match an ambiguous call.
type Candidate struct {
	SessionID string `json:"session_id"`
	DeviceID  string `json:"device_id,omitempty"`
	UserID    string `json:"user_id,omitempty"`
	Name      string `json:"name,omitempty"`

	Foreground bool `json:"foreground,omitempty"` // the device says that its app is in the foreground
}

// Error is the only error type that crosses a boundary of this program: between packages, between pods (as JSON), and
// to clients. Message says what failed and what to do. Cause is logged and never shown or sent.
type Error struct {
	Code       Code          `json:"code"`
	Message    string        `json:"message"`
	Dispatched Dispatched    `json:"dispatched,omitempty"` // set on every failure of a call
	CallID     string        `json:"call_id,omitempty"`
	RetryAfter time.Duration `json:"retry_after,omitempty"` // zero: no advice
	Violations []Violation   `json:"violations,omitempty"`  // with CodeInvalidArguments and invalid schemas
	Candidates []Candidate   `json:"candidates,omitempty"`  // with CodeAmbiguousTarget
	Rule       string        `json:"rule,omitempty"`        // the deciding policy rule, or the limit reached
	Notice     string        `json:"-"`                     // a hook's text for a model; never a device's text
	Cause      error         `json:"-"`
}

// Errorf builds an *Error with a formatted message.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// NeedsForeground is the error of a call whose tool works only while its app is in the foreground, for a device that
// says that it is in the background.
func NeedsForeground(tool string) *Error {
	return Errorf(CodeNeedsForeground, "The tool %q works only while its app is in the foreground, and the app is in "+
		"the background. Ask the person to open it, then retry.", tool).With(DispatchedNo)
}

// StoreUnavailable wraps a failure of the store or the bus. Its message reveals nothing about the store.
func StoreUnavailable(op string, cause error) *Error {
	return &Error{
		Code: CodeStoreUnavailable, Message: StoreUnavailableAdvice, RetryAfter: time.Second,
		Cause: fmt.Errorf("%s: %w", op, cause),
	}
}

var errStoreFull = errors.New("registry: the store is full")

// StoreFull is the error if a store cannot hold more items of the kind what. who names the owner of the full quota: a
// tenant, or the store.
func StoreFull(who, what string) *Error {
	e := StoreUnavailable("keep "+what, errStoreFull)
	e.Message = fmt.Sprintf("%s has reached its limit of %s. Retry when older ones have expired.", who, what)
	return e
}

// IsStoreFull reports whether an error is StoreFull.
func IsStoreFull(err error) bool { return errors.Is(err, errStoreFull) }

var errNewer = errors.New("registry: a newer release wrote it")

// Newer is the error for data of a version that this release does not read. Nothing changes such data.
func Newer(kind, version string) *Error {
	return &Error{
		Code: CodeStoreUnavailable, RetryAfter: time.Second,
		Message: "A newer release wrote this data, and this pod cannot read it. Retry. If that does not help, finish " +
			"the update of the pods.",
		Cause: fmt.Errorf("%s of version %.20q: %w", kind, version, errNewer),
	}
}

// IsNewer reports whether an error is Newer.
func IsNewer(err error) bool { return errors.Is(err, errNewer) }

// Internal is the error for a fault of the gateway itself. cause may be nil; it is logged and never shown.
func Internal(cause error) *Error {
	return &Error{Code: CodeInternal, Message: unknownErrorMessage, Cause: cause}
}

// NotConnected is the error for a device that has no socket.
func NotConnected() *Error {
	return Errorf(CodeNotConnected, "The device is not connected. Retry when it is back.").
		RetryIn(2 * time.Second).With(DispatchedNo)
}

// UnknownSession is the error for a session that does not exist for the caller. It must not reveal whether the session
// exists for others.
func UnknownSession() *Error { return Errorf(CodeSessionNotFound, "No session has this id.") }

// TimedOut is the error if a device did not answer in time. d says whether the device may have run the tool.
func TimedOut(after time.Duration, d Dispatched) *Error {
	return Errorf(CodeTimeout, "The device did not answer within %v.", after.Round(time.Millisecond)).With(d)
}

// Cancelled is the error of a call that was cancelled. With says whether the device may have run the tool.
func Cancelled() *Error { return Errorf(CodeCancelled, "The call was cancelled.") }

// OutOfTime is the error of a call whose time ended before its tool could run.
func OutOfTime() *Error { return Errorf(CodeTimeout, "The call timed out before its tool could run.") }

// UnlessLate returns err, the failure of a call whose time ends at deadline. If the store did not answer by then, it
// returns CodeTimeout instead: the caller gave the store too little time to say that it is unavailable.
func UnlessLate(err error, deadline time.Time) error {
	e := AsError(err)
	if e == nil || e.Code != CodeStoreUnavailable || IsStoreFull(err) || time.Now().Before(deadline) {
		return err
	}
	late := OutOfTime()
	if e.Dispatched != "" && e.Dispatched != DispatchedNo {
		late.Message = "The call timed out. The gateway's store did not say in time what became of it."
	}
	late.Dispatched, late.Cause = e.Dispatched, e.Cause
	return late
}

// StaleRoute is the error if a call was decided on an outdated route: another claim of the session, other attributes of
// it, or another definition of the tool than the socket's pod has. The device has not received the call.
func StaleRoute() *Error {
	return Errorf(CodeStaleRoute, "The session has changed since the call was checked.").With(DispatchedNo)
}

// AsksPerson is the error of a device that ran nothing, because it wants a person to decide about the call first. why
// is its reason, for people.
func AsksPerson(why string) *Error { return Errorf(CodeAsksPerson, "%s", why).With(DispatchedNo) }

// Lost is the error if a pod stopped responding while it held a call.
func Lost() *Error {
	return Errorf(CodeLost,
		"The pod with the device's connection stopped responding. Whether the tool ran is not known.")
}

// ResultNotSent is the error if a tool has run on another pod, and its result was dropped on its way.
func ResultNotSent() *Error {
	return Errorf(CodeLost, "The tool has run, but its result could not be sent between pods: too many long results "+
		"were being sent. Make fewer such calls at a time.").With(DispatchedYes)
}

// Error returns code, message and cause, for logs.
func (e *Error) Error() string {
	if e.Cause != nil {
		return fmt.Sprintf("%s: %s: %v", e.Code, e.Message, e.Cause)
	}
	return fmt.Sprintf("%s: %s", e.Code, e.Message)
}

// Unwrap lets errors.Is match both the code and the cause.
func (e *Error) Unwrap() []error {
	if e.Cause != nil {
		return []error{e.Code, e.Cause}
	}
	return []error{e.Code}
}

// With returns a copy with Dispatched set.
func (e *Error) With(d Dispatched) *Error {
	c := *e
	c.Dispatched = d
	return &c
}

// RetryIn returns a copy with RetryAfter set.
func (e *Error) RetryIn(d time.Duration) *Error {
	c := *e
	c.RetryAfter = d
	return &c
}

// Retryable reports whether a retry is safe (the call was never dispatched) and may help.
func (e *Error) Retryable() bool {
	return e.Dispatched == DispatchedNo && e.Code.transient()
}

// AsError returns err as an *Error. Any other error becomes CodeInternal with a fixed message and err as its cause.
func AsError(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return Internal(err)
}

// CodeOf returns the code of an error, and the empty code for nil.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	return AsError(err).Code
}

// UnfinishedError is the error of a release that has removed the claim and not all that leads to it. The store does not
// find the rest again, so the caller must call Finish until it succeeds.
type UnfinishedError struct {
	Err    error
	Finish func(ctx context.Context) error // can be called again
}

func (e *UnfinishedError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *UnfinishedError) Unwrap() error { return e.Err }

// ErrHeldByAnother is the error of a claim if the current holder keeps the session.
var ErrHeldByAnother = errors.New("registry: another device has the session")

// Causes of contexts. If a call continues without its caller, its device gets no cancellation. If the pod stops, the
// device continues, and the caller gets this as the reason.
var (
	ErrAbandoned = errors.New("registry: the call continues without its caller")
	ErrDraining  = errors.New("registry: the pod is stopping")
)
