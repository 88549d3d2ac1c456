package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"time"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/access/policy"
	"github.com/farhand/farhand/agent/schema"
	"github.com/farhand/farhand/internal/trace"
	"github.com/farhand/farhand/registry"
)

// Invocation is a call that passes through the hooks.
type Invocation struct {
	CallID  string
	Caller  auth.Identity
	Session registry.Session  // a copy of the target session; for a local tool empty but for the tenant
	Spec    registry.ToolSpec // only the requested name if no tool was found; shared, so read-only
	Args    registry.JSON     // an object
	Asked   registry.JSON     // the arguments before any hook changed them
	Timeout time.Duration

	Deadline time.Time // when the call must have ended, including all steps before the tool runs; zero: never

	Conversation registry.Key // zero outside of conversations that the gateway keeps
	Turn         string
	CallHistory  *CallHistory // for guards, in a turn whose conversation the caller keeps; nil otherwise
	Source       string       // registry.SourceLocal, "mcp:" and a server, "remote:" and the session; empty: no tool

	Model    bool             // a model makes the call, not its caller
	Endpoint Endpoint         // where the call arrived
	Context  policy.Context   // of the conversation; the caller's credentials may restrict it further
	Policy   *policy.Decision // the policy decision about the call; nil if no tool was found

	Provenance *Provenance // where the values of a model's call come from; nil: unknown

	Marks  policy.Marks   // where the call comes from, if the policy asks; for code that runs after the hooks
	Demand *policy.Demand // why the call needs approval; nil: it needs none

	Child bool // a child of a group call, which the guards have seen

	charged []string // the rate-limit windows that have counted the call: it may be admitted several times
}

// Decision is the result of a hook that runs before a call. The zero value lets the call pass.
type Decision struct {
	args    json.RawMessage
	cancel  bool
	reason  string
	charged []string // the rate-limit windows that have counted the call
}

// Pass lets the call continue unchanged.
func Pass() Decision { return Decision{} }

// Modify lets the call continue with other arguments, which must be a JSON object.
func Modify(args json.RawMessage) Decision { return Decision{args: args} }

// Cancel stops the call. The caller, and a model that reads the answer, get the reason.
func Cancel(reason string) Decision { return Decision{cancel: true, reason: reason} }

// Hook takes part in every call: it is a BeforeHook, AmendHook or AfterHook. It must be safe for concurrent use.
type Hook interface {
	// Name appears in errors and logs.
	Name() string
}

// BeforeHook decides before a call. An error stops the call: a failing guard never lets a call through. An
// *registry.Error keeps its code; any other error is internal. Before may run several times for one call: again
// whenever the session or the tool has changed since, and after an approval.
type BeforeHook interface {
	Hook
	Before(ctx context.Context, inv Invocation) (Decision, error)
}

// AfterHook observes how a call ended for its caller: with a result, or with err. It also runs when a hook stopped the
// call, and when no tool was found. The arguments of a long request may be missing, as in AmendHook.
type AfterHook interface {
	Hook
	After(ctx context.Context, inv Invocation, out Outcome, err error)
}

// BeforeFunc returns a BeforeHook that calls decide.
func BeforeFunc(name string, decide func(context.Context, Invocation) (Decision, error)) BeforeHook {
	return beforeFunc{name, decide}
}

type beforeFunc struct {
	name   string
	decide func(context.Context, Invocation) (Decision, error)
}

func (f beforeFunc) Name() string { return f.name }

func (f beforeFunc) Before(ctx context.Context, inv Invocation) (Decision, error) {
	return f.decide(ctx, inv)
}

type pipeline []Hook

func (p pipeline) before(ctx context.Context, log *slog.Logger, inv *Invocation) error {
	for _, h := range p {
		b, ok := h.(BeforeHook)
		if !ok {
			continue
		}
		d, err := runBefore(ctx, b, inv)
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

// noteBroken logs that a hook failed. A refusal is not a failure: its error has another code.
func noteBroken(ctx context.Context, log *slog.Logger, h Hook, inv *Invocation, err error) {
	if e := registry.AsError(err); e.Code == registry.CodeInternal || e.Code == registry.CodeStoreUnavailable {
		log.ErrorContext(ctx, "hook failed",
			"hook", h.Name(), "tool", inv.Spec.Name, "call_id", inv.CallID, "error", err)
	}
}

// runBefore turns a panic of a hook into an error: the call is refused and the process continues.
func runBefore(ctx context.Context, h BeforeHook, inv *Invocation) (d Decision, err error) {
	ctx, span := trace.Start(ctx, trace.Internal, "hook", h.Name())
	defer func() { span.End(string(registry.CodeOf(err))) }()
	defer onPanic(func(p any) { err = fmt.Errorf("hook %s panicked: %v\n%s", h.Name(), p, debug.Stack()) })
	return h.Before(ctx, *inv)
}

// onPanic recovers from a panic of code that is not the gateway's, and calls do with its value. It must be deferred.
func onPanic(do func(p any)) {
	if p := recover(); p != nil {
		do(p)
	}
}

// after calls the AfterHooks with the outcome. A panic of one hook is logged; the others still run.
func (p pipeline) after(ctx context.Context, log *slog.Logger, inv *Invocation, out Outcome, err error) {
	for _, h := range p {
		if a, ok := h.(AfterHook); ok {
			runAfter(ctx, log, a, inv, out, err)
		}
	}
}

func runAfter(ctx context.Context, log *slog.Logger, h AfterHook, inv *Invocation, out Outcome, err error) {
	defer onPanic(func(p any) {
		log.Error("panic in a hook", "hook", h.Name(), "panic", p, "stack", string(debug.Stack()))
	})
	h.After(ctx, *inv, out, err)
}

// AmendHook changes the outcome that the caller or a model reads: it redacts, adds a remark, or withholds the result.
// It also runs when the call failed, when a hook stopped it and when no tool was found. It does not
// run for a malformed call that is durable, or that is not part of a conversation.
//
// If a call has a record (it is durable, or answered late), the pod that stores its result amends the result first. The
// invocation then holds only what the record has: arguments and conversation are missing. For requests longer than 16
// KiB, arguments are also missing, here and in AfterHook, once the device had the call: they are not kept until it
// answers.
type AmendHook interface {
	Hook

	// Amend returns the outcome to continue with. To leave it unchanged, return out.Result and err. An error that is no
	// *registry.Error is internal. If a hook with a result fails or panics, the result is withheld.
	Amend(ctx context.Context, inv Invocation, out Outcome, err error) (registry.Result, error)
}

// SelectiveHook is an AmendHook for some tools only. Progress reports of the others are not withheld.
type SelectiveHook interface {
	AmendHook

	// Amends reports whether results of the named tool are amended. It must always return the same for a name.
	Amends(tool string) bool
}

func amendsTool(h Hook, tool string) bool {
	if s, ok := h.(SelectiveHook); ok {
		return s.Amends(tool)
	}
	_, ok := h.(AmendHook)
	return ok
}

func (p pipeline) amendsTool(tool string) bool {
	return slices.ContainsFunc(p, func(h Hook) bool { return amendsTool(h, tool) })
}

// stored runs the amending hooks on a result before it is stored. It implements registry.Amend.
func (p pipeline) stored(
	ctx context.Context, log *slog.Logger, rec registry.Record, res registry.Result,
) registry.Result {
	session := registry.Session{Key: registry.Key{Tenant: rec.Tenant, Session: rec.SessionID}, DeviceID: rec.DeviceID}
	inv := Invocation{
		CallID: rec.CallID, Caller: auth.OfNote(rec.Tenant, rec.UserID, rec.Caller), Session: session,
		Spec: registry.ToolSpec{Name: rec.Tool}, Timeout: time.Duration(rec.TimeoutMS) * time.Millisecond,
		Turn: rec.Turn, Source: rec.Source,
	}
	if inv.Source == "" {
		inv.Source = sourceOf(session.Key)
	}
	amended, err := p.amend(ctx, log, &inv, Outcome{CallID: rec.CallID, Session: session, Result: res}, nil)
	if err != nil {
		return withoutOutput(res, err)
	}
	return amended
}

// end runs the amending hooks on the outcome of a call, then the observing hooks. It returns the amended outcome.
func (p pipeline) end(
	ctx context.Context, log *slog.Logger, inv *Invocation, out Outcome, err error,
) (registry.Result, error) {
	out.Session = inv.Session // hooks may keep it
	out.Result, err = p.amend(ctx, log, inv, out, err)
	p.after(ctx, log, inv, out, err)
	return out.Result, err
}

// amend runs the amending hooks, the last one first.
func (p pipeline) amend(
	ctx context.Context, log *slog.Logger, inv *Invocation, out Outcome, err error,
) (registry.Result, error) {
	for _, h := range slices.Backward(p) {
		if a, ok := h.(AmendHook); ok && amendsTool(h, inv.Spec.Name) {
			out.Result, err = amend(ctx, log, a, inv, out, err)
		}
	}
	return out.Result, err
}

// amend runs one hook. It keeps whether the tool ran: the hook only changes what readers see.
func amend(
	ctx context.Context, log *slog.Logger, h AmendHook, inv *Invocation, out Outcome, ended error,
) (res registry.Result, err error) {
	defer onPanic(func(p any) {
		log.Error("panic in a hook", "hook", h.Name(), "panic", p, "stack", string(debug.Stack()))
		res, err = registry.Result{}, ended
		if ended == nil { // the hook may have had to redact it
			err = withheld(fmt.Errorf("hook %s panicked: %v", h.Name(), p), nil)
		}
	})
	res, err = h.Amend(ctx, *inv, out, ended)
	if err != nil && err != ended {
		noteBroken(ctx, log, h, inv, err)
		return registry.Result{}, withheld(err, ended)
	}
	return res, err
}

// withheld returns err with the Dispatched state of ended, the true outcome of the call.
func withheld(err, ended error) *registry.Error {
	e := registry.AsError(err)
	if ended == nil {
		return e.With(registry.DispatchedYes)
	}
	if was, ok := errors.AsType[*registry.Error](ended); ok {
		return e.With(was.Dispatched)
	}
	return e
}

// validation is the hook that checks the arguments. It is the last hook before a tool runs.
type validation struct{ schemas *schema.Validator }

func (validation) Name() string { return "validation" }

func (v validation) Before(ctx context.Context, inv Invocation) (Decision, error) {
	return Pass(), v.schemas.Validate(ctx, inv.Caller.Owner(), inv.Spec, inv.Args.Raw(), inv.Deadline)
}
