package chat

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/farhand/farhand/agent/access/auth"
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
	errWaited   = errors.New("chat: the previous turn did not end in time")
	errLapsed   = errors.New("chat: the turn could not be renewed in time")
)

// failure returns why a turn ended: ErrAborted or an *Error. If the context has ended, its cause takes precedence over
// err, which is a consequence. An *Error in err takes precedence over both.
func failure(ctx context.Context, limits Limits, err error) error {
	if own, ok := errors.AsType[*Error](err); ok {
		return own
	}
	if ctx.Err() != nil {
		return stopped(context.Cause(ctx), limits)
	}
	if p, ok := errors.AsType[*provider.Error](err); ok && p.Kind == provider.KindAuth {
		return &Error{
			Code: CodeAuth, Cause: p,
			Message: "The model's provider rejected the gateway's key; the operator must replace it. " +
				p.Message,
		}
	} else if ok {
		return &Error{Code: CodeProvider, Message: p.Message, Cause: p}
	}
	if errors.Is(err, registry.ErrTurnLost) {
		return stopped(registry.ErrTurnLost, limits)
	}
	return &Error{Code: CodeAgent, Message: registry.AsError(err).Message, Cause: err}
}

func stopped(cause error, limits Limits) error {
	fail := func(format string, args ...any) error {
		return &Error{Code: CodeAgent, Message: fmt.Sprintf(format, args...), Cause: cause}
	}
	switch {
	case errors.Is(cause, ErrAborted):
		return ErrAborted
	case errors.Is(cause, errTurnTime):
		return fail("The turn was stopped: it took longer than %v. The text so far is stored.", limits.Turn)
	case errors.Is(cause, errWaited):
		return busy(cause)
	case errors.Is(cause, registry.ErrDraining):
		return fail("The turn was stopped: this pod is stopping. The text so far is stored; send the message again.")
	case errors.Is(cause, registry.CodeUnauthenticated):
		return fail("The turn was stopped: the caller's credential was revoked or has expired. " +
			"The text so far is stored.")
	case errors.Is(cause, registry.ErrTurnLost), errors.Is(cause, errLapsed):
		return fail("The turn was stopped: this pod lost its lease on the conversation. Send the message again.")
	default:
		return fail("The turn was stopped: the caller disconnected. The text so far is stored.")
	}
}

// noteFailure logs a turn that ended early, without its text: as a warning, unless its caller aborted it or left.
func (e *Engine) noteFailure(ctx context.Context, info TurnInfo, err error) {
	level, code := slog.LevelInfo, "aborted"
	attributes := []any{"turn", info.Turn, "session", info.Key.Session, "channel", info.Channel, "model", info.Model}
	if failed, ok := errors.AsType[*Error](err); ok {
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

func busy(cause error) error {
	if cause == nil {
		cause = registry.CodeBusy
	}
	return &Error{
		Code: CodeSessionBusy, Cause: cause,
		Message: "Another turn of this conversation is running. Retry when it has ended.",
	}
}

func draining() error {
	return &Error{
		Code: CodeAgent, Message: "This pod is stopping and starts no turns. Reconnect and retry.",
		Cause: errors.Join(registry.ErrDraining, registry.CodeDraining),
	}
}

// fullRetry is the Retry-After of a full pod. It is short because turns end often.
const fullRetry = 2 * time.Second

func full() error {
	return &Error{
		Code: CodeSessionBusy, Message: "This pod has no capacity for another turn. Retry in a moment.",
		Cause: &registry.Error{
			Code: registry.CodeBusy, RetryAfter: fullRetry,
			Message: "This pod, or this tenant's share of it, has no capacity for another turn.",
		},
	}
}

// Activity receives the start and end of turns. Its methods must not block and must be safe for concurrent use.
type Activity interface {
	TurnStarted(TurnInfo)
	TurnFinished(TurnInfo, TurnEnd)
}

// TurnInfo identifies a turn.
type TurnInfo struct {
	Turn    string
	Key     registry.Key // Session is empty for a completion without one
	Caller  auth.Identity
	Channel string // ChannelChat or ChannelCompletion
	Model   string
}

// Outcome is the outcome of a turn.
type Outcome string

// The outcomes.
const (
	OutcomeDone    Outcome = "done"
	OutcomeAborted Outcome = "aborted"
	OutcomeError   Outcome = "error"
)

// TurnEnd is the outcome of a turn and its usage.
type TurnEnd struct {
	Outcome  Outcome
	Code     string // of the error; empty otherwise
	Usage    provider.Usage
	Calls    int // requested tool calls
	Duration time.Duration
	TraceID  string // of a recorded trace; empty: none

	Answers int           // complete answers of the model
	Failure provider.Kind // why its last request failed; empty: it did not
}

// emitter sends events, one at a time even if calls end concurrently, and none after the last.
type emitter struct {
	mu    sync.Mutex
	emit  func(Event)
	ended bool
}

func newEmitter(emit func(Event)) *emitter {
	if emit == nil {
		emit = func(Event) {}
	}
	return &emitter{emit: emit}
}

// send sends an event, unless the turn has ended.
func (o *emitter) send(e Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.ended {
		o.emit(e)
	}
}

// last sends the final events of a turn.
func (o *emitter) last(events ...Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, e := range events {
		if !o.ended {
			o.emit(e)
		}
	}
	o.ended = true
}

// complete sends the final event of the turn, and returns err.
func (o *emitter) complete(full string, err error) error {
	e, failed := errors.AsType[*Error](err)
	switch {
	case err == nil:
		o.last(Event{Type: EventChunkReset}, Event{Type: EventDone, FullResponse: full})
	case failed:
		o.last(Event{Type: EventError, Code: e.Code, Message: e.Message, RetryAfter: e.RetryAfter()})
	default:
		o.last(Event{Type: EventAborted})
	}
	return err
}
