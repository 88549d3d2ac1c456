package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/access/policy"
	"github.com/farhand/farhand/agent/schema"
	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/internal/strictjson"
	"github.com/farhand/farhand/internal/trace"
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
// Validate and Execute. Its errors are like those of ArgsValidator, with registry.CodeForbidden.
type CallAuthorizer interface {
	Authorize(ctx context.Context, caller auth.Identity, args json.RawMessage) error
}

// ApprovalChecker is an optional interface of a local Tool: some of its calls need a person's approval whatever the
// policy says. NeedsApproval runs after Authorize. The person sees its reason.
type ApprovalChecker interface {
	NeedsApproval(args json.RawMessage) (reason string, needed bool)
}

// DeviceCaller is an optional interface of a local Tool that calls devices (CallDevice). The records of its calls are
// kept longer, by the time that approvals of those calls can take.
type DeviceCaller interface{ CallsDevices() }

// UnavailableTool is an optional interface of a local Tool that may lack a dependency here. Models do not see it then,
// lists show it as not enabled, and its calls fail with the reason, which tells operators what to do. Empty: it works.
type UnavailableTool interface {
	Unavailable() (reason string)
}

func unavailable(t Tool) string {
	if u, ok := madeBy(t).(UnavailableTool); ok {
		return u.Unavailable()
	}
	return ""
}

// timed is a context with the deadline of a call, for store requests. It sets no timer.
type timed struct {
	context.Context
	deadline time.Time
}

func (c timed) Deadline() (time.Time, bool) {
	if d, ok := c.Context.Deadline(); ok && d.Before(c.deadline) {
		return d, true
	}
	return c.deadline, true
}

// deadlineOnly reduces a context to its deadline, its cancellation and its trace. Tools cannot read the server's values
// through it.
type deadlineOnly struct {
	context.Context
	traced context.Context // has the span, and nothing else
}

func onlyDeadline(ctx context.Context) deadlineOnly {
	return deadlineOnly{ctx, trace.Carry(context.Background(), ctx)}
}

// Value returns nil for every key but that of the span.
func (d deadlineOnly) Value(key any) any { return d.traced.Value(key) }

// toolContext is the context of a local tool, with the values that its call may use.
type toolContext struct {
	deadlineOnly
	call *toolCall
}

// Value returns the call, its policy decision for policy.DecisionOf, and its span. It returns nil for every other key.
func (c toolContext) Value(key any) any {
	if key == (toolCallKey{}) {
		return c.call
	}
	if c.call.inv.Policy != nil {
		if v := c.call.inv.Policy.Value(key); v != nil {
			return v
		}
	}
	return c.deadlineOnly.Value(key)
}

// ReportProgress sends progress and a part of the output of a local tool to clients that follow the call. It is cheap
// and never blocks. ctx is that of Execute.
func ReportProgress(ctx context.Context, message, chunk string) {
	Report(ctx, registry.Report{Message: message, Chunk: chunk})
}

// Report is ReportProgress for a tool that also knows its progress as a number.
func Report(ctx context.Context, r registry.Report) {
	if report := toolCallOf(ctx).report; report != nil {
		report(r)
	}
}

// AfterFunc lets contexts derived from this one end without a goroutine each, although Value hides what they look for.
func (d deadlineOnly) AfterFunc(f func()) (stop func() bool) { return context.AfterFunc(d.Context, f) }

// Cause returns why the context ended. Package context cannot find the cause itself, because Value hides it.
func (d deadlineOnly) Cause() error { return context.Cause(d.Context) }

// MaxArgsDepth is the maximum nesting depth of the arguments of a call.
const MaxArgsDepth = schema.MaxDepth

// Request describes one call.
type Request struct {
	CallID   string // default: a new one
	Caller   auth.Identity
	Tool     string
	Args     registry.JSON // an object; none means {}
	Target   registry.Target
	Select   registry.Select
	Order    registry.Order
	Timeout  time.Duration // zero: that of the tool, or the configured default if the tool names none
	Endpoint Endpoint      // where the call came in, for the Meter

	// Local is a tool to run on this pod; Tool is its name. If Local is nil, Invoke looks the tool up: among the local
	// tools if neither Target nor Conversation is set, else on devices.
	Local Tool

	Conversation registry.Key   // the conversation that the call belongs to; zero: none
	Turn         string         // the turn of the conversation
	Model        bool           // a model makes the call, in a conversation of the kind Context
	Context      policy.Context // default: ContextMain
	Provenance   *Provenance    // where the values of a model's call come from; nil: unknown
	Repeats      bool           // the turn has made this call with the same arguments; a tool that reaches people asks

	Async         bool          // Invoke returns once the call has a record, which later holds the outcome
	AsyncIfLonger time.Duration // Async if the call may take longer or needs approval; zero: never

	// Queue lets a call to a sleeping device wait for it, for that long. Such a call is asynchronous, whatever Async
	// says: Outcome.State is then registry.StateQueued. It waits behind the device's earlier queued calls also while
	// the device is connected. Target must name one device. Zero: the call fails if the device sleeps.
	Queue time.Duration

	// Suspend makes Invoke return after it has asked for a required approval, with Outcome.Suspended. The tool runs
	// when a later request passes that as Resume. Asynchronous calls and those with an idempotency key do not suspend.
	Suspend bool

	// Resume continues a suspended call, on any pod. CallID must be the id of that call. The request must be unchanged:
	// anything that changed since the question was asked is not approved.
	Resume *Suspended

	// IdempotencyKey makes retries safe. The same request with the same key gets the answer of the first call, or joins
	// the call while it runs. Such a call continues when its caller disconnects.
	IdempotencyKey string

	// Release is called once, when Farhand no longer holds the arguments: when the device has the call, or else when
	// Invoke returns or the call, if it continues, has ended. Set it for long requests only: hooks cannot read their
	// arguments afterwards either. Nil: the memory is not counted.
	Release func()

	// Forget is called at most once, when the answer no longer needs the arguments of a request with Release. The
	// goroutine of Invoke calls it before Invoke returns. May be nil.
	Forget func()

	OnApproval func(registry.Approval) // gets an approval that is asked for, and again when it is final; may be nil

	child   *child         // of a child of a group call; nil: it has no parent
	refused error          // why the call must fail, if known before the tool lookup
	session SessionContext // of Local
	history *CallHistory   // of a turn whose conversation the caller keeps
	within  time.Time      // hard end of the call, including the approval wait; zero: as endOfCall says

	// Of a call that a local tool makes:
	outer  *toolClock    // of the local tool; nil: the call is independent
	atMost time.Duration // upper bound of the call's timeout

	where     CallRoute // for the Meter
	argsBytes int
	trace     trace.Ref // of the request
	traced    bool      // the trace is recorded
	counted   bool      // the Meter has counted this call, or it is counted when it ends
	queued    bool      // it became asynchronous because its device sleeps
}

// dropArgs drops the arguments of a request. Code that continues with them has its own copy.
func (r *Request) dropArgs() {
	r.Args = registry.JSON{}
	if r.Release != nil && r.Forget != nil {
		r.Forget()
	}
	r.Forget = nil
}

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

	Position int       // of a queued call, from 1 on
	Expires  time.Time // when a queued call expires

	Suspended *Suspended // the call waits for a person, and no pod holds it
}

// QueueText says to a model that its call is queued, at which position, and how long it may wait.
func (o *Outcome) QueueText() string {
	return fmt.Sprintf("The device sleeps. The call is queued at position %d and runs when the device is back, at the "+
		"latest at %s.", o.Position, o.Expires.UTC().Format(time.RFC3339))
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

var noArgs = registry.MustJSON(`{}`)

// checkArgs checks the rule for all arguments, whatever the tool's schema: one JSON object of bounded depth.
func checkArgs(args registry.JSON) error {
	if !args.IsObject() {
		return registry.Errorf(registry.CodeInvalidRequest, "args must be a JSON object.")
	}
	if strictjson.Depth(args.Raw()) > MaxArgsDepth {
		return registry.Errorf(registry.CodeInvalidRequest, "args may be nested at most %d levels deep.", MaxArgsDepth)
	}
	return nil
}

// DeviceCall is a call that a local tool makes to a device's tool.
type DeviceCall struct {
	Tool    string
	Args    registry.JSON   // an object; none means {}
	Target  registry.Target // must name a session, unless the call is a child of a group call
	Select  registry.Select // for a target that several sessions match
	Timeout time.Duration   // zero: the timeout in the request to the local tool, else that of the device's tool
	Queue   time.Duration   // as in Request; a queued call is independent of the local tool
}

// CallDevice calls a device's tool on behalf of the caller of a local tool. The call has the same identity, turn,
// conversation and context, and counts as a model's call if a model called the local tool. Policy, limits, guards,
// hooks, approvals, audit log and records apply as to any other call. It ends a little before the call of the local
// tool, whatever Timeout says. The clock of the local tool stops while the call waits for approval.
//
// ctx is that of the tool's Execute, or derived from it. The error is that of Invoker.Invoke. A tool that returns it
// unchanged reports correctly whether the device can have acted, and who refused.
func CallDevice(ctx context.Context, c DeviceCall) (Outcome, error) {
	if c.Target.SessionID == "" {
		return Outcome{}, errNoToolCall()
	}
	return toolCallOf(ctx).device(ctx, c, nil)
}

func errNoToolCall() error {
	return registry.Errorf(registry.CodeInternal,
		"Only a running local tool can call a device, by the device's session.").With(registry.DispatchedNo)
}

// device calls a device for the running local tool. of is set for a child of a group call.
func (call *toolCall) device(ctx context.Context, c DeviceCall, of *child) (Outcome, error) {
	if call.invoker == nil {
		return Outcome{}, errNoToolCall()
	}
	outer := call.inv
	req := Request{
		Caller: outer.Caller, Tool: c.Tool, Args: c.Args, Target: c.Target,
		Timeout:  cmp.Or(max(c.Timeout, 0), call.prepared.req.Timeout),
		Endpoint: outer.Endpoint, Conversation: outer.Conversation, Turn: outer.Turn, history: outer.CallHistory,
		Model: outer.Model, Context: outer.Context, OnApproval: call.prepared.req.OnApproval, outer: call.clock,
		Select: c.Select, Queue: c.Queue, child: of,
	}
	if of != nil && of.Asked != nil {
		req.CallID, req.refused = of.Asked.CallID, of.Refused
	}
	if from := outer.Provenance; from != nil { // the other fields are about the arguments of the outer call
		req.Provenance = &Provenance{Conversation: from.Conversation, Definitions: from.Definitions}
	}
	if deadline, ok := ctx.Deadline(); ok {
		left := time.Until(deadline)
		req.atMost = left - min(left/10, answerMargin)
	}
	if end := call.prepared.within; !end.IsZero() {
		req.within = end.Add(-min(time.Until(end)/10, answerMargin))
	}
	return call.invoker.Invoke(onlyDeadline(ctx), req) // hides the tool context's values from the hooks of this call
}

// answerMargin is how long before its own deadline a local tool gets the outcome of a device's call, at the latest.
const answerMargin = time.Second

// AskedByModel reports whether a model calls the local tool. ctx is that of its Execute, Validate or Authorize.
func AskedByModel(ctx context.Context) bool { return toolCallOf(ctx).inv.Model }

// CallerOf returns the caller of a local tool; zero: ctx is not that of its Execute, Validate or Authorize.
func CallerOf(ctx context.Context) auth.Identity { return toolCallOf(ctx).inv.Caller }

type toolCallKey struct{}

// toolCallOf returns the call for which a local tool runs. For any other context it returns an empty call.
func toolCallOf(ctx context.Context) *toolCall {
	if call, ok := ctx.Value(toolCallKey{}).(*toolCall); ok {
		return call
	}
	return &toolCall{inv: new(Invocation)}
}

// toolCall is the call for which a local tool runs or is checked.
type toolCall struct {
	inv      *Invocation
	invoker  *Invoker // nil: the tool does not run yet
	prepared *prepared
	clock    *toolClock
	report   func(registry.Report) // nil: progress is dropped

	mu     sync.Mutex
	losses []string // losses to report before the result
}
