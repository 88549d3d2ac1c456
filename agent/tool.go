package agent

import (
	"context"
	"encoding/json"
	"time"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/access/policy"
	"github.com/farhand/farhand/agent/schema"
	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/internal/strictjson"
	"github.com/farhand/farhand/registry"
)

// Tool is a tool that runs in the gateway: built in, or supplied by the program that embeds the gateway.
type Tool interface {
	// Spec describes the tool.
	Spec() registry.ToolSpec

	// Execute runs the tool. args is a JSON object that satisfies the spec. ctx carries the deadline. A tool that ran
	// and failed returns a Result with Success false and a nil error.
	Execute(ctx context.Context, args json.RawMessage) (registry.Result, error)
}

// ArgsValidator is an optional interface of a local Tool, for rules that a schema cannot express. Validate runs before
// Authorize and Execute, with arguments that satisfy the schema. Its error ends the call and is returned to the caller.
// An *registry.Error is returned as it is. Any other error gets registry.CodeInvalidArguments and keeps its text.
// Joined errors are all reported.
type ArgsValidator interface {
	Validate(ctx context.Context, args json.RawMessage) error
}

// CallAuthorizer is an optional interface of a local Tool that only some callers may call. Authorize runs between
// Validate and Execute. Its error ends the call and is returned to the caller. An *registry.Error is returned as it is.
// Any other error gets registry.CodeForbidden and keeps its text.
type CallAuthorizer interface {
	Authorize(ctx context.Context, caller auth.Identity, args json.RawMessage) error
}

// ApprovalChecker is an optional interface of a local Tool: some of its calls need a person's approval whatever the
// policy says. NeedsApproval runs after Authorize. The person sees its reason.
type ApprovalChecker interface {
	NeedsApproval(args json.RawMessage) (reason string, needed bool)
}

// DeviceCaller is an optional interface of a local Tool that calls devices (CallDevice). Those calls may need approval.
// So the record of a call of the tool is kept longer than its timeout, by the time that approvals can take.
type DeviceCaller interface{ CallsDevices() }

// UnavailableTool is an optional interface of a local Tool that cannot work here because a dependency is missing.
// Models do not see such a tool, lists show it as not enabled, and its calls fail with the reason. The reason tells an
// operator what to do. An empty reason means that the tool works.
type UnavailableTool interface {
	Unavailable() (reason string)
}

// unavailable returns why a tool cannot work here. It is empty if the tool works.
func unavailable(t Tool) string {
	if u, ok := madeBy(t).(UnavailableTool); ok {
		return u.Unavailable()
	}
	return ""
}

// timed is a context that carries the deadline of a call for store requests made on its behalf. It sets no timer,
// because most calls need none.
type timed struct {
	context.Context
	deadline time.Time
}

// Deadline implements context.Context.
func (c timed) Deadline() (time.Time, bool) {
	if d, ok := c.Context.Deadline(); ok && d.Before(c.deadline) {
		return d, true
	}
	return c.deadline, true
}

// deadlineOnly reduces a context to its deadline and cancellation. Tools cannot read the server's values through it.
type deadlineOnly struct{ context.Context }

// Value returns nil for every key.
func (deadlineOnly) Value(any) any { return nil }

// toolContext is the context of a local tool, with the values that its call may use.
type toolContext struct {
	deadlineOnly
	decision *policy.Decision
	report   func(registry.Report) // nil: progress is dropped
	call     *toolCall
}

// Value returns the policy decision (for policy.DecisionOf), the progress callback, and the call itself (for CallDevice
// and AskedByModel). It returns nil for every other key.
func (c toolContext) Value(key any) any {
	switch key {
	case reportKey{}:
		return c.report
	case toolCallKey{}:
		return c.call
	}
	if c.decision == nil {
		return nil
	}
	return c.decision.Value(key)
}

type reportKey struct{}

// ReportProgress reports how far a local tool is, and sends a part of its output, while the tool runs. Clients that
// follow the call receive both. ctx is that of Execute. It is cheap and never blocks. Without listeners the report is
// dropped.
func ReportProgress(ctx context.Context, message, chunk string) {
	Report(ctx, registry.Report{Message: message, Chunk: chunk})
}

// Report is ReportProgress for a tool that also knows its progress as a number.
func Report(ctx context.Context, r registry.Report) {
	if report, _ := ctx.Value(reportKey{}).(func(registry.Report)); report != nil {
		report(r)
	}
}

// AfterFunc lets derived contexts observe the end of this one without a goroutine each. Package context looks for this
// method, because Value hides the key by which it would recognize its own contexts.
func (d deadlineOnly) AfterFunc(f func()) (stop func() bool) { return context.AfterFunc(d.Context, f) }

// Cause returns why the context ended. Package context cannot find the cause itself, because Value hides it.
func (d deadlineOnly) Cause() error { return context.Cause(d.Context) }

// MaxArgsDepth is the maximum nesting depth of the arguments of a call.
const MaxArgsDepth = schema.MaxDepth

// Request describes one call.
type Request struct {
	CallID  string // default: a new one
	Caller  auth.Identity
	Tool    string
	Args    registry.JSON // an object; none means {}
	Target  registry.Target
	Select  registry.Select
	Timeout time.Duration // zero: that of the tool, or the configured default if the tool names none

	Endpoint Endpoint // where the call came in, for the Meter

	// Local is a tool to run on this pod; Tool is its name. If Local is nil, Invoke looks the tool up: among the local
	// tools if neither Target nor Conversation is set, else on devices.
	Local Tool

	Conversation registry.Key // the conversation that the call belongs to; zero: none
	Turn         string       // the turn of the conversation

	// Model is set if a model makes the call, in a conversation of the kind Context.
	Model   bool
	Context policy.Context

	// Provenance holds where the values of a model's call come from. Nil: unknown.
	Provenance *Provenance

	// Async makes Invoke return once the call has a record. The record later holds the outcome.
	Async bool

	// AsyncIfLonger, if not zero, makes the call asynchronous if it may take longer than this or needs a person's
	// approval.
	AsyncIfLonger time.Duration

	// Suspend makes Invoke return after it has asked for a required approval, instead of waiting for the answer.
	// Outcome.Suspended is then set. The tool runs only when a later request passes that value as Resume. Asynchronous
	// calls and calls with an idempotency key are never suspended.
	Suspend bool

	// Resume continues a suspended call, on any pod. CallID must be the id of that call. The request must be unchanged:
	// anything that changed since the question was asked is not approved.
	Resume *Suspended

	// IdempotencyKey makes retries safe. The same request with the same key gets the answer of the first call, or joins
	// the call while it runs. Such a call continues when its caller disconnects.
	IdempotencyKey string

	// Release is called once, when Farhand no longer holds the arguments. That is when the device has the call, or else
	// when Invoke returns. If the call continues after Invoke returns, it is when the call has ended. Set Release for
	// long requests only: once the device has their arguments, hooks cannot read them either. Nil: the memory is not
	// counted.
	Release func()

	// Forget is called at most once, when the answer no longer needs the arguments of a request with Release. The
	// goroutine of Invoke calls it before Invoke returns. May be nil.
	Forget func()

	// OnApproval is called with an approval that the call needs, when it is asked for and when it is final.
	OnApproval func(registry.Approval)

	refused error          // why the call must fail, if known before the tool lookup
	session SessionContext // of Local
	history *CallHistory   // of a turn whose conversation the caller keeps
	within  time.Time      // hard end of the call, including the approval wait; zero: as endOfCall says

	// Of a call that a local tool makes:
	outer  *toolClock    // of the local tool; nil: the call is independent
	atMost time.Duration // upper bound of the call's timeout

	where     CallRoute // for the Meter
	argsBytes int
	counted   bool // the Meter has counted this call, or it is counted when it ends
}

// dropArgs drops the arguments of a request. Code that continues with them has its own copy.
func (r *Request) dropArgs() {
	r.Args = registry.JSON{}
	if r.Release != nil && r.Forget != nil {
		r.Forget()
	}
}

// durable reports whether the call continues without its request.
func (r *Request) durable() bool { return r.Async || r.IdempotencyKey != "" }

// Outcome is the outcome of a call. On an error, the fields known until then are set.
type Outcome struct {
	CallID    string
	Session   registry.Session
	State     registry.State
	Result    registry.Result
	Duration  time.Duration
	Approval  string   // id of the approval that an asynchronous call waits for, or waited for
	Approvers []string // who may decide about an asynchronous call that just asked for approval
	Async     bool     // the call continues without its request
	Replayed  bool     // the answer is that of an earlier call with the same idempotency key

	Suspended *Suspended // the call waits for a person, and no pod holds it
}

// Read waits for permission to read the text of a request, of n bytes. Few long texts are read at a time, so a short
// text never waits for more than one of them. The caller must call done after reading the text.
func (i *Invoker) Read(ctx context.Context, by share.Owner, n int) (done func(), err error) {
	return i.cfg.Schemas.ReadText(ctx, by, time.Time{}, n)
}

// checkRequestArgs waits for permission to read the arguments of a request, then runs checkArgs.
func (i *Invoker) checkRequestArgs(ctx context.Context, req *Request, start time.Time) error {
	until := start.Add(i.clamp(req.Timeout, 0))
	done, err := i.cfg.Schemas.ReadText(ctx, req.Caller.Owner(), until, req.Args.Len())
	if err != nil {
		return err
	}
	defer done()
	return checkArgs(req.Args)
}

// noArgs are the arguments of a call without arguments.
var noArgs = registry.MustJSON(`{}`)

// checkArgs checks the rule for the arguments of every call, whatever the tool's schema: one JSON object of bounded
// depth.
func checkArgs(args registry.JSON) error {
	if !args.IsObject() {
		return registry.Errorf(registry.CodeInvalidRequest, "args must be a JSON object.")
	}
	if strictjson.Depth(args.Raw()) > MaxArgsDepth {
		return registry.Errorf(registry.CodeInvalidRequest, "args may nest at most %d levels deep.", MaxArgsDepth)
	}
	return nil
}
