package ws

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/farhand/farhand/agent/chat"
	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
)

const (
	// maxWaiting is how many messages of a device wait for the turn that is under way.
	maxWaiting = 4

	// turnStopWait is how long the teardown of a connection waits for the turn that it cancelled. A turn that takes
	// longer still counts as a task of the server, whose Close waits for it.
	turnStopWait = 5 * time.Second

	// capabilityCallStatus: the device wants a tool_call again when the status of the call changes. Other devices are
	// sent each call once, because they would show it twice.
	capabilityCallStatus = "call_status"
)

// turnWorker runs the turns of a connection's conversation in order: the one that is under way, then those of the
// messages that wait. It has one goroutine, which ends with the last turn; an idle connection has none.
type turnWorker struct {
	conn *conn
	done chan struct{} // closed when the goroutine has ended

	// Guarded by conn.mu.
	waiting []asked
	cancel  context.CancelCauseFunc // of the turn that was begun last

	// order is held while a turn's last event is queued, and while an abort is answered. So the answer to an abort
	// comes before the last event of the turn it aborts, or there is nothing to abort. Only the outbox is locked under
	// it.
	order sync.Mutex
	live  bool // the last event of the turn is still to come
}

// asked is a message that a turn is to answer. Its place is held until the turn has ended, or will not begin.
type asked struct {
	chat.Ask
	place *share.Grant
}

// dropWaitingLocked forgets the messages that wait, and returns how many. It needs the lock mu.
func (w *turnWorker) dropWaitingLocked() (dropped int) {
	for _, a := range w.waiting {
		a.place.Release()
	}
	dropped, w.waiting = len(w.waiting), nil
	return dropped
}

// turn is one turn about to run.
type turn struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	ask    asked
	calls  map[string]bool // ids of the calls that the device was sent; nil while there are none
	title  []byte          // the frame of the new title, which follows the turn's last event; nil: none
}

// startTurnsLocked begins a turn at once. It needs the locks startMu and mu.
func (c *conn) startTurnsLocked(a asked) {
	w := &turnWorker{conn: c, done: make(chan struct{})}
	c.worker = w
	first := w.beginLocked(a)
	c.server.addTask() // the connection is counted, so the server still waits for something
	go w.runTurns(first)
}

// beginLocked needs the lock mu.
func (w *turnWorker) beginLocked(a asked) *turn {
	ctx, cancel := context.WithCancelCause(context.Background()) // the agent bounds its time; its connection ends it
	w.cancel = cancel
	w.order.Lock()
	w.live = true
	w.order.Unlock()
	return &turn{ctx: ctx, cancel: cancel, ask: a}
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

// nextTurn returns the turn that has waited longest. It returns nil if there is none, and then the worker is over. Once
// the connection refuses new turns, it refuses those that wait.
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

// takeWaiting takes the next turn from those that wait, or all of them if they are refused. Without any, or once the
// connection is ending, the connection has no worker from then on, and what waits is forgotten.
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
		w.waiting[0] = asked{} // the message should not stay in memory for as long as others wait
		w.waiting = w.waiting[1:]
		return w.beginLocked(a), 0
	}
	w.dropWaitingLocked()
	c.worker = nil
	return nil, 0
}

// runTurn lets the agent run a turn. If the agent emitted no last event, runTurn does, because the device waits for it.
func (w *turnWorker) runTurn(t *turn) {
	defer t.ask.place.Release()
	defer t.cancel(nil)
	reply, err := w.conn.server.cfg.Agent.Ask(t.ctx, t.ask.Ask, func(e chat.Event) { w.emit(t, e) })
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
			Message: "The agent failed; the gateway's log says why. Send the message again."}
	}
}

// emit sends an event to the device. It never waits for the device: a device that does not read is closed as slow.
func (w *turnWorker) emit(t *turn, e chat.Event) {
	if e.Type == chat.EventToolCall && t.sentBefore(e.ID) && !w.conn.local.Session().Can(capabilityCallStatus) {
		return
	}
	if e.Approval != nil {
		w.showApproval(e)
		return
	}
	frame := eventFrame(e)
	if frame == nil {
		return // of a newer agent; a device is not sent what it does not know
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

// send queues the frame of an event. If the frame would never fit the outbox, send cuts the event's texts.
func (w *turnWorker) send(e chat.Event, frame []byte) error {
	err := w.conn.send(frame)
	var tooBig *frameError
	if errors.As(err, &tooBig) {
		return w.conn.send(eventFrame(shortened(e, w.conn.out.limit/8))) // JSON may need six bytes for one
	}
	return err
}

// sentBefore notes that the device is sent a call, and reports whether it was before.
func (t *turn) sentBefore(id string) bool {
	if t.calls[id] {
		return true
	}
	if t.calls == nil {
		t.calls = make(map[string]bool)
	}
	t.calls[id] = true
	return false
}

// cancelTurn cancels the turn that is under way in a connection that is ending, and forgets the messages that wait. It
// does not wait for the turn, because the turn's goroutine may be the one that ends the connection.
func (c *conn) cancelTurn(why Close) {
	c.mu.Lock()
	w := c.worker
	var cancel context.CancelCauseFunc
	if w != nil {
		w.dropWaitingLocked()
		cancel = w.cancel
	}
	c.mu.Unlock()
	if cancel == nil {
		return
	}
	if why == CloseRestart {
		cancel(registry.ErrDraining)
	} else {
		cancel(why)
	}
}

// wait waits for the worker's goroutine, at most as long as limit, and reports whether it has ended.
func (w *turnWorker) wait(limit time.Duration) bool {
	timeout := time.NewTimer(limit)
	defer timeout.Stop()
	select {
	case <-w.done:
		return true
	case <-timeout.C:
		return false
	}
}
