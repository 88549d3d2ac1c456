package agent

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/farhand/farhand/agent/auth"
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
	Caller
	Resolve(ctx context.Context, tenant, tool string, t registry.Target, sel registry.Select) (registry.Route, error)
	Refresh(ctx context.Context, remembered registry.Route) (registry.Route, error)
}

// CallLog is the part of routing.Calls the Invoker needs.
type CallLog interface {
	Finish(rec *registry.Record, res registry.Result, err error) // which keeps rec
	Start(ctx context.Context, rec registry.Record, run func(context.Context) (registry.Result, error)) (stored registry.Record, created bool, err error)
	ByKey(ctx context.Context, tenant, key string) (registry.Record, error)
	Wait(ctx context.Context, tenant, callID string, wait time.Duration) (registry.Record, error)
	Outcome(ctx context.Context, tenant, callID string, wait time.Duration) (registry.Record, error) // of one's own call
	AmendWith(amend registry.Amend)
}

// Config configures an Invoker. Router, CallLog and Policy are required.
type Config struct {
	Router     Router
	CallLog    CallLog
	Policy     *Policy
	Schemas    *schema.Validator // default: schema.NewValidator()
	Guards     []Hook            // the gateway's own hooks, as the loop guard; run after the policy
	Hooks      []Hook            // custom hooks, run after the guards and before the validation of the arguments
	Builtins   *LocalTools       // tools that may be called by name alone; nil: none
	Timeout    time.Duration     // of a call that names none, as does its tool; default 30 s
	MaxTimeout time.Duration     // what any wish is clamped to; default 5 min
	Pod        string            // id of this pod: tells the Meter which sessions are here
	Meter      Meter             // hears how calls end; default: nobody
	Log        *slog.Logger      // default: discard
}

// Invoker is the one operation behind every API. It is safe for concurrent use.
type Invoker struct {
	router       Router
	callLog      CallLog
	hooks        pipeline
	amendsStored bool // results are amended before they are stored
	builtins     *LocalTools
	schemas      *schema.Validator
	timeout      time.Duration
	maxTimeout   time.Duration
	pod          string
	meter        Meter // nil: nobody hears
	log          *slog.Logger
}

// NewInvoker returns an Invoker. This is the one place that says in which order hooks run:
//
//	before:  name policy ─▶ guards (loop guard) ─▶ custom hooks ─▶ validation of the arguments
//	amend:   the same hooks backwards, so that the guards read, and may add to, what the others made of the result
//	after:   the same hooks forwards; they see what the caller reads
//
// Validation is last because a hook may have changed the arguments. A call for which no tool was found, or whose
// arguments are no JSON object, has no before: it has ended already.
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
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	hooks := pipeline{cfg.Policy}
	hooks = append(hooks, cfg.Guards...)
	hooks = append(hooks, cfg.Hooks...)
	hooks = append(hooks, validation{cfg.Schemas})
	// Guards amend what a conversation reads, and the calls of one are amended before they have a record.
	custom := pipeline(cfg.Hooks).amends()
	if len(custom) > 0 {
		cfg.CallLog.AmendWith(func(ctx context.Context, rec registry.Record, res registry.Result) registry.Result {
			return custom.stored(ctx, cfg.Log, rec, res)
		})
	}
	return &Invoker{
		router: cfg.Router, callLog: cfg.CallLog, hooks: hooks, amendsStored: len(custom) > 0, builtins: cfg.Builtins, schemas: cfg.Schemas,
		timeout: cfg.Timeout, maxTimeout: cfg.MaxTimeout, pod: cfg.Pod, meter: cfg.Meter, log: cfg.Log,
	}
}

// Request asks for one call.
type Request struct {
	CallID  string // default: a new one
	Caller  auth.Identity
	Tool    string
	Args    registry.JSON // an object; none means {}
	Target  registry.Target
	Select  registry.Select
	Timeout time.Duration // zero: the tool's own, else the configured default

	Endpoint Endpoint // where the call came in, for the Meter

	// Local is the tool to run, here, whose name Tool is then. Nil: the tool is looked for, among the built-in tools if
	// neither Target nor Conversation say where, else on devices.
	Local Tool

	Conversation registry.Key // that the call belongs to; zero: none
	Turn         string       // of the conversation

	// Async returns as soon as the call has a record, which tells the rest.
	Async bool

	// IdempotencyKey makes repeating the request harmless: the same request with the same key gets the answer of the
	// call that has the key, or joins it while it runs. Such a call goes on when its caller hangs up.
	IdempotencyKey string

	// Release is called once, when the arguments are held no longer: when Invoke returns, or the call it began has
	// ended.
	Release func()

	missing error        // why there is nothing to run, known beforehand: nothing is looked for
	history *CallHistory // of a turn whose conversation the caller keeps

	where   CallRoute // for the Meter
	counted bool      // the Meter hears of this call elsewhere, or has
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
	Replayed bool // the answer is that of an earlier call with the same idempotency key
}

// Invoke resolves, checks and runs a call. Cancelling ctx cancels it, unless it is asynchronous or carries an
// idempotency key. The error is always an *registry.Error with CallID and Dispatched set; a tool that ran and failed
// is no error.
func (i *Invoker) Invoke(ctx context.Context, req Request) (Outcome, error) {
	start := time.Now()
	if req.CallID == "" {
		req.CallID = registry.NewCallID()
	}
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
		i.count(&req, out.Duration, out.Result.Success, err)
	}
	if err == nil {
		return out, nil
	}
	e := *undispatched(err)
	e.CallID = out.CallID
	return out, &e
}

// undispatched completes an error: what happens after dispatching says so itself.
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
	if err := i.checkArgs(ctx, req, start); err != nil {
		if req.Conversation == (registry.Key{}) && req.history == nil || req.durable() {
			return err
		}
		req.missing = err // in a turn every call a model asks for counts, and is on record
	}
	p := prepared{start: start}
	err := i.prepare(ctx, req, &p, out)
	if err != nil {
		err = undispatched(err)
	}
	req.where = i.routeOf(&p)
	rec := recordOf(req, &p, &out.Session)
	if req.durable() {
		return i.invokeDurable(ctx, req, durable{prepared: p, rec: rec, refused: err}, out)
	}
	if err == nil {
		out.Result, err = i.run(ctx, &p, &rec, false)
		out.State = out.Result.State()
	}
	return i.finish(ctx, &p.inv, &rec, out, err)
}

// finish has the hooks say what is to be read of a call that ended, and records it. Hooks change what is read of a
// call; its record says whether it ran.
func (i *Invoker) finish(ctx context.Context, inv *Invocation, rec *registry.Record, out *Outcome, ended error) error {
	res, err := i.hooks.end(ctx, i.log, inv, *out, ended)
	switch {
	case ended == nil && err != nil:
		i.callLog.Finish(rec, withoutOutput(out.Result, err), nil)
	case ended != nil && err == nil:
		i.callLog.Finish(rec, registry.Result{}, ended)
	default:
		i.callLog.Finish(rec, res, err)
	}
	out.Result, out.State = res, res.State()
	return err
}

// withoutOutput is what is recorded of a result that a hook does not want to be read.
func withoutOutput(res registry.Result, err error) registry.Result {
	e := registry.AsError(err)
	return registry.Result{Success: res.Success, Error: e.Message, Withheld: e.With(registry.DispatchedYes)}
}

// prepared is a call that may run: here if local is set, else on a device.
type prepared struct {
	local Tool
	route registry.Route
	inv   Invocation

	start time.Time     // when it was asked for; its time runs from here
	left  time.Duration // of its time, once the hooks have let it pass
}

// prepare does everything that comes before the tool runs. On an error the invocation says what is known until then.
func (i *Invoker) prepare(ctx context.Context, req *Request, p *prepared, out *Outcome) error {
	*p = prepared{local: req.Local, start: p.start, inv: Invocation{
		CallID: req.CallID, Caller: req.Caller, Spec: registry.ToolSpec{Name: req.Tool}, Args: req.Args, Asked: req.Args,
		Timeout: i.clamp(req.Timeout, 0), Conversation: req.Conversation, Turn: req.Turn, CallHistory: req.history,
	}}
	if req.missing != nil {
		return req.missing
	}
	if p.local == nil {
		p.local = i.builtin(req)
	}
	if p.local != nil {
		spec, err := specOf(p.local)
		if err != nil {
			return err
		}
		p.route.Session.Tenant, p.route.Spec = req.Caller.Tenant, spec
		p.inv.Source = registry.SourceBuiltin
	} else {
		var err error
		if p.route, err = i.router.Resolve(timed{ctx, p.start.Add(p.inv.Timeout)}, req.Caller.Tenant, req.Tool, req.Target, req.Select); err != nil {
			return err
		}
		p.inv.Source = sourceOf(p.route.Session.Key)
	}
	err := i.admit(ctx, req, p, out)
	if err == nil || !p.route.Remembered || !errors.Is(err, registry.CodeInvalidArguments) {
		return err
	}
	// The tool may have been registered anew since. If so, the call begins anew too.
	fresh, failure := i.router.Refresh(timed{ctx, p.inv.Deadline}, p.route)
	if failure != nil {
		return failure
	}
	if bytes.Equal(fresh.Spec.Parameters, p.route.Spec.Parameters) {
		return err
	}
	p.route, p.inv.Args = fresh, req.Args
	return i.admit(ctx, req, p, out)
}

// admit has the hooks decide about a call whose route is known.
func (i *Invoker) admit(ctx context.Context, req *Request, p *prepared, out *Outcome) error {
	out.Session = p.route.Session
	p.inv.Session, p.inv.Spec = p.route.Session, p.route.Spec
	p.inv.Timeout = i.clamp(req.Timeout, p.route.Spec.Timeout())
	p.inv.Deadline = p.start.Add(p.inv.Timeout)
	if err := i.hooks.before(ctx, i.log, &p.inv); err != nil {
		return err
	}
	if p.local != nil {
		if err := i.checkLocal(ctx, p.local, &p.inv); err != nil {
			return err
		}
	}
	// What took no time to speak of is the tool's.
	if p.left = p.inv.Timeout - time.Since(p.start).Truncate(time.Millisecond); p.left <= 0 {
		return registry.Errorf(registry.CodeTimeout, "The time of the call was up before its tool could run.")
	}
	return nil
}

// builtin returns the built-in tool a request means that says of nothing else where its tool is; nil if there is none.
func (i *Invoker) builtin(req *Request) Tool {
	if i.builtins == nil || !req.Target.IsZero() || req.Conversation != (registry.Key{}) {
		return nil
	}
	tool, err := i.builtins.find(SessionContext{Key: registry.Key{Tenant: req.Caller.Tenant}, Caller: req.Caller}, req.Tool)
	if err != nil {
		i.log.Warn("built-in tool not made as announced", "tool", req.Tool, "error", err)
	}
	return tool
}

// sourceOf names a session as the source of a tool.
func sourceOf(session registry.Key) string { return sourceRemote + session.Session }

// recordOf begins the record of a call.
func recordOf(req *Request, p *prepared, session *registry.Session) registry.Record {
	rec := registry.NewRecord(req.CallID, req.Caller.Tenant, req.Tool, req.Args.Raw())
	rec.UserID, rec.Turn, rec.TimeoutMS = req.Caller.User, req.Turn, p.inv.Timeout.Milliseconds()
	rec.SessionID, rec.DeviceID = session.Key.Session, session.DeviceID
	if p.local != nil {
		rec.Tool, rec.Source = p.inv.Spec.Name, registry.SourceBuiltin
	}
	return rec
}

// run has the tool do its work, wherever it is.
func (i *Invoker) run(ctx context.Context, p *prepared, rec *registry.Record, durable bool) (registry.Result, error) {
	if p.local != nil {
		return i.runLocal(ctx, *p, rec, durable)
	}
	call := registry.Call{ID: p.inv.CallID, Route: p.route, Args: p.inv.Args, Timeout: p.left, Durable: durable}
	if !durable {
		call.Record = rec
	}
	return i.router.Call(deadlineOnly{ctx}, call) // it keeps to its time by itself, so no timer is needed for the context
}

func (i *Invoker) clamp(asked, tools time.Duration) time.Duration {
	for _, d := range []time.Duration{asked, tools, i.timeout} {
		if d > 0 {
			return min(d, i.maxTimeout)
		}
	}
	return i.maxTimeout
}

// Read waits until a text of n bytes may be read that asks for a call or a turn: few long ones are at a time. done says
// that it has been.
func (i *Invoker) Read(ctx context.Context, n int) (done func(), err error) {
	return i.schemas.ReadText(ctx, time.Time{}, n)
}

func (i *Invoker) checkArgs(ctx context.Context, req *Request, start time.Time) error {
	done, err := i.schemas.ReadText(ctx, start.Add(i.clamp(req.Timeout, 0)), req.Args.Len())
	if err != nil {
		return err
	}
	defer done()
	return checkArgs(req.Args)
}

// noArgs are the arguments of a call that has none.
var noArgs = registry.MustJSON(`{}`)

// checkArgs holds for every call, whatever its schema: arguments are one JSON object of bounded depth.
func checkArgs(args registry.JSON) error {
	if !args.IsObject() {
		return registry.Errorf(registry.CodeInvalidRequest, "args must be a JSON object.")
	}
	if strictjson.Depth(args.Raw()) > MaxArgsDepth {
		return registry.Errorf(registry.CodeInvalidRequest, "args may nest at most %d levels deep.", MaxArgsDepth)
	}
	return nil
}
