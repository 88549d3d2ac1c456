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

// AmendHook changes what the caller, or a model, reads of how a call ended: it redacts, adds a remark, or says no after
// all. It is also asked when the call failed, when a hook stopped it and when no tool was found, except that calls
// which are malformed and belong to no conversation reach no hook.
//
// The result of a call that has a record, a durable one or one that is answered late, is amended before it enters the
// store, by the pod that stores it. Then the invocation holds what the record tells: arguments and conversation are
// missing. Arguments are also missing, there and in AfterHook, of a request longer than 16 KiB whose device had the
// call: they are not kept until it answers.
type AmendHook interface {
	Hook

	// Amend returns the outcome to go on with: out.Result and err themselves to leave it alone. An error that is no
	// *registry.Error is internal. After an error or a panic of a hook that was given a result, the result is withheld.
	Amend(ctx context.Context, inv Invocation, out Outcome, err error) (registry.Result, error)
}

// SelectiveHook is an AmendHook that amends the results of some tools only. It is not asked about others, and what
// their devices report while they work is not withheld.
type SelectiveHook interface {
	AmendHook

	// Amends reports whether results of the tool of this name are amended. It always says the same.
	Amends(tool string) bool
}

// amendsTool reports whether a hook amends the results of a tool.
func amendsTool(h Hook, tool string) bool {
	if s, ok := h.(SelectiveHook); ok {
		return s.Amends(tool)
	}
	_, ok := h.(AmendHook)
	return ok
}

// amendsTool reports whether one of the hooks amends the results of a tool.
func (p pipeline) amendsTool(tool string) bool {
	return slices.ContainsFunc(p, func(h Hook) bool { return amendsTool(h, tool) })
}

// amends returns the hooks that amend.
func (p pipeline) amends() pipeline {
	return slices.DeleteFunc(slices.Clone(p), func(h Hook) bool {
		_, ok := h.(AmendHook)
		return !ok
	})
}

// stored has the hooks amend a result that is about to be stored. It is what a registry.Amend is.
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

// end has the hooks amend the outcome of a call, and then tells those that observe. It returns the outcome to be read.
func (p pipeline) end(
	ctx context.Context, log *slog.Logger, inv *Invocation, out Outcome, err error,
) (registry.Result, error) {
	out.Session = inv.Session // which hooks may keep
	out.Result, err = p.amend(ctx, log, inv, out, err)
	p.after(ctx, log, inv, out, err)
	return out.Result, err
}

// amend asks the hooks that amend, the last one first.
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

// amend asks one hook. What is known of whether the tool ran is kept: the hook only changes what is read.
func amend(
	ctx context.Context, log *slog.Logger, h AmendHook, inv *Invocation, out Outcome, ended error,
) (res registry.Result, err error) {
	defer func() {
		if p := recover(); p != nil {
			log.Error("panic in a hook", "hook", h.Name(), "panic", p, "stack", string(debug.Stack()))
			res, err = registry.Result{}, ended
			if ended == nil { // what it would have removed must not be read
				err = withheld(fmt.Errorf("hook %s panicked: %v", h.Name(), p), nil)
			}
		}
	}()
	res, err = h.Amend(ctx, *inv, out, ended)
	if err != nil && err != ended {
		noteBroken(ctx, log, h, inv, err)
		return registry.Result{}, withheld(err, ended)
	}
	return res, err
}

// withheld returns err with what the true end of the call says about whether the tool ran.
func withheld(err, ended error) *registry.Error {
	e := registry.AsError(err)
	if ended == nil {
		return e.With(registry.DispatchedYes)
	}
	if was := (*registry.Error)(nil); errors.As(ended, &was) {
		return e.With(was.Dispatched)
	}
	return e
}

// validation is the hook that checks the arguments, the last one before a tool runs.
type validation struct{ schemas *schema.Validator }

// Name implements Hook.
func (validation) Name() string { return "validation" }

// Before implements BeforeHook.
func (v validation) Before(ctx context.Context, inv Invocation) (Decision, error) {
	return Pass(), v.schemas.Validate(ctx, inv.Caller.Owner(), inv.Spec, inv.Args.Raw(), inv.Deadline)
}
