package agent

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/farhand/farhand/agent/auth"
	"github.com/farhand/farhand/agent/policy"
	"github.com/farhand/farhand/agent/schema"
	"github.com/farhand/farhand/internal/strictjson"
	"github.com/farhand/farhand/registry"
)

// Timeouts of a call when nothing else is configured.
const (
	DefaultCallTimeout    = 30 * time.Second
	DefaultMaxCallTimeout = 5 * time.Minute
)

// MaxArgsDepth is how deep the arguments of a call may nest.
const MaxArgsDepth = schema.MaxDepth

// Router is the part of routing.Router the Invoker needs.
type Router interface {
	Call(ctx context.Context, c registry.Call) (registry.Result, error)
	Resolve(ctx context.Context, tenant, tool string, t registry.Target, sel registry.Select) (registry.Route, error)
	ResolveAgain(ctx context.Context, remembered registry.Route) (registry.Route, error)
}

// Live ends what an identity has begun. *auth.Live is one.
type Live interface {
	// Hold returns a context that ends when the identity does, until release is called. Its cause is then an
	// *registry.Error with CodeUnauthenticated.
	Hold(ctx context.Context, id *auth.Identity) (held context.Context, release func())
}

// CallLog is the part of routing.Calls the Invoker needs.
type CallLog interface {
	// Finish records the end of a call that has no record in the store. It keeps rec.
	Finish(rec *registry.Record, res registry.Result, err error)
	Start(
		ctx context.Context, rec registry.Record, run func(context.Context) (registry.Result, error),
	) (stored registry.Record, created bool, err error)
	ByKey(ctx context.Context, tenant, key string) (registry.Record, error)
	Wait(ctx context.Context, tenant, callID string, wait time.Duration) (registry.Record, error)
	// WaitOutcome is Wait for the caller of a call: it also returns an end that is not stored yet.
	WaitOutcome(ctx context.Context, tenant, callID string, wait time.Duration) (registry.Record, error)
	// AmendWith has the results of the tools that amends names amended before they are stored.
	AmendWith(amend registry.Amend, amends func(tool string) bool)

	// Hold, Begin and Refuse are for calls that wait for a person and are held by no pod.
	Hold(ctx context.Context, rec registry.Record) (stored registry.Record, created bool, err error)
	Begin(
		ctx context.Context, tenant, callID string, timeout time.Duration,
		run func(context.Context, registry.Record) (registry.Result, error),
	) (begun bool, err error)
	Refuse(ctx context.Context, tenant, callID string, why *registry.Error) (refused bool, err error)
}

// Config configures an Invoker. Router, CallLog and Policy are required.
type Config struct {
	Router     Router
	CallLog    CallLog
	Policy     *Policy
	Schemas    *schema.Validator // default: schema.NewValidator()
	Limits     Hook              // counts calls against the limits of the policy; nil: nothing is limited
	Guards     []Hook            // the gateway's own hooks, such as the loop guard
	Hooks      []Hook            // custom hooks; they run after the guards, before the validation of the arguments
	Approvals  Approvals         // asks people; nil: what somebody must approve is refused
	LocalTools *LocalTools       // tools that may be called by name alone; nil: none
	Timeout    time.Duration     // for a call when neither the request nor the tool names one; default 30 s
	MaxTimeout time.Duration     // the longest timeout that a request or a tool can get; default 5 min
	Pod        string            // id of this pod: tells the Meter which sessions are here
	Meter      Meter             // counts how calls end; nil: calls are not counted
	Audit      auth.Auditor      // notes for each call whether it may run; default: nobody
	Live       Live              // ends calls that outlive their request; nil: nobody does
	Log        *slog.Logger      // default: discard

	ApprovalTimeout time.Duration // how long a person has to answer a model's question; default 2 min
	DeferredTimeout time.Duration // the same for asynchronous calls; default 1 h
}

// Invoker is the one operation behind every API. It is safe for concurrent use.
type Invoker struct {
	cfg    Config
	hooks  pipeline
	custom pipeline // custom hooks that amend; they amend what is stored before it is
}

// NewInvoker returns an Invoker. This is the one place that says in which order hooks run:
//
//	before:  policy ─▶ limits ─▶ guards (loop guard) ─▶ custom hooks ─▶ validation of the arguments ─▶
//	         what a local tool says of its caller and arguments ─▶ marks ─▶ approval
//	amend:   the same hooks backwards, so that the guards read, and may add to, what the others made of the result
//	after:   the same hooks forwards; they see what the caller reads
//
// Validation follows the hooks because one may have changed the arguments, and the approval follows both because a
// person must be asked about what will really run. The before hooks do not run for a call whose tool was not found, or
// whose arguments are not a JSON object, because such a call has ended already.
func NewInvoker(cfg Config) *Invoker {
	if cfg.Schemas == nil {
		cfg.Schemas = schema.NewValidator()
	}
	if cfg.Timeout <= 0 {
		cfg.Timeout = DefaultCallTimeout
	}
	if cfg.MaxTimeout <= 0 {
		cfg.MaxTimeout = DefaultMaxCallTimeout
	}
	cfg.ApprovalTimeout = cmp.Or(max(cfg.ApprovalTimeout, 0), DefaultApprovalTimeout)
	cfg.DeferredTimeout = cmp.Or(max(cfg.DeferredTimeout, 0), DefaultDeferredTimeout)
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Audit == nil {
		cfg.Audit = auth.NoAudit{}
	}
	var hooks pipeline
	if cfg.Limits != nil {
		hooks = append(hooks, cfg.Limits)
	}
	hooks = append(hooks, cfg.Guards...)
	hooks = append(hooks, cfg.Hooks...)
	hooks = append(hooks, validation{cfg.Schemas})
	// The guards are not among these hooks. They amend what a conversation reads, and the result of such a call is
	// amended before the call has a record.
	custom := pipeline(cfg.Hooks).amends()
	if len(custom) > 0 {
		cfg.CallLog.AmendWith(func(ctx context.Context, rec registry.Record, res registry.Result) registry.Result {
			return custom.stored(ctx, cfg.Log, rec, res)
		}, custom.amendsTool)
	}
	return &Invoker{cfg: cfg, hooks: hooks, custom: custom}
}

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

	// IdempotencyKey makes repeating the request harmless: the same request with the same key gets the answer of the
	// call that has the key, or joins it while it runs. Such a call goes on when its caller hangs up.
	IdempotencyKey string

	// Release is called once, when Farhand no longer holds the arguments: when Invoke returns, or, if the call goes on
	// after that, when the call has ended.
	Release func()

	// OnApproval is told of an approval that the call needs, when it is asked for and when it is final.
	OnApproval func(registry.Approval)

	refused error        // why the call cannot run, if that is known before a tool is looked for
	history *CallHistory // of a turn whose conversation the caller keeps

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

// durable reports whether the call outlives its request.
func (r *Request) durable() bool { return r.Async || r.IdempotencyKey != "" }

// Outcome is how a call went. On an error the fields known until then are set.
type Outcome struct {
	CallID   string
	Session  registry.Session
	State    registry.State
	Result   registry.Result
	Duration time.Duration
	Approval string // id of the approval that an asynchronous call waits for, or waited for
	Replayed bool   // the answer is that of an earlier call with the same idempotency key
}

// Invoke resolves, checks and runs a call. Cancelling ctx cancels it, unless it is asynchronous or carries an
// idempotency key. The error is always an *registry.Error with CallID and Dispatched set; a tool that ran and failed
// is no error.
func (i *Invoker) Invoke(ctx context.Context, req Request) (Outcome, error) {
	start := time.Now()
	if req.CallID == "" {
		req.CallID = registry.NewCallID()
	}
	req.argsBytes = req.Args.Len()
	if req.Release != nil {
		defer func() {
			if req.Release != nil { // else the call goes on
				req.Release()
			}
		}()
	}
	out := Outcome{CallID: req.CallID}
	err := i.invoke(ctx, &req, &out, start)
	if out.Duration == 0 {
		out.Duration = time.Since(start)
	}
	if !req.counted {
		i.count(&req, out.Duration, out.Result, err)
	}
	if err == nil {
		return out, nil
	}
	e := *undispatched(err)
	e.CallID = out.CallID
	return out, &e
}

// undispatched returns err with DispatchedNo, unless err says itself whether the call was dispatched.
func undispatched(err error) *registry.Error {
	e := registry.AsError(err)
	if e.Dispatched == "" {
		return e.With(registry.DispatchedNo)
	}
	return e
}

func (i *Invoker) invoke(ctx context.Context, req *Request, out *Outcome, start time.Time) error {
	if req.Args.IsZero() {
		req.Args = noArgs
	}
	if err := i.checkRequestArgs(ctx, req, start); err != nil {
		if req.Conversation == (registry.Key{}) && req.history == nil || req.durable() {
			return err
		}
		req.refused = err // every call that a model asks for in a turn gets a record, even one that cannot run
	}
	p := prepared{start: start}
	err := i.prepare(ctx, req, &p, out)
	if err != nil {
		err = undispatched(err)
	}
	if err == nil && p.ask != nil && !req.durable() {
		err = i.approve(ctx, &p, req.tell)
	}
	if p.ask == nil || err != nil { // else it is decided later
		i.noteDecision(req, &p, err)
	}
	req.where = i.routeOf(&p)
	rec := recordOf(req, &p, &out.Session)
	if req.durable() {
		return i.invokeDurable(ctx, req, durable{prepared: p, rec: rec, refused: err}, out)
	}
	if err == nil {
		out.Result, err = i.runTool(ctx, &p, &rec, false)
		out.State, out.Session = out.Result.State(), p.route.Session
	}
	return i.finish(ctx, &p.inv, &rec, out, err)
}

// finish runs the hooks that amend the outcome of a call, and records the call. callErr is how the call itself failed.
// The hooks decide what the caller reads; the record says whether the tool ran.
func (i *Invoker) finish(
	ctx context.Context, inv *Invocation, rec *registry.Record, out *Outcome, callErr error,
) error {
	res, err := i.hooks.end(ctx, i.cfg.Log, inv, *out, callErr)
	switch {
	case callErr == nil && err != nil:
		i.cfg.CallLog.Finish(rec, withoutOutput(out.Result, err), nil)
	case callErr != nil && err == nil:
		i.cfg.CallLog.Finish(rec, registry.Result{}, callErr)
	default:
		i.cfg.CallLog.Finish(rec, res, err)
	}
	out.Result, out.State = res, res.State()
	return err
}

// withoutOutput returns what the record of a call keeps of a result that a hook withheld with err.
func withoutOutput(res registry.Result, err error) registry.Result {
	e := registry.AsError(err)
	return registry.Result{Success: res.Success, Error: e.Message, Withheld: e.With(registry.DispatchedYes)}
}

// prepared is a call that may run: on this pod if local is set, else on a device.
type prepared struct {
	local Tool
	route registry.Route
	inv   Invocation

	timeout   time.Duration // the timeout that the request names; zero: none
	start     time.Time     // when the request came in; the timeout runs from here
	remaining time.Duration // what remains of the timeout once the hooks have admitted the call

	ask      *registry.Approval // what a person must be asked before it runs; nil: nothing
	approved string             // what was approved, as of bindingOf; empty: nothing
}

// prepare does everything that comes before the tool runs. On an error p.inv holds what was known by then.
func (i *Invoker) prepare(ctx context.Context, req *Request, p *prepared, out *Outcome) error {
	charged := p.inv.charged
	*p = prepared{local: req.Local, start: p.start, timeout: req.Timeout, approved: p.approved}
	p.inv = Invocation{
		CallID: req.CallID, Caller: req.Caller, Spec: registry.ToolSpec{Name: req.Tool}, Args: req.Args,
		Asked: req.Args, Timeout: i.clamp(req.Timeout, 0), Conversation: req.Conversation, Turn: req.Turn,
		CallHistory: req.history, Model: req.Model, Context: req.Context,
		Provenance: req.Provenance, charged: charged,
	}
	if req.refused != nil {
		return req.refused
	}
	if p.local == nil {
		p.local = i.localTool(req)
	}
	if p.local != nil {
		spec, err := specOf(p.local)
		if err != nil {
			return err
		}
		p.route.Session.Tenant, p.route.Spec = req.Caller.Tenant, spec
		p.inv.Source = registry.SourceLocal
	} else {
		var err error
		ctx := timed{ctx, p.start.Add(p.inv.Timeout)}
		target := req.Target
		target.Viewer = req.Caller.Viewer()
		p.route, err = i.cfg.Router.Resolve(ctx, req.Caller.Tenant, req.Tool, target, req.Select)
		if err != nil {
			return err
		}
		p.inv.Source = sourceOf(p.route.Session.Key)
	}
	err := i.admit(ctx, p)
	if err != nil && p.route.Remembered { // what it was refused for may have changed
		err = i.admitAnew(ctx, p, err)
	}
	out.Session = p.route.Session
	return err
}

// admitAnew reads the route of a call again, because the session may have changed since it was remembered. If it has,
// admitAnew lets the hooks decide anew. Else it returns refused, the refusal that the call got before.
func (i *Invoker) admitAnew(ctx context.Context, p *prepared, refused error) error {
	fresh, err := i.cfg.Router.ResolveAgain(timed{ctx, p.inv.Deadline}, p.route)
	if err != nil {
		return err
	}
	before := p.route
	p.route = fresh
	if fresh.Spec.Hash() == before.Spec.Hash() && fresh.Session.Generation == before.Session.Generation &&
		fresh.Session.AttributesDigest() == before.Session.AttributesDigest() {
		return refused
	}
	p.inv.Args = p.inv.Asked
	return i.admit(ctx, p)
}

// admit lets the hooks decide whether a call whose route is known may run.
func (i *Invoker) admit(ctx context.Context, p *prepared) error {
	p.inv.Session, p.inv.Spec = p.route.Session, p.route.Spec
	if len(i.cfg.Hooks) > 0 { // they are not ours, and the session may be remembered for other calls
		p.inv.Session = p.inv.Session.Clone()
	}
	if err := i.decide(p); err != nil {
		return err
	}
	p.inv.Timeout = i.clamp(p.timeout, p.route.Spec.Timeout())
	if most := p.inv.Policy.Resources.MaxRuntime; most > 0 {
		p.inv.Timeout = min(p.inv.Timeout, most)
	}
	p.inv.Deadline = p.start.Add(p.inv.Timeout)
	if err := i.hooks.before(ctx, i.cfg.Log, &p.inv); err != nil {
		return err
	}
	if p.local != nil {
		if err := i.checkLocal(ctx, p.local, &p.inv); err != nil {
			return err
		}
	}
	if err := i.consent(ctx, p); err != nil {
		return err
	}
	// Checks that took less than a millisecond are not taken from the tool's time.
	if p.remaining = p.inv.Timeout - time.Since(p.start).Truncate(time.Millisecond); p.remaining <= 0 {
		return registry.Errorf(registry.CodeTimeout, "The time of the call was up before its tool could run.")
	}
	return nil
}

// localTool returns the local tool that a request means, nil if there is none. A request that names a target or a
// conversation means no local tool.
func (i *Invoker) localTool(req *Request) Tool {
	if i.cfg.LocalTools == nil || !req.Target.IsZero() || req.Conversation != (registry.Key{}) {
		return nil
	}
	sc := SessionContext{
		Key: registry.Key{Tenant: req.Caller.Tenant}, Caller: req.Caller,
		Kind: policy.Join(req.Context, policy.Context(req.Caller.Context)),
	}
	tool, err := i.cfg.LocalTools.find(sc, req.Tool)
	if err != nil {
		i.cfg.Log.Warn("built-in tool not made as announced", "tool", req.Tool, "error", err)
	}
	return tool
}

// sourceOf returns the source of the tools of a session.
func sourceOf(session registry.Key) string { return sourceRemote + session.Session }

// recordOf begins the record of a call.
func recordOf(req *Request, p *prepared, session *registry.Session) registry.Record {
	rec := registry.NewRecord(req.CallID, req.Caller.Tenant, req.Tool, req.Args.Raw())
	rec.UserID, rec.Turn, rec.TimeoutMS = req.Caller.User, req.Turn, p.inv.Timeout.Milliseconds()
	rec.Caller = req.Caller.Note()
	rec.SessionID, rec.DeviceID = session.Key.Session, session.DeviceID
	if p.local != nil {
		rec.Tool, rec.Source = p.inv.Spec.Name, registry.SourceLocal
	}
	return rec
}

// runTool runs the tool, on this pod or on a device.
func (i *Invoker) runTool(
	ctx context.Context, p *prepared, rec *registry.Record, durable bool,
) (registry.Result, error) {
	if p.local != nil {
		return i.runLocal(ctx, *p, rec, durable)
	}
	limit := time.Now().Add(p.remaining) // a definition that is read later gives a call no more time
	for attempt := int64(0); ; attempt++ {
		call := registry.Call{
			ID: p.inv.CallID, Route: p.route, Args: p.inv.Args, Timeout: p.remaining, Durable: durable,
			Attempt: attempt,
		}
		if !durable {
			call.Record = rec
		}
		// The router enforces the timeout of a call itself, so the context needs no timer.
		res, err := i.cfg.Router.Call(deadlineOnly{ctx}, call)
		if !errors.Is(err, registry.CodeStaleRoute) {
			return res, err
		}
		if attempt == maxAttempts-1 {
			e := registry.Errorf(registry.CodeBusy,
				"The device changes its session or the tool all the time. Retry in a moment.")
			return registry.Result{}, e.With(registry.DispatchedNo)
		}
		if err := i.admitAnew(ctx, p, err); err != nil && !errors.Is(err, registry.CodeStaleRoute) {
			i.noteDecision(&Request{Caller: p.inv.Caller, Tool: p.inv.Spec.Name, CallID: p.inv.CallID,
				Turn: p.inv.Turn}, p, err)
			return registry.Result{}, err
		}
		if p.ask != nil {
			return registry.Result{}, registry.Errorf(registry.CodeApprovalDenied, "The tool has changed just now and needs "+
				"a person's approval. Call again to ask for it.").With(registry.DispatchedNo)
		}
		rec.DeviceID = p.route.Session.DeviceID
		if p.remaining = min(p.remaining, time.Until(limit)); p.remaining <= 0 {
			return registry.Result{}, registry.Errorf(registry.CodeTimeout,
				"The time of the call was up before its tool could run.").With(registry.DispatchedNo)
		}
	}
}

// maxAttempts is how often a call is made while its session keeps changing.
const maxAttempts = 3

// clamp returns the timeout of a call: the requested one, else that of the tool, else the configured default, but at
// most MaxTimeout. Zero means none.
func (i *Invoker) clamp(requested, ofTool time.Duration) time.Duration {
	for _, d := range []time.Duration{requested, ofTool, i.cfg.Timeout} {
		if d > 0 {
			return min(d, i.cfg.MaxTimeout)
		}
	}
	return i.cfg.MaxTimeout
}

// Read waits until the text of a request, of n bytes, may be read. Only few long texts are read at a time, so that a
// short one never waits for more than one of them. The caller must call done when it has read the text.
func (i *Invoker) Read(ctx context.Context, n int) (done func(), err error) {
	return i.cfg.Schemas.ReadText(ctx, time.Time{}, n)
}

// checkRequestArgs runs checkArgs once the arguments of a request may be read.
func (i *Invoker) checkRequestArgs(ctx context.Context, req *Request, start time.Time) error {
	done, err := i.cfg.Schemas.ReadText(ctx, start.Add(i.clamp(req.Timeout, 0)), req.Args.Len())
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
