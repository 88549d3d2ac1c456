package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"

	"github.com/farhand/farhand/registry"
)

// AmendHook changes what the caller, or a model, reads of how a call ended: it redacts, adds a remark, or says no after
// all. It is also asked when the call failed, when a hook stopped it and when no tool was found, except that calls which
// are malformed and belong to no conversation reach no hook.
//
// A durable call is answered from its record, which a device's answer enters before any hook hears of it: there the amended
// outcome reaches the other hooks and nobody else.
type AmendHook interface {
	Hook

	// Amend returns the outcome to go on with: out.Result and err themselves to leave it alone. An error that is no
	// *registry.Error is internal. After an error or a panic of a hook that was given a result, the result is withheld.
	Amend(ctx context.Context, inv Invocation, out Outcome, err error) (registry.Result, error)
}

// end has the hooks amend the outcome of a call, and then tells those that observe. It returns the outcome to be read.
func (p pipeline) end(ctx context.Context, log *slog.Logger, inv *Invocation, out Outcome, err error) (registry.Result, error) {
	for _, h := range slices.Backward(p) {
		if a, ok := h.(AmendHook); ok {
			out.Result, err = amend(ctx, log, a, inv, out, err)
		}
	}
	p.after(ctx, log, inv, out, err)
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
