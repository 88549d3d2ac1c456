package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/access/policy"
	"github.com/farhand/farhand/registry"
)

// Invocation is a call on its way through the hooks.
type Invocation struct {
	CallID  string
	Caller  auth.Identity
	Session registry.Session  // a copy of where the call goes; empty but for the tenant for a local tool
	Spec    registry.ToolSpec // only the name, as it was asked for, if no tool was found; shared, so read-only
	Args    registry.JSON     // an object
	Asked   registry.JSON     // the arguments before any hook changed them
	Timeout time.Duration

	// Deadline is when the time of the call is up, what comes before the tool runs included. Zero: never.
	Deadline time.Time

	Conversation registry.Key // zero outside of any that the gateway keeps
	Turn         string
	CallHistory  *CallHistory // what guards note of a turn whose conversation the caller keeps; nil otherwise
	Source       string       // registry.SourceLocal, "mcp:" and a server, "remote:" and the session; empty: no tool

	Model    bool             // a model asks for the call, not its caller
	Endpoint Endpoint         // where the call came in
	Context  policy.Context   // of the conversation; the caller's credentials may say more of it
	Policy   *policy.Decision // what policy says of the call; nil if no tool was found

	// Provenance says where the values of a model's call come from; nil: that is not known.
	Provenance *Provenance

	Marks  policy.Marks   // where the call comes from, as far as policy asks; for those who run after the hooks
	Demand *policy.Demand // why a person is asked about the call; nil: nobody is

	charged []string // the windows of rate limits that have counted the call: it may be admitted several times
}

// Decision is what a hook says before a call. The zero value lets it pass.
type Decision struct {
	args    json.RawMessage
	cancel  bool
	reason  string
	charged []string // the windows of rate limits that have counted the call
}

// Pass lets the call go on as it is.
func Pass() Decision { return Decision{} }

// Modify lets the call go on with other arguments, which must be a JSON object.
func Modify(args json.RawMessage) Decision { return Decision{args: args} }

// Cancel stops the call. The reason is told to the caller, and to a model that reads the answer.
func Cancel(reason string) Decision { return Decision{cancel: true, reason: reason} }

// Hook takes part in every call. It also implements BeforeHook, AmendHook or AfterHook, or several of them, and is safe
// for concurrent use.
type Hook interface {
	// Name appears in errors and logs.
	Name() string
}

// BeforeHook decides before a call. An error that is an *registry.Error keeps its code; any other is internal and
// stops the call too: a broken guard never lets a call through. It may be asked several times about one
// call: again whenever the session or the tool turns out to have changed since it was asked, at most four times.
type BeforeHook interface {
	Hook
	Before(ctx context.Context, inv Invocation) (Decision, error)
}

// AfterHook observes how a call ended for its caller: with a result, or with err. It is also called when a hook stopped
// the call, and when no tool was found. The arguments of a long request may be missing, as in AmendHook.
type AfterHook interface {
	Hook
	After(ctx context.Context, inv Invocation, out Outcome, err error)
}

// BeforeFunc returns a hook that is a function: it decides before each call.
func BeforeFunc(name string, decide func(context.Context, Invocation) (Decision, error)) BeforeHook {
	return beforeFunc{name, decide}
}

type beforeFunc struct {
	name   string
	decide func(context.Context, Invocation) (Decision, error)
}

// Name implements Hook.
func (f beforeFunc) Name() string { return f.name }

// Before implements BeforeHook.
func (f beforeFunc) Before(ctx context.Context, inv Invocation) (Decision, error) {
	return f.decide(ctx, inv)
}

// pipeline runs the hooks in order.
type pipeline []Hook

func (p pipeline) before(ctx context.Context, log *slog.Logger, inv *Invocation) error {
	for _, h := range p {
		b, ok := h.(BeforeHook)
		if !ok {
			continue
		}
		d, err := ask(ctx, b, inv)
		if err != nil {
			noteBroken(ctx, log, h, inv, err)
			return err
		}
		if d.cancel {
			return registry.Errorf(registry.CodeHookCancelled, "The hook %s stopped the call: %s", h.Name(), d.reason)
		}
		inv.charged = append(inv.charged, d.charged...)
		if d.args != nil {
			args, err := registry.ParseJSON(d.args)
			if err == nil {
				err = checkArgs(args)
			}
			if err != nil { // the hook's fault, not the caller's
				return fmt.Errorf("hook %s changed the arguments: %s", h.Name(), registry.AsError(err).Message)
			}
			inv.Args = args
		}
	}
	return nil
}

// noteBroken logs that a hook failed. One that refuses a call has not: it says so with a code.
func noteBroken(ctx context.Context, log *slog.Logger, h Hook, inv *Invocation, err error) {
	if e := registry.AsError(err); e.Code == registry.CodeInternal || e.Code == registry.CodeStoreUnavailable {
		log.ErrorContext(ctx, "a hook failed",
			"hook", h.Name(), "tool", inv.Spec.Name, "call_id", inv.CallID, "error", err)
	}
}

// ask turns a panic of a hook into an error: the call does not go through, and the process lives.
func ask(ctx context.Context, h BeforeHook, inv *Invocation) (d Decision, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("hook %s panicked: %v\n%s", h.Name(), p, debug.Stack())
		}
	}()
	return h.Before(ctx, *inv)
}

// after tells the hooks how the call ended. A panic of one is logged and keeps nothing from the others.
func (p pipeline) after(ctx context.Context, log *slog.Logger, inv *Invocation, out Outcome, err error) {
	for _, h := range p {
		if a, ok := h.(AfterHook); ok {
			tell(ctx, log, a, inv, out, err)
		}
	}
}

func tell(ctx context.Context, log *slog.Logger, h AfterHook, inv *Invocation, out Outcome, err error) {
	defer func() {
		if p := recover(); p != nil {
			log.Error("panic in a hook", "hook", h.Name(), "panic", p, "stack", string(debug.Stack()))
		}
	}()
	h.After(ctx, *inv, out, err)
}
