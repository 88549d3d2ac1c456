package agent

import (
	"bytes"
	"context"
	"encoding/json"
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
}

// Config configures an Invoker. Router and Policy are required.
type Config struct {
	Router     Router
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
	return &Invoker{router: cfg.Router, hooks: hooks, timeout: cfg.Timeout, maxTimeout: cfg.MaxTimeout, log: cfg.Log}
}

// Request asks for one call.
type Request struct {
	Caller  guard.Identity
	Tool    string
	Args    json.RawMessage // a JSON object; empty means {}
	Target  registry.Target
	Select  registry.Select
	Timeout time.Duration // zero: the tool's own, else the configured default
}

// Outcome is how a call went. On an error the fields known until then are set.
type Outcome struct {
	CallID   string
	Session  registry.Session
	Result   registry.Result
	Duration time.Duration
}

// Invoke resolves, checks and runs a call. Cancelling ctx cancels it. The error is always an *registry.Error with
// CallID and Dispatched set; a tool that ran and failed is no error.
func (i *Invoker) Invoke(ctx context.Context, req Request) (Outcome, error) {
	start := time.Now()
	out := Outcome{CallID: registry.NewCallID()}
	err := i.invoke(ctx, req, &out)
	out.Duration = time.Since(start)
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
	route, err := i.router.Resolve(ctx, req.Caller.Tenant, req.Tool, req.Target, req.Select)
	if err != nil {
		return err
	}
	out.Session = route.Session
	inv := Invocation{
		CallID: out.CallID, Caller: req.Caller, Session: route.Session, Spec: route.Spec,
		Args: req.Args, Timeout: i.clamp(req.Timeout, route.Spec.Timeout()),
	}
	if err = i.hooks.before(ctx, &inv); err == nil {
		out.Result, err = execute(ctx, NewRemoteTool(i.router, route, out.CallID), inv)
	}
	i.hooks.after(ctx, i.log, inv, *out, err)
	return err
}

// execute runs a tool with its deadline and nothing else of the server.
func execute(ctx context.Context, t Tool, inv Invocation) (registry.Result, error) {
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
