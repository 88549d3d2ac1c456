package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"time"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/registry"
)

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
