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

// CodeModelNotFound is the code of an Error: there is no model of that name.
const CodeModelNotFound = "MODEL_NOT_FOUND"

// ErrAborted is the cause of a context whose turn is to end because its user wants that, and the error of a turn that
// ended so.
var ErrAborted = errors.New("chat: the turn was aborted")

// Causes of a turn's context that are this package's own.
var (
	errTurnTime = errors.New("chat: the turn took too long")
	errWaited   = errors.New("chat: the conversation was not free in time")
	errLapsed   = errors.New("chat: the turn could not be renewed in time")
)

// failure returns why a turn ended: ErrAborted or an *Error. The cause of a context that has ended wins over err, which
// followed from it.
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

// stopped returns why a turn was ended from outside.
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

// noteFailure logs a turn that ended early: as a warning, unless its caller wanted that or is gone. The line has no
// text of the conversation.
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

// providerFailure returns the failure of a model that did not answer.
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

// busy refuses a turn of a conversation that is not free.
func busy(cause error) error {
	if cause == nil {
		cause = registry.CodeBusy
	}
	return &Error{
		Code: CodeSessionBusy, Cause: cause,
		Message: "This conversation is being answered already. Wait for that answer and ask again.",
	}
}

// draining refuses a turn because the pod stops.
func draining() error {
	return &Error{
		Code: CodeAgent, Message: "This pod is stopping and begins no turns. Connect again and ask again.",
		Cause: errors.Join(registry.ErrDraining, registry.CodeDraining),
	}
}

// fullRetry is when a caller should ask a full pod again. Turns end all the time.
const fullRetry = 2 * time.Second

// full refuses a turn because the pod runs its maximum.
func full() error {
	return &Error{
		Code: CodeSessionBusy, Message: "This pod runs as many turns as it can. Ask again after a moment.",
		Cause: &registry.Error{
			Code: registry.CodeBusy, Message: "This pod, or its share for this tenant, runs as many turns as it can.", RetryAfter: fullRetry,
		},
	}
}
