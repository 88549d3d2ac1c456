package routing

import (
	"sync"
	"time"

	"github.com/farhand/farhand/registry"
)

// pendingCall is a call whose caller waits on this pod for its answer. What becomes of the call is collected here, and
// the caller is notified once that it should look.
type pendingCall struct {
	id     string           // of the call
	pod    string           // the pod that was asked; empty when it is this one
	since  time.Time        // when it was asked
	record *registry.Record // nil if it has none; others than its caller read only what never changes

	*notifier

	mu           sync.Mutex
	answer       registry.Reply // the first one; set once answered
	answered     bool
	delivered    bool      // the call was written to the socket
	running      bool      // the device has begun
	receiptTaken bool      // the caller has seen delivered and running as they are
	sentAt       time.Time // when the bus was done with it; zero while that is not known
	sendErr      error     // why the bus could not send it, or does not know
	cancelled    bool      // somebody cancelled the call
	closed       bool      // the caller does not look any more
}

// progress is what has become of a call up to now.
type progress struct {
	answer    *registry.Reply // nil while there is none; does not change any more
	receipt   bool            // a receipt has come since the last look
	running   bool            // the device has begun
	cancelled bool            // somebody cancelled the call
	sentAt    time.Time       // when the bus was done with it; zero while that is not known
	sendErr   error           // why the bus could not send it, or does not know
}

// notifier is what a caller waits with. When its pending call is closed the next caller gets it, so nobody who finds a
// closed call touches its notifier.
type notifier struct {
	ready chan struct{} // capacity 1: there is something new
	timer *time.Timer   // stopped, unless its caller has set it
}

func newNotifier() *notifier {
	n := &notifier{ready: make(chan struct{}, 1), timer: time.NewTimer(time.Hour)}
	n.timer.Stop()
	return n
}

// reset makes a notifier as good as new.
func (n *notifier) reset() {
	n.timer.Stop()
	select {
	case <-n.ready:
	default:
	}
}

// deliver hands over a reply. Of several answers the first counts. It reports whether the caller will see the reply.
func (w *pendingCall) deliver(r registry.Reply) (heard bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.closed:
	case !r.Delivered && !w.answered:
		w.answer, w.answered, heard = r, true, true
	case r.Delivered && (!w.delivered || r.Running && !w.running):
		w.delivered, w.running, w.receiptTaken, heard = true, w.running || r.Running, false, true
	}
	if heard {
		w.notifyLocked()
	}
	return heard
}

// Sent implements registry.SendCallback. That a call has left is nothing to wake its caller for.
func (w *pendingCall) Sent(err error) {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sentAt, w.sendErr = now, err
	if err != nil {
		w.notifyLocked()
	}
}

// sendResult returns p with what is known now about the sending.
func (w *pendingCall) sendResult(p progress) progress {
	w.mu.Lock()
	defer w.mu.Unlock()
	p.sentAt, p.sendErr = w.sentAt, w.sendErr
	return p
}

// close ends the wait: what comes from now on is told that nobody sees it. It returns the answer if that has come in
// the meantime.
func (w *pendingCall) close() *registry.Reply {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	return w.answerLocked()
}

// answerLocked returns the answer, which does not change any more, nil if there is none.
func (w *pendingCall) answerLocked() *registry.Reply {
	if !w.answered {
		return nil
	}
	return &w.answer
}

// publicRecord returns what others than the caller may read of the call's record: what never changes. How far the call
// has come is not among it.
func (w *pendingCall) publicRecord() registry.Record {
	r := w.record
	return registry.Record{
		CallID: r.CallID, Tenant: r.Tenant, Tool: r.Tool, SessionID: r.SessionID, DeviceID: r.DeviceID, UserID: r.UserID,
		Mode: r.Mode, TimeoutMS: r.TimeoutMS, State: registry.StateAccepted, Dispatched: registry.DispatchedUnknown,
		Timeline: []registry.Step{{State: registry.StateAccepted, At: w.since.UTC()}},
	}
}

// cancel tells the pending call that its call was cancelled.
func (w *pendingCall) cancel() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cancelled = true
	w.notifyLocked()
}

// notifyLocked has the caller look. One that has left does not, and its bell may be another's by now.
func (w *pendingCall) notifyLocked() {
	if w.closed {
		return
	}
	select {
	case w.ready <- struct{}{}:
	default: // it has not looked yet
	}
}

// progress returns what has become of the call. A receipt is reported once.
func (w *pendingCall) progress() progress {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := progress{
		answer: w.answerLocked(), receipt: w.delivered && !w.receiptTaken, running: w.running, cancelled: w.cancelled,
		sentAt: w.sentAt, sendErr: w.sendErr,
	}
	w.receiptTaken = w.receiptTaken || p.receipt
	return p
}

// pendingCalls is the table of calls this pod waits for. An answer finds its pending call by call id.
type pendingCalls struct {
	notifiers sync.Pool // of *bell

	mu   sync.Mutex
	byID map[string]*pendingCall
}

func newPendingCalls() *pendingCalls {
	return &pendingCalls{notifiers: sync.Pool{New: func() any { return newNotifier() }}, byID: make(map[string]*pendingCall)}
}

func (w *pendingCalls) add(c *registry.Call, pod string) *pendingCall {
	wt := &pendingCall{id: c.ID, pod: pod, since: time.Now(), record: c.Record, notifier: w.notifiers.Get().(*notifier)}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.byID[c.ID] = wt
	return wt
}

// remove ends the waiting for a call and forgets it. Who waited does not touch the pending call afterwards.
func (w *pendingCalls) remove(wt *pendingCall) {
	w.mu.Lock()
	if w.byID[wt.id] == wt {
		delete(w.byID, wt.id)
	}
	w.mu.Unlock()
	wt.close() // somebody may have found it just before
	wt.reset()
	w.notifiers.Put(wt.notifier)
}

func (w *pendingCalls) get(callID string) *pendingCall {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.byID[callID]
}

// deliver hands a reply to its pending call. It reports whether somebody hears it.
func (w *pendingCalls) deliver(r registry.Reply) bool {
	wt := w.get(r.CallID)
	return wt != nil && wt.deliver(r)
}

// cancel tells the pending call of a call of that tenant that it was cancelled, and returns it; nil if nobody is
// waiting.
func (w *pendingCalls) cancel(tenant, callID string) *pendingCall {
	wt := w.get(callID)
	if wt == nil || wt.record == nil || wt.record.Tenant != tenant {
		return nil
	}
	wt.cancel()
	return wt
}

// failExcept answers every pending call whose pod is neither this one nor in live, which is what was true at the time
// asked.
func (w *pendingCalls) failExcept(live map[string]bool, asked time.Time, e *registry.Error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, wt := range w.byID {
		if wt.pod != "" && !live[wt.pod] && wt.since.Before(asked) {
			wt.deliver(registry.Reply{V: registry.EnvelopeVersion, CallID: id, Err: e})
		}
	}
}

func (w *pendingCalls) len() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.byID)
}
