package ws

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/farhand/farhand/agent/chat"
	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/internal/trace"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/ws/internal/fields"
)

const (
	// maxWaiting is how many messages of a device may wait for the running turn.
	maxWaiting = 4

	// turnStopWait is how long a connection's teardown waits for the turn it cancelled. A turn that takes longer still
	// counts as a task of the server, and Close waits for it.
	turnStopWait = 5 * time.Second

	// capabilityCallStatus means that the device wants a tool_call again when the call's status changes. Other devices
	// get each call once, because they would show it twice.
	capabilityCallStatus = "call_status"
)

// turnWorker runs the turns of a connection's conversation in order: the running turn, then the turns of waiting
// messages. It has one goroutine, which ends with the last turn. An idle connection has none.
type turnWorker struct {
	conn *conn
	done chan struct{} // closed when the goroutine has ended

	// Guarded by conn.mu.
	waiting []asked
	cancel  context.CancelCauseFunc // cancels the turn that began last

	// order is held while a turn's last event is queued, and while an abort is answered. So the answer to an abort
	// precedes the last event of the aborted turn, or there is nothing to abort. Only the outbox is locked under it.
	order sync.Mutex
	live  bool // the last event of the turn is still to come
}

// asked is a message that a turn is to answer. place is held until the turn has ended, or will not begin.
type asked struct {
	chat.Ask
	place *share.Grant
}

// dropWaitingLocked drops the waiting messages, and returns how many. The caller holds mu.
func (w *turnWorker) dropWaitingLocked() (dropped int) {
	for _, a := range w.waiting {
		a.place.Release()
	}
	dropped, w.waiting = len(w.waiting), nil
	return dropped
}

type turn struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	ask    asked
	calls  map[string]bool // ids of the calls sent to the device
	title  []byte          // the frame of the new title, which follows the turn's last event; nil: none
}

// startTurnsLocked starts a turn. The caller holds startMu and mu.
func (c *conn) startTurnsLocked(a asked) {
	w := &turnWorker{conn: c, done: make(chan struct{})}
	c.worker = w
	first := w.beginLocked(a)
	c.server.addTask() // the connection is still counted, so the server is not idle
	go w.runTurns(first)
}

// beginLocked returns a turn for a message. The caller holds mu.
func (w *turnWorker) beginLocked(a asked) *turn {
	ctx, cancel := context.WithCancelCause(context.Background()) // the agent limits its time; the connection cancels it
	w.cancel = cancel
	w.order.Lock()
	w.live = true
	w.order.Unlock()
	return &turn{ctx: ctx, cancel: cancel, ask: a, calls: make(map[string]bool)}
}

// runTurns runs turns until none waits.
func (w *turnWorker) runTurns(next *turn) {
	defer w.conn.server.taskDone()
	defer close(w.done)
	defer w.conn.recoverPanic()
	for ; next != nil; next = w.nextTurn() {
		w.runTurn(next)
	}
}

// nextTurn returns the turn that has waited longest, nil if there is none. With nil the worker ends. If the connection
// rejects new turns, nextTurn rejects the waiting messages.
func (w *turnWorker) nextTurn() *turn {
	for {
		next, refused := w.takeWaiting()
		for range refused {
			w.conn.fail(errStopping)
		}
		if refused == 0 {
			return next
		}
	}
}

// takeWaiting takes the next waiting turn. If the connection rejects new turns, it drops all waiting ones and returns
// their number. If none waits or the connection is ending, it drops the rest and removes the worker from the
// connection.
func (w *turnWorker) takeWaiting() (next *turn, refused int) {
	c := w.conn
	c.startMu.Lock()
	defer c.startMu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing == closeNone && len(w.waiting) > 0 {
		if c.refusesNew {
			return nil, w.dropWaitingLocked()
		}
		a := w.waiting[0]
		w.waiting[0] = asked{} // so that the message is freed while others wait
		w.waiting = w.waiting[1:]
		return w.beginLocked(a), 0
	}
	w.dropWaitingLocked()
	c.worker = nil
	return nil, 0
}

// runTurn runs a turn of the agent. If the agent emitted no last event, runTurn does, because the device waits for it.
func (w *turnWorker) runTurn(t *turn) {
	defer t.ask.place.Release()
	defer t.cancel(nil)
	ctx, span := w.conn.server.cfg.Tracer.Serve(t.ctx, trace.Server, "message", "", "", nil)
	span.Text(trace.Tenant, t.ask.Key.Tenant).Text(trace.Session, t.ask.Key.Session)
	reply, err := w.conn.server.cfg.Agent.Ask(ctx, t.ask.Ask, func(e chat.Event) { w.emit(t, e) })
	if failed, ok := errors.AsType[*chat.Error](err); ok {
		span.Text(trace.ErrorType, failed.Code)
	}
	span.End("")
	w.order.Lock()
	live := w.live
	w.order.Unlock()
	if live {
		w.emit(t, lastEvent(reply, err))
	}
	w.conn.log().Debug("turn ended", "turn", reply.Turn, "took", reply.Duration, "error", err)
}

func lastEvent(reply chat.Reply, err error) chat.Event {
	var failed *chat.Error
	switch {
	case err == nil:
		return chat.Event{Type: chat.EventDone, FullResponse: reply.FullResponse}
	case errors.Is(err, chat.ErrAborted):
		return chat.Event{Type: chat.EventAborted}
	case errors.As(err, &failed):
		return chat.Event{
			Type: chat.EventError, Code: failed.Code, Message: failed.Message, RetryAfter: failed.RetryAfter(),
		}
	default:
		return chat.Event{Type: chat.EventError, Code: chat.CodeAgent,
			Message: "The agent failed; see the gateway's log. Send the message again."}
	}
}

// emit sends an event to the device. It never blocks; a device that does not read is closed as slow.
func (w *turnWorker) emit(t *turn, e chat.Event) {
	if e.Type == chat.EventToolCall {
		if t.calls[e.ID] && !w.conn.local.Session().Can(capabilityCallStatus) {
			return
		}
		t.calls[e.ID] = true
	}
	if e.Approval != nil {
		w.showApproval(e)
		return
	}
	frame := eventFrame(e)
	if frame == nil {
		return // an event of a newer agent; a device gets no unknown frames
	}
	if e.Type == chat.EventTitle {
		t.title = frame
		return
	}
	var err error
	switch e.Type {
	case chat.EventDone, chat.EventAborted, chat.EventError:
		w.order.Lock()
		w.live = false
		err = w.send(e, frame)
		w.order.Unlock()
		if t.title != nil && err == nil { // as in ClawSeed
			err = w.conn.send(t.title)
		}
	default:
		err = w.send(e, frame)
	}
	if err != nil {
		w.conn.fail(err)
	}
}

// send queues the frame of an event. If the frame can never fit the outbox, send shortens the event's texts.
func (w *turnWorker) send(e chat.Event, frame []byte) error {
	err := w.conn.send(frame)
	var tooBig *fields.Error
	if errors.As(err, &tooBig) {
		return w.conn.send(eventFrame(shortened(e, w.conn.out.limit/8))) // JSON may need six bytes for one
	}
	return err
}

// cancelTurn cancels the running turn of a connection that is ending, and drops the waiting messages. It does not wait
// for the turn, because the turn's goroutine may be ending the connection.
func (c *conn) cancelTurn(why Close) {
	var cause error = why
	if why == CloseRestart {
		cause = registry.ErrDraining
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if w := c.worker; w != nil {
		w.dropWaitingLocked()
		w.cancel(cause)
	}
}

// wait waits up to limit for the worker's goroutine, and reports whether it has ended.
func (w *turnWorker) wait(limit time.Duration) bool {
	select {
	case <-w.done:
		return true
	case <-time.After(limit):
		return false
	}
}
