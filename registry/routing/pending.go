package routing

import (
	"sync"
	"time"

	"github.com/farhand/farhand/registry"
)

// pendingCall is a call whose caller waits on this pod for its answer. It collects the call's progress and notifies the
// caller of it.
type pendingCall struct {
	id     string           // the call's id
	pod    string           // the pod that the call went to; empty if it is this one
	since  time.Time        // when the wait began
	record *registry.Record // nil if the call has none; only its caller reads the fields that change

	*notifier

	mu        sync.Mutex
	now       progress
	reply     registry.Reply // the first answer
	delivered bool           // the call was written to the socket
	closed    bool           // the caller has stopped waiting
}

// progress is a call's progress so far.
type progress struct {
	answer    *registry.Reply // nil until there is one; never changes after that
	inOrder   bool            // the call is queued in its order
	receipt   bool            // a receipt has come since the last look
	running   bool            // the device has begun
	cancelled bool            // the call was cancelled
	sentAt    time.Time       // when the bus reported the sending; zero until then
	sendErr   error           // why the bus could not send it, or does not know
}

// notifier wakes a waiting caller. Notifiers are pooled: once its pending call is closed, another call may have the
// notifier, so the notifier of a closed call must not be used.
type notifier struct {
	ready chan struct{} // capacity 1: there is progress to look at
	timer *time.Timer   // stopped, unless its caller has set it
}

func newNotifier() *notifier {
	n := &notifier{ready: make(chan struct{}, 1), timer: time.NewTimer(time.Hour)}
	n.timer.Stop()
	return n
}

// reset restores a notifier's initial state.
func (n *notifier) reset() {
	n.timer.Stop()
	select {
	case <-n.ready:
	default:
	}
}

// deliver passes a reply to the caller. Only the first answer counts. It reports whether the caller will see the reply.
func (p *pendingCall) deliver(r registry.Reply) (accepted bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed:
	case r.InOrder:
		accepted = !p.now.inOrder && p.now.answer == nil
		p.now.inOrder = true
	case !r.Delivered && p.now.answer == nil:
		p.reply = r
		p.now.answer, accepted = &p.reply, true
	case r.Delivered && (!p.delivered || r.Running && !p.now.running):
		p.delivered, p.now.receipt, accepted = true, true, true
		p.now.running = p.now.running || r.Running
	}
	if accepted {
		p.notifyLocked()
	}
	return accepted
}

// Sent implements registry.SendCallback. It notifies the caller only of a failure, because a success needs no action.
func (p *pendingCall) Sent(err error) {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now.sentAt, p.now.sendErr = now, err
	if err != nil {
		p.notifyLocked()
	}
}

// sendResult returns got with the current sentAt and sendErr.
func (p *pendingCall) sendResult(got progress) progress {
	p.mu.Lock()
	defer p.mu.Unlock()
	got.sentAt, got.sendErr = p.now.sentAt, p.now.sendErr
	return got
}

// close ends the wait: deliver returns false from now on. It returns the answer if it has come in the meantime.
func (p *pendingCall) close() *registry.Reply {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	return p.now.answer
}

// publicRecord returns a copy of the call's record that goroutines other than the caller's may read. It has only the
// fields that never change, and so does not show the call's progress.
func (p *pendingCall) publicRecord() registry.Record {
	r := p.record
	return registry.Record{
		CallID: r.CallID, Tenant: r.Tenant, Tool: r.Tool,
		SessionID: r.SessionID, DeviceID: r.DeviceID, UserID: r.UserID, Mode: r.Mode, TimeoutMS: r.TimeoutMS,
		State: registry.StateAccepted, Dispatched: registry.DispatchedUnknown,
		Timeline: []registry.Step{{State: registry.StateAccepted, At: p.since.UTC()}},
	}
}

// cancel marks the call as cancelled and notifies the caller.
func (p *pendingCall) cancel() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now.cancelled = true
	p.notifyLocked()
}

// notifyLocked wakes the caller. It does nothing once the call is closed, because the notifier may belong to another
// call by then.
func (p *pendingCall) notifyLocked() {
	if p.closed {
		return
	}
	select {
	case p.ready <- struct{}{}:
	default: // it has not looked yet
	}
}

// progress returns the current progress. It reports a receipt once.
func (p *pendingCall) progress() progress {
	p.mu.Lock()
	defer p.mu.Unlock()
	got := p.now
	p.now.receipt = false
	return got
}

// onCancel calls cancel when the call is cancelled, maybe more than once, until stop is called. It is for calls that
// no other goroutine waits for.
func (p *pendingCall) onCancel(cancel func()) (stop func()) {
	done := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		for {
			select {
			case <-done:
				return
			case <-p.ready:
				if p.progress().cancelled {
					cancel()
				}
			}
		}
	})
	return func() {
		close(done)
		watching.Wait()
	}
}

// pendingCalls is the table of the calls that callers on this pod wait for. It finds the pending call of an answer by
// call id.
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

func (t *pendingCalls) add(c *registry.Call, pod string) *pendingCall {
	p := &pendingCall{id: c.ID, pod: pod, since: time.Now(), record: c.Record, notifier: t.notifiers.Get().(*notifier)}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.byID[c.ID] = p
	return p
}

// remove ends the wait for a call and removes the call. The caller must not use the pending call afterwards.
func (t *pendingCalls) remove(p *pendingCall) {
	t.mu.Lock()
	if t.byID[p.id] == p {
		delete(t.byID, p.id)
	}
	t.mu.Unlock()
	p.close() // another goroutine may have found it just before
	p.reset()
	t.notifiers.Put(p.notifier)
}

func (t *pendingCalls) get(callID string) *pendingCall {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byID[callID]
}

// deliver passes a reply to its pending call. It reports whether a caller will see it.
func (t *pendingCalls) deliver(r registry.Reply) bool {
	p := t.get(r.CallID)
	return p != nil && p.deliver(r)
}

// cancel marks a tenant's pending call as cancelled and returns it, nil if no caller waits for it.
func (t *pendingCalls) cancel(tenant, callID string) *pendingCall {
	p := t.get(callID)
	if p == nil || p.record == nil || p.record.Tenant != tenant {
		return nil
	}
	p.cancel()
	return p
}

// failExcept fails with e every pending call whose pod is neither this one nor in live. live was read after the time
// asked, so later calls are left alone.
func (t *pendingCalls) failExcept(live map[string]bool, asked time.Time, e *registry.Error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id, p := range t.byID {
		if p.pod != "" && !live[p.pod] && p.since.Before(asked) {
			p.deliver(registry.Reply{V: registry.EnvelopeVersion, CallID: id, Err: e})
		}
	}
}

func (t *pendingCalls) len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.byID)
}
