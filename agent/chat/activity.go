package chat

import (
	"errors"
	"sync"
	"time"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/registry"
)

// Activity receives the start and end of turns, for feeds, metrics and audit. Its methods must not block and must be
// safe for concurrent use.
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
}

// endOf returns the outcome of a turn.
func endOf(r Reply, err error) TurnEnd {
	end := TurnEnd{Outcome: OutcomeDone, Usage: r.Usage, Calls: len(r.Calls), Duration: r.Duration}
	var e *Error
	switch {
	case errors.As(err, &e):
		end.Outcome, end.Code = OutcomeError, e.Code
	case err != nil:
		end.Outcome = OutcomeAborted
	}
	return end
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
	if o.ended {
		return
	}
	o.ended = true
	for _, e := range events {
		o.emit(e)
	}
}

// complete sends the final event of the turn, and returns err.
func (o *emitter) complete(full string, err error) error {
	var e *Error
	switch {
	case err == nil:
		o.last(Event{Type: EventChunkReset}, Event{Type: EventDone, FullResponse: full})
	case errors.As(err, &e):
		o.last(Event{Type: EventError, Code: e.Code, Message: e.Message, RetryAfter: e.RetryAfter()})
	default:
		o.last(Event{Type: EventAborted})
	}
	return err
}
