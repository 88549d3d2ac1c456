package routing

import (
	"sync"
	"time"

	"github.com/farhand/farhand/registry"
)

// pendingCall is a call whose caller waits on this pod for its answer. What becomes of the call is collected here, and
// the caller is notified once that it should look.
type pendingCall struct {
	id     string           // the call's id
	pod    string           // the pod that the call went to; empty if it is this one
	since  time.Time        // when the wait began
	record *registry.Record // nil if the call has none; only its caller reads the fields that change

	*notifier

	mu           sync.Mutex
	answer       registry.Reply // the first one; valid once answered
	answered     bool
	delivered    bool      // the call was written to the socket
	running      bool      // the device has begun
	receiptTaken bool      // the caller has seen the current delivered and running
	sentAt       time.Time // when the bus reported the sending; zero until then
	sendErr      error     // why the bus could not send it, or does not know
	cancelled    bool      // somebody cancelled the call
	closed       bool      // the caller has stopped waiting
}

// progress is what has become of a call up to now.
type progress struct {
	answer    *registry.Reply // nil until there is one; never changes after that
	receipt   bool            // a receipt has come since the last look
	running   bool            // the device has begun
	cancelled bool            // somebody cancelled the call
	sentAt    time.Time       // when the bus reported the sending; zero until then
	sendErr   error           // why the bus could not send it, or does not know
}

// notifier is what a caller waits with. Notifiers are pooled: after its pending call is closed, another call may have
// the notifier, so nobody may touch the notifier of a closed call.
type notifier struct {
	ready chan struct{} // capacity 1: there is progress to look at
	timer *time.Timer   // stopped, unless its caller has set it
}

func newNotifier() *notifier {
	n := &notifier{ready: make(chan struct{}, 1), timer: time.NewTimer(time.Hour)}
	n.timer.Stop()
	return n
}

// reset puts a notifier into its initial state.
func (n *notifier) reset() {
	n.timer.Stop()
	select {
	case <-n.ready:
	default:
	}
}

// deliver hands over a reply, of which the first answer counts. It reports whether the caller will see the reply.
func (w *pendingCall) deliver(r registry.Reply) (accepted bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.closed:
	case !r.Delivered && !w.answered:
		w.answer, w.answered, accepted = r, true, true
	case r.Delivered && (!w.delivered || r.Running && !w.running):
		w.delivered, w.running, w.receiptTaken, accepted = true, w.running || r.Running, false, true
	}
	if accepted {
		w.notifyLocked()
	}
	return accepted
}

// Sent implements registry.SendCallback. It notifies the caller of a failure only, because a caller need not act on a
// success.
func (w *pendingCall) Sent(err error) {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sentAt, w.sendErr = now, err
	if err != nil {
		w.notifyLocked()
	}
}

// sendResult returns p with the current sentAt and sendErr.
func (w *pendingCall) sendResult(p progress) progress {
	w.mu.Lock()
	defer w.mu.Unlock()
	p.sentAt, p.sendErr = w.sentAt, w.sendErr
	return p
}

// close ends the wait: deliver reports false from now on. It returns the answer if that has come in the meantime.
func (w *pendingCall) close() *registry.Reply {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	return w.answerLocked()
}

// answerLocked returns the answer, nil if there is none. An answer never changes.
func (w *pendingCall) answerLocked() *registry.Reply {
	if !w.answered {
		return nil
	}
	return &w.answer
}

// publicRecord returns a copy of the call's record that goroutines other than the caller's may read. It has the fields
// that never change, and so does not say how far the call has come.
func (w *pendingCall) publicRecord() registry.Record {
	r := w.record
	return registry.Record{
		CallID: r.CallID, Tenant: r.Tenant, Tool: r.Tool,
		SessionID: r.SessionID, DeviceID: r.DeviceID, UserID: r.UserID, Mode: r.Mode, TimeoutMS: r.TimeoutMS,
		State: registry.StateAccepted, Dispatched: registry.DispatchedUnknown,
		Timeline: []registry.Step{{State: registry.StateAccepted, At: w.since.UTC()}},
	}
}

// cancel marks the call as cancelled and notifies the caller.
func (w *pendingCall) cancel() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cancelled = true
	w.notifyLocked()
}

// notifyLocked wakes the caller. It does nothing once the call is closed, because the notifier may belong to another
// call by then.
func (w *pendingCall) notifyLocked() {
	if w.closed {
		return
	}
	select {
	case w.ready <- struct{}{}:
	default: // it has not looked yet
	}
}

// progress returns the current progress. It reports a receipt once.
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

// pendingCalls is the table of the calls that callers on this pod wait for. An answer finds its pending call by call
// id.
type pendingCalls struct {
	notifiers sync.Pool // of *notifier

	mu   sync.Mutex
	byID map[string]*pendingCall
}

func newPendingCalls() *pendingCalls {
	return &pendingCalls{
		notifiers: sync.Pool{New: func() any { return newNotifier() }},
		byID:      make(map[string]*pendingCall),
	}
}

func (w *pendingCalls) add(c *registry.Call, pod string) *pendingCall {
	wt := &pendingCall{id: c.ID, pod: pod, since: time.Now(), record: c.Record, notifier: w.notifiers.Get().(*notifier)}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.byID[c.ID] = wt
	return wt
}

// remove ends the wait for a call and forgets the call. The caller must not touch the pending call afterwards.
func (w *pendingCalls) remove(wt *pendingCall) {
	w.mu.Lock()
	if w.byID[wt.id] == wt {
		delete(w.byID, wt.id)
	}
	w.mu.Unlock()
	wt.close() // another goroutine may have found it just before
	wt.reset()
	w.notifiers.Put(wt.notifier)
}

func (w *pendingCalls) get(callID string) *pendingCall {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.byID[callID]
}

// deliver hands a reply to its pending call. It reports whether a caller will see it.
func (w *pendingCalls) deliver(r registry.Reply) bool {
	wt := w.get(r.CallID)
	return wt != nil && wt.deliver(r)
}

// cancel marks a tenant's pending call as cancelled and returns it, nil if nobody waits for it.
func (w *pendingCalls) cancel(tenant, callID string) *pendingCall {
	wt := w.get(callID)
	if wt == nil || wt.record == nil || wt.record.Tenant != tenant {
		return nil
	}
	wt.cancel()
	return wt
}

// failExcept answers with e every pending call whose pod is neither this one nor in live. live was read after the time
// asked, so calls that began later are left alone.
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
