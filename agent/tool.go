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

// Tool is anything an agent can call that runs in the gateway: built in, or brought by the program that embeds it.
type Tool interface {
	// Spec describes the tool.
	Spec() registry.ToolSpec

	// Execute runs it. args is a JSON object that satisfies the spec; ctx carries the deadline. A tool that ran and
	// failed returns a Result with Success false and no error.
	Execute(ctx context.Context, args json.RawMessage) (registry.Result, error)
}

// ArgsValidator is what a local Tool may be besides, for rules that no schema can say. Validate is called before
// Authorize and Execute, with arguments that satisfy the schema. Its error ends the call: an *registry.Error as it is,
// any other with registry.CodeInvalidArguments and its text, which the caller reads. Of joined errors each is told.
type ArgsValidator interface {
	Validate(ctx context.Context, args json.RawMessage) error
}

// CallAuthorizer is what a local Tool may be besides, if not everybody may call it. Authorize is called between
// Validate and Execute. Its error ends the call: an *registry.Error as it is, any other with registry.CodeForbidden and
// its text, which the caller reads.
type CallAuthorizer interface {
	Authorize(ctx context.Context, caller auth.Identity, args json.RawMessage) error
}

// ApprovalDemander is what a local Tool may be besides, if a person must approve some of its calls whatever policy
// says. It is asked after Authorize. Its reason is told to the person.
type ApprovalDemander interface {
	DemandsApproval(args json.RawMessage) (reason string, demanded bool)
}

// DeviceCaller is what a local Tool may be besides, if it calls devices (CallDevice): people may be asked about those
// calls, and the record of a call of the tool lasts as long as that may take beside its timeout.
type DeviceCaller interface{ CallsDevices() }

// UnavailableTool is what a local Tool may be besides, if it cannot work here: what it needs is missing. Models are not
// offered it, lists show it as not enabled, and calls of it fail with the reason, which tells an operator what to do.
// An empty reason: it works.
type UnavailableTool interface {
	Unavailable() (reason string)
}

// unavailable returns why a tool cannot work here, empty if it can.
func unavailable(t Tool) string {
	if u, ok := inner(t).(UnavailableTool); ok {
		return u.Unavailable()
	}
	return ""
}

// timed is a context that says when the time of a call is up, for those who go to the store on its way. It sets no
// timer: most calls need none.
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

// deadlineOnly is a context reduced to deadline and cancellation: no value of the server reaches a tool through it.
type deadlineOnly struct{ context.Context }

// Value returns nil for every key.
func (deadlineOnly) Value(any) any { return nil }

// toolContext is the context of a local tool, with what its call may use.
type toolContext struct {
	deadlineOnly
	decision *policy.Decision
	report   func(registry.Report) // nil: nobody listens
	call     *toolCall
}

// Value returns what policy says of the call, for policy.DecisionOf, how it reports progress, the call itself, for
// CallDevice and AskedByModel, and nil for every other key.
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

// ReportProgress says how far a local tool is, and passes on a part of its output, while it runs: whoever follows the
// call reads it. ctx is that of Execute. It costs little and never blocks; what nobody listens to is dropped.
func ReportProgress(ctx context.Context, message, chunk string) {
	Report(ctx, registry.Report{Message: message, Chunk: chunk})
}

// Report is ReportProgress for a tool that also knows its progress as a number.
func Report(ctx context.Context, r registry.Report) {
	if report, _ := ctx.Value(reportKey{}).(func(registry.Report)); report != nil {
		report(r)
	}
}

// AfterFunc lets contexts derived from this one hear of its end without a goroutine each: package context looks for
// this method, because the value it would otherwise find its own kind by is hidden.
func (d deadlineOnly) AfterFunc(f func()) (stop func() bool) { return context.AfterFunc(d.Context, f) }

// Cause tells why the context ended, which package context could only find among the hidden values.
func (d deadlineOnly) Cause() error { return context.Cause(d.Context) }

// MaxArgsDepth is how deep the arguments of a call may nest.
const MaxArgsDepth = schema.MaxDepth

// Request asks for one call.
type Request struct {
	CallID  string // default: a new one
	Caller  auth.Identity
	Tool    string
	Args    registry.JSON // an object; none means {}
	Target  registry.Target
	Select  registry.Select
	Timeout time.Duration // zero: that of the tool, or the configured default if the tool names none

	Endpoint Endpoint // where the call came in, for the Meter

	// Local is a tool to run on this pod; Tool is its name. If Local is nil, Invoke looks for the tool: among the local
	// tools if neither Target nor Conversation is set, else on devices.
	Local Tool

	Conversation registry.Key // the conversation that the call belongs to; zero: none
	Turn         string       // the turn of the conversation

	// Model says that a model asks for the call, in a conversation of the kind Context.
	Model   bool
	Context policy.Context

	// Provenance says where the values of a model's call come from. Nil: nobody knows.
	Provenance *Provenance

	// Async makes Invoke return as soon as the call has a record. The record then says how the call ends.
	Async bool

	// AsyncOver, if it is not zero, makes the call asynchronous if it may take longer, or must be approved by a person.
	AsyncOver time.Duration

	// Suspend makes Invoke return when it has asked for an approval that the call needs, instead of waiting for it:
	// Outcome.Suspended is then set, and nothing runs until a request comes with it as Resume. An asynchronous call,
	// or one with an idempotency key, is not suspended.
	Suspend bool

	// Resume carries on with a call that was suspended, on whatever pod. CallID is that call's. The request must ask
	// for the same: what has changed since the question was asked is not approved.
	Resume *Suspended

	// IdempotencyKey makes repeating the request harmless: the same request with the same key gets the answer of the
	// call that has the key, or joins it while it runs. Such a call goes on when its caller hangs up.
	IdempotencyKey string

	// Release is called once, when Farhand no longer holds the arguments: when the device has the call, else when
	// Invoke returns or, if the call goes on after that, when it has ended. A request with Release is long: its
	// arguments are not kept for hooks either once the device has them. Nil: nobody counts the memory.
	Release func()

	// Forget is called once, by the goroutine of Invoke, if the arguments of a request with Release are not needed for
	// its answer any more, before Invoke returns. May be nil.
	Forget func()

	// OnApproval is told of an approval that the call needs, when it is asked for and when it is final.
	OnApproval func(registry.Approval)

	refused error          // why the call cannot run, if that is known before a tool is looked for
	session SessionContext // of Local
	history *CallHistory   // of a turn whose conversation the caller keeps
	within  time.Time      // the call ends by then, whatever a person's answer takes; zero: as endOf says

	// Of a call that a local tool makes:
	outer  *toolClock    // of the local tool; nil: it is a call of its own
	atMost time.Duration // the timeout of the call is no longer

	where     CallRoute // for the Meter
	argsBytes int
	counted   bool // the Meter has counted this call, or something else counts it when it ends
}

// tell tells OnApproval of an approval.
func (r *Request) tell(a registry.Approval) {
	if r.OnApproval != nil {
		r.OnApproval(a)
	}
}

// forget gives up the arguments of a request. What goes on with them has its own.
func (r *Request) forget() {
	r.Args = registry.JSON{}
	if r.Release != nil && r.Forget != nil {
		r.Forget()
	}
}

// durable reports whether the call outlives its request.
func (r *Request) durable() bool { return r.Async || r.IdempotencyKey != "" }

// Outcome is how a call went. On an error the fields known until then are set.
type Outcome struct {
	CallID    string
	Session   registry.Session
	State     registry.State
	Result    registry.Result
	Duration  time.Duration
	Approval  string   // id of the approval that an asynchronous call waits for, or waited for
	Approvers []string // who may decide about an asynchronous call that was just asked about
	Async     bool     // the call goes on without its request
	Replayed  bool     // the answer is that of an earlier call with the same idempotency key

	Suspended *Suspended // the call waits for a person, and nobody holds it
}

// Read waits until the text of a request, of n bytes, may be read. Only few long texts are read at a time, so that a
// short one never waits for more than one of them. The caller must call done when it has read the text.
func (i *Invoker) Read(ctx context.Context, by share.Owner, n int) (done func(), err error) {
	return i.cfg.Schemas.ReadText(ctx, by, time.Time{}, n)
}

// checkRequestArgs runs checkArgs once the arguments of a request may be read.
func (i *Invoker) checkRequestArgs(ctx context.Context, req *Request, start time.Time) error {
	until := start.Add(i.clamp(req.Timeout, 0))
	done, err := i.cfg.Schemas.ReadText(ctx, req.Caller.Owner(), until, req.Args.Len())
	if err != nil {
		return err
	}
	defer done()
	return checkArgs(req.Args)
}

// noArgs are the arguments of a call that has none.
var noArgs = registry.MustJSON(`{}`)

// checkArgs checks what must hold for the arguments of every call, whatever the tool's schema: they are one JSON object
// of bounded depth.
func checkArgs(args registry.JSON) error {
	if !args.IsObject() {
		return registry.Errorf(registry.CodeInvalidRequest, "args must be a JSON object.")
	}
	if strictjson.Depth(args.Raw()) > MaxArgsDepth {
		return registry.Errorf(registry.CodeInvalidRequest, "args may nest at most %d levels deep.", MaxArgsDepth)
	}
	return nil
}
