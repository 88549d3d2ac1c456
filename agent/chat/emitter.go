package chat

import (
	"errors"
	"sync"
)

// emitter sends events, one at a time even when calls end side by side, and none after the last.
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

// send sends an event.
func (o *emitter) send(e Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.ended {
		o.emit(e)
	}
}

// last sends the events that end a turn.
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

// complete sends how the turn ended, and returns err.
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
