package chat

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/registry"
)

// CodeModelNotFound is the code of an Error: no model has that name.
const CodeModelNotFound = "MODEL_NOT_FOUND"

// ErrAborted is the cause of a context whose turn the user aborts, and the error of such a turn.
var ErrAborted = errors.New("chat: the turn was aborted")

// Causes of a turn's context that are internal to this package.
var (
	errTurnTime = errors.New("chat: the turn took too long")
	errWaited   = errors.New("chat: the conversation was not free in time")
	errLapsed   = errors.New("chat: the turn could not be renewed in time")
)

// failure returns why a turn ended: ErrAborted or an *Error. If the context has ended, its cause takes precedence over
// err, which is a consequence. An *Error in err takes precedence over both.
func failure(ctx context.Context, limits Limits, err error) error {
	var own *Error
	if errors.As(err, &own) {
		return own
	}
	if ctx.Err() != nil {
		return stopped(context.Cause(ctx), limits)
	}
	var p *provider.Error
	if errors.As(err, &p) {
		return providerFailure(p)
	}
	if errors.Is(err, registry.ErrTurnLost) {
		return stopped(registry.ErrTurnLost, limits)
	}
	return &Error{Code: CodeAgent, Message: registry.AsError(err).Message, Cause: err}
}

// stopped returns the error of a turn whose context ended.
func stopped(cause error, limits Limits) error {
	fail := func(format string, args ...any) error {
		return &Error{Code: CodeAgent, Message: fmt.Sprintf(format, args...), Cause: cause}
	}
	switch {
	case errors.Is(cause, ErrAborted):
		return ErrAborted
	case errors.Is(cause, errTurnTime):
		return fail("The turn was stopped: it took longer than %v. What was said until then is kept.", limits.Turn)
	case errors.Is(cause, errWaited):
		return busy(cause)
	case errors.Is(cause, registry.ErrDraining):
		return fail("The turn was stopped: this pod is stopping. What was said until then is kept; ask again.")
	case errors.Is(cause, registry.CodeUnauthenticated):
		return fail("The turn was stopped: the credential of whoever asked was revoked or has expired. " +
			"What was said until then is kept.")
	case errors.Is(cause, registry.ErrTurnLost), errors.Is(cause, errLapsed):
		return fail("The turn was stopped: this pod lost its right to the conversation. Ask again.")
	default:
		return fail("The turn was stopped: whoever asked is gone. What was said until then is kept.")
	}
}

// noteFailure logs a turn that ended early: as a warning, unless its caller aborted it or disconnected. The line
// contains no text of the conversation.
func (e *Engine) noteFailure(ctx context.Context, info TurnInfo, err error) {
	level, code := slog.LevelInfo, "aborted"
	attributes := []any{"turn", info.Turn, "session", info.Key.Session, "channel", info.Channel, "model", info.Model}
	var failed *Error
	if errors.As(err, &failed) {
		code = failed.Code
		if ctx.Err() == nil || errors.Is(context.Cause(ctx), errTurnTime) || errors.Is(context.Cause(ctx), errLapsed) {
			level = slog.LevelWarn
		}
		if p, ok := errors.AsType[*provider.Error](failed.Cause); ok {
			attributes = append(attributes, "kind", p.Kind, "status", p.Status)
		} else if failed.Cause != nil {
			attributes = append(attributes, "error", failed.Cause)
		}
	}
	e.cfg.Log.Log(ctx, level, "a turn ended early", append(attributes, "code", code)...)
}

// providerFailure returns the error of a turn whose model request failed.
func providerFailure(p *provider.Error) error {
	if p.Kind == provider.KindAuth {
		return &Error{
			Code: CodeAuth, Cause: p,
			Message: "The model's provider does not accept the gateway's key; its operator must set another. " +
				p.Message,
		}
	}
	return &Error{Code: CodeProvider, Message: p.Message, Cause: p}
}

// busy returns the error of a turn whose conversation is not free.
func busy(cause error) error {
	if cause == nil {
		cause = registry.CodeBusy
	}
	return &Error{
		Code: CodeSessionBusy, Cause: cause,
		Message: "This conversation is being answered already. Wait for that answer and ask again.",
	}
}

// draining returns the error of a turn that is refused because the pod is stopping.
func draining() error {
	return &Error{
		Code: CodeAgent, Message: "This pod is stopping and begins no turns. Connect again and ask again.",
		Cause: errors.Join(registry.ErrDraining, registry.CodeDraining),
	}
}

// fullRetry is the Retry-After of a full pod. It is short because turns end often.
const fullRetry = 2 * time.Second

// full returns the error of a turn that is refused because the pod runs its maximum.
func full() error {
	return &Error{
		Code: CodeSessionBusy, Message: "This pod runs as many turns as it can. Ask again after a moment.",
		Cause: &registry.Error{
			Code: registry.CodeBusy, Message: "This pod, or its share for this tenant, runs as many turns as it can.", RetryAfter: fullRetry,
		},
	}
}
