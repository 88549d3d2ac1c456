package ws

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/farhand/farhand/agent/chat"
	"github.com/farhand/farhand/registry"
)

const (
	// maxWaiting is how many messages of a device wait for the turn that is under way.
	maxWaiting = 4

	// turnStopWait is how long the teardown of a connection waits for the turn it has stopped. A turn that takes longer
	// still counts for the server, whose Close waits for it.
	turnStopWait = 5 * time.Second

	// capabilityCallStatus: the device wants a tool_call again when the status of the call changes. Others are told of
	// each call once, because they would show it twice.
	capabilityCallStatus = "call_status"
)

// talk is what goes on in a connection while somebody talks: the turn that is under way and the messages that wait for
// it, with one goroutine that takes them in order. It ends with its last turn; an idle connection has none.
type turnWorker struct {
	conn *conn
	done chan struct{} // closed when the goroutine has ended

	// Guarded by conn.mu.
	waiting []chat.Ask
	cancel  context.CancelCauseFunc // of the turn that was begun last

	// order is held while a turn's last event is queued, and while an abort is answered: so the answer comes before the
	// last event of the turn it aborts, or there is nothing to abort. Nothing else is locked under it but the outbox.
	order sync.Mutex
	live  bool // the last event of the turn is still to come
}

// turn is one turn about to run.
type turn struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	ask    chat.Ask
	calls  map[string]bool // calls the device was told of, by id; nil while there are none
	title  []byte          // the frame of the new title, which follows the turn's last event; nil: none
}

// startTurnsLocked begins with a turn at once. It needs the locks gate and mu.
func (c *conn) startTurnsLocked(a chat.Ask) {
	t := &turnWorker{conn: c, done: make(chan struct{})}
	c.worker = t
	first := t.beginLocked(a)
	c.server.addTask() // the connection is counted, so the server still waits for something
	go t.runTurns(first)
}

// beginLocked needs the lock mu.
func (t *turnWorker) beginLocked(a chat.Ask) *turn {
	ctx, cancel := context.WithCancelCause(context.Background()) // the agent bounds its time; its connection ends it
	t.cancel = cancel
	t.order.Lock()
	t.live = true
	t.order.Unlock()
	return &turn{ctx: ctx, cancel: cancel, ask: a}
}

// run runs turns until none waits.
func (t *turnWorker) runTurns(next *turn) {
	defer t.conn.server.taskDone()
	defer close(t.done)
	defer t.conn.recoverPanic()
	for ; next != nil; next = t.nextTurn() {
		t.runTurn(next)
	}
}

// next returns the turn that has waited longest, nil if there is none: then the talk is over. Once the connection begins no
// more turns, those that wait are refused.
func (t *turnWorker) nextTurn() *turn {
	for {
		next, refused := t.takeWaiting()
		for range refused {
			t.conn.fail(errStopping)
		}
		if refused == 0 {
			return next
		}
	}
}

func (t *turnWorker) takeWaiting() (next *turn, refused int) {
	c := t.conn
	c.startMu.Lock()
	defer c.startMu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing == closeNone && len(t.waiting) > 0 {
		if c.refusesNew {
			refused = len(t.waiting)
			t.waiting = nil
			return nil, refused
		}
		a := t.waiting[0]
		t.waiting[0] = chat.Ask{} // what was said should not stay for as long as others wait
		t.waiting = t.waiting[1:]
		return t.beginLocked(a), 0
	}
	c.worker = nil
	return nil, 0
}

// take has the agent take a turn. An agent that did not say how it ended is spoken for: the device waits for it.
func (t *turnWorker) runTurn(now *turn) {
	defer now.cancel(nil)
	reply, err := t.conn.server.cfg.Agent.Ask(now.ctx, now.ask, func(e chat.Event) { t.emit(now, e) })
	t.order.Lock()
	unsaid := t.live
	t.order.Unlock()
	if unsaid {
		t.emit(now, lastEvent(reply, err))
	}
	t.conn.log().Debug("turn ended", "turn", reply.Turn, "took", reply.Duration, "error", err)
}

func lastEvent(reply chat.Reply, err error) chat.Event {
	var failed *chat.Error
	switch {
	case err == nil:
		return chat.Event{Type: chat.EventDone, FullResponse: reply.FullResponse}
	case errors.Is(err, chat.ErrAborted):
		return chat.Event{Type: chat.EventAborted}
	case errors.As(err, &failed):
		return chat.Event{Type: chat.EventError, Code: failed.Code, Message: failed.Message, RetryAfter: failed.RetryAfter()}
	default:
		return chat.Event{Type: chat.EventError, Code: chat.CodeAgent,
			Message: "The agent failed; the gateway's log says why. Send the message again."}
	}
}

// emit sends an event to the device. It never waits for the device: one that does not read is closed as slow.
func (t *turnWorker) emit(now *turn, e chat.Event) {
	if e.Type == chat.EventToolCall && now.calledBefore(e.ID) && !t.conn.local.Session().Can(capabilityCallStatus) {
		return
	}
	frame := eventFrame(e)
	if frame == nil {
		return // of a newer agent; a device is not sent what it does not know
	}
	if e.Type == chat.EventTitle {
		now.title = frame
		return
	}
	var err error
	switch e.Type {
	case chat.EventDone, chat.EventAborted, chat.EventError:
		t.order.Lock()
		t.live = false
		err = t.send(e, frame)
		t.order.Unlock()
		if now.title != nil && err == nil { // as in ClawSeed
			err = t.conn.send(now.title)
		}
	default:
		err = t.send(e, frame)
	}
	if err != nil {
		t.conn.fail(err)
	}
}

// send queues the frame of an event; one that would never fit the outbox with its texts cut.
func (t *turnWorker) send(e chat.Event, frame []byte) error {
	err := t.conn.send(frame)
	var tooBig *frameError
	if errors.As(err, &tooBig) {
		return t.conn.send(eventFrame(shortened(e, t.conn.out.limit/8))) // JSON may need six bytes for one
	}
	return err
}

// again notes that the device is told of a call, and reports whether it was before.
func (now *turn) calledBefore(id string) bool {
	if now.calls[id] {
		return true
	}
	if now.calls == nil {
		now.calls = make(map[string]bool)
	}
	now.calls[id] = true
	return false
}

// cancelTurn stops the turn that is under way in a connection that is ending, and forgets the messages that wait. It does not
// wait for the turn: its goroutine may be the one that ends the connection.
func (c *conn) cancelTurn(why Close) {
	c.mu.Lock()
	t := c.worker
	var stop context.CancelCauseFunc
	if t != nil {
		t.waiting, stop = nil, t.cancel
	}
	c.mu.Unlock()
	if stop == nil {
		return
	}
	if why == CloseRestart {
		stop(registry.ErrDraining)
	} else {
		stop(why)
	}
}

// wait waits so long for the goroutine of the talk and reports whether it has ended.
func (t *turnWorker) wait(limit time.Duration) bool {
	timeout := time.NewTimer(limit)
	defer timeout.Stop()
	select {
	case <-t.done:
		return true
	case <-timeout.C:
		return false
	}
}
