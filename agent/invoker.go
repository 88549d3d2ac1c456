package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	"github.com/farhand/farhand/agent/guard"
	"github.com/farhand/farhand/registry"
)

// Timeouts of a call when nothing else is configured.
const (
	DefaultCallTimeout    = 30 * time.Second
	DefaultMaxCallTimeout = 5 * time.Minute
)

// MaxArgsDepth is how deep the arguments of a call may nest.
const MaxArgsDepth = 64

// Router is the part of registry.Router the Invoker needs.
type Router interface {
	Caller
	Resolve(ctx context.Context, tenant, tool string, t registry.Target, sel registry.Select) (registry.Route, error)
	Refresh(ctx context.Context, remembered registry.Route) (registry.Route, error)
}

// Ledger is the part of registry.Calls the Invoker needs.
type Ledger interface {
	Finish(rec registry.Record, res registry.Result, err error)
	Start(ctx context.Context, rec registry.Record, run func(context.Context) (registry.Result, error)) (stored registry.Record, created bool, err error)
	ByKey(ctx context.Context, tenant, key string) (registry.Record, error)
	Wait(ctx context.Context, tenant, callID string, wait time.Duration) (registry.Record, error)
}

// Config configures an Invoker. Router, Ledger and Policy are required.
type Config struct {
	Router     Router
	Ledger     Ledger
	Policy     *Policy
	Schemas    *Schemas      // default: NewSchemas()
	Hooks      []Hook        // custom hooks, run after the policy and before the validation of the arguments
	Timeout    time.Duration // of a call that names none, as does its tool; default 30 s
	MaxTimeout time.Duration // what any wish is clamped to; default 5 min
	Log        *slog.Logger  // default: discard
}

// Invoker is the one operation behind every door. It is safe for concurrent use.
type Invoker struct {
	router     Router
	ledger     Ledger
	hooks      pipeline
	timeout    time.Duration
	maxTimeout time.Duration
	log        *slog.Logger
}

// NewInvoker returns an Invoker whose hooks run in this order: name policy, custom hooks, validation of the arguments
// (last, because a hook may have changed them).
func NewInvoker(cfg Config) *Invoker {
	if cfg.Schemas == nil {
		cfg.Schemas = NewSchemas()
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
	hooks = append(hooks, cfg.Hooks...)
	hooks = append(hooks, validation{cfg.Schemas})
	return &Invoker{
		router: cfg.Router, ledger: cfg.Ledger, hooks: hooks, timeout: cfg.Timeout, maxTimeout: cfg.MaxTimeout, log: cfg.Log,
	}
}

// Request asks for one call.
type Request struct {
	CallID  string // default: a new one
	Caller  guard.Identity
	Tool    string
	Args    json.RawMessage // a JSON object; empty means {}
	Target  registry.Target
	Select  registry.Select
	Timeout time.Duration // zero: the tool's own, else the configured default

	// Async returns as soon as the call has a record, which tells the rest.
	Async bool

	// IdempotencyKey makes repeating the request harmless: the same request with the same key gets the answer of the
	// call that has the key, or joins it while it runs. Such a call goes on when its caller hangs up.
	IdempotencyKey string
}

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
	out := Outcome{CallID: req.CallID}
	err := i.invoke(ctx, req, &out)
	if out.Duration == 0 {
		out.Duration = time.Since(start)
	}
	if err == nil {
		return out, nil
	}
	e := *registry.AsError(err)
	e.CallID = out.CallID
	if e.Dispatched == "" {
		e.Dispatched = registry.DispatchedNo // everything after dispatching says so itself
	}
	return out, &e
}

func (i *Invoker) invoke(ctx context.Context, req Request, out *Outcome) error {
	if len(req.Args) == 0 {
		req.Args = json.RawMessage(`{}`)
	}
	if err := checkArgs(req.Args); err != nil {
		return err
	}
	rec := registry.NewRecord(req.CallID, req.Caller.Tenant, req.Tool, req.Args)
	rec.UserID = req.Caller.User
	route, inv, err := i.prepare(ctx, req, out)
	rec.SessionID, rec.DeviceID, rec.TimeoutMS = out.Session.Key.Session, out.Session.DeviceID, inv.Timeout.Milliseconds()
	if req.Async || req.IdempotencyKey != "" {
		return i.invokeDurable(ctx, req, durable{route: route, inv: inv, rec: rec, refused: err}, out)
	}
	if err == nil {
		tool := NewRemoteTool(i.router, route, req.CallID)
		tool.record = &rec
		out.Result, err = execute(ctx, tool, inv)
		out.State = out.Result.State()
	}
	i.hooks.after(ctx, i.log, inv, *out, err)
	i.ledger.Finish(rec, out.Result, err)
	return err
}

// prepare does everything that comes before the tool runs.
func (i *Invoker) prepare(ctx context.Context, req Request, out *Outcome) (registry.Route, Invocation, error) {
	inv := Invocation{CallID: req.CallID, Caller: req.Caller, Args: req.Args, Timeout: i.clamp(req.Timeout, 0)}
	route, err := i.router.Resolve(ctx, req.Caller.Tenant, req.Tool, req.Target, req.Select)
	if err != nil {
		return route, inv, err
	}
	err = i.admit(ctx, req, route, &inv, out)
	if !route.Remembered || !errors.Is(err, registry.CodeInvalidArguments) {
		return route, inv, err
	}
	// The tool may have been registered anew since. If so, the call begins anew too.
	fresh, failure := i.router.Refresh(ctx, route)
	if failure != nil {
		return route, inv, failure
	}
	if bytes.Equal(fresh.Spec.Parameters, route.Spec.Parameters) {
		return route, inv, err
	}
	inv.Args = req.Args
	return fresh, inv, i.admit(ctx, req, fresh, &inv, out)
}

// admit has the hooks decide about a call that goes to route.
func (i *Invoker) admit(ctx context.Context, req Request, route registry.Route, inv *Invocation, out *Outcome) error {
	out.Session = route.Session
	inv.Session, inv.Spec, inv.Timeout = route.Session, route.Spec, i.clamp(req.Timeout, route.Spec.Timeout())
	return i.hooks.before(ctx, inv)
}

// execute runs a tool with its deadline and nothing else of the server.
func execute(ctx context.Context, t Tool, inv Invocation) (registry.Result, error) {
	if remote, ok := t.(RemoteTool); ok { // keeps to its time by itself, so its context needs no timer
		return remote.call(deadlineOnly{ctx}, inv.Args, inv.Timeout)
	}
	ctx, cancel := context.WithTimeout(ctx, inv.Timeout)
	defer cancel()
	return t.Execute(deadlineOnly{ctx}, inv.Args)
}

func (i *Invoker) clamp(asked, tools time.Duration) time.Duration {
	for _, d := range []time.Duration{asked, tools, i.timeout} {
		if d > 0 {
			return min(d, i.maxTimeout)
		}
	}
	return i.maxTimeout
}

// checkArgs holds for every call, whatever its schema: arguments are one JSON object of bounded depth.
func checkArgs(args json.RawMessage) error {
	trimmed := bytes.TrimSpace(args)
	if len(trimmed) == 0 || trimmed[0] != '{' || !json.Valid(trimmed) {
		return registry.Errorf(registry.CodeInvalidRequest, "args must be a JSON object.")
	}
	if registry.Depth(trimmed) > MaxArgsDepth {
		return registry.Errorf(registry.CodeInvalidRequest, "args may nest at most %d levels deep.", MaxArgsDepth)
	}
	return nil
}
