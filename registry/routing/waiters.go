package routing

import (
	"sync"
	"time"

	"github.com/farhand/farhand/registry"
)

// waiter is one caller waiting on this pod for an answer. What there is to hear is kept until the caller looks: it is
// told once that it should.
type waiter struct {
	id     string           // of the call
	pod    string           // the pod that was asked; empty when it is this one
	since  time.Time        // when it was asked
	record *registry.Record // of the call, if it has one; only what never changes may be read by others than its caller

	*bell

	mu        sync.Mutex
	final     registry.Reply // once answered: the first counts
	answered  bool           // there is an answer
	delivered bool           // the call was written to the socket
	running   bool           // the device has begun
	told      bool           // the caller has heard of the two above
	sent      time.Time      // when it left for another pod
	unsent    error          // why it did not, or may not have
	abandoned bool           // somebody cancelled the call
	left      bool           // the caller does not look any more
}

// bell is what a caller waits with. The next caller gets it when the waiter has left; who finds the waiter later leaves it
// alone.
type bell struct {
	news  chan struct{} // capacity 1: there is something new
	timer *time.Timer   // stopped, unless its caller has set it
}

func newBell() *bell {
	b := &bell{news: make(chan struct{}, 1), timer: time.NewTimer(time.Hour)}
	b.timer.Stop()
	return b
}

// silence makes a bell as good as new.
func (b *bell) silence() {
	b.timer.Stop()
	select {
	case <-b.news:
	default:
	}
}

// take hands the waiter a reply. Of final replies the first counts. It reports whether the reply will be heard.
func (w *waiter) take(r registry.Reply) (heard bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.left:
	case !r.Delivered && !w.answered:
		w.final, w.answered, heard = r, true, true
	case r.Delivered && (!w.delivered || r.Running && !w.running):
		w.delivered, w.running, w.told, heard = true, w.running || r.Running, false, true
	}
	if heard {
		w.wakeLocked()
	}
	return heard
}

// Sent implements Sender. That a call has left is nothing to wake its caller for.
func (w *waiter) Sent(err error) {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sent, w.unsent = now, err
	if err != nil {
		w.wakeLocked()
	}
}

// sending returns when the call left, the zero time if that is not known yet, and why it may not have.
func (w *waiter) sending() (time.Time, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sent, w.unsent
}

// leave ends the waiting: whatever comes from now on is told that nobody hears it. It returns the answer, if that has come
// in the meantime.
func (w *waiter) leave() *registry.Reply {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.left = true
	return w.answer()
}

// answer returns the answer, which does not change any more, nil if there is none. It needs the lock.
func (w *waiter) answer() *registry.Reply {
	if !w.answered {
		return nil
	}
	return &w.final
}

// recorded returns what others than the caller may read of the call's record: what never changes. How far the call has
// come is not among it.
func (w *waiter) recorded() registry.Record {
	r := w.record
	return registry.Record{
		CallID: r.CallID, Tenant: r.Tenant, Tool: r.Tool, SessionID: r.SessionID, DeviceID: r.DeviceID, UserID: r.UserID,
		Mode: r.Mode, TimeoutMS: r.TimeoutMS, State: registry.StateAccepted, Dispatched: registry.DispatchedUnknown,
		Timeline: []registry.Step{{State: registry.StateAccepted, At: w.since.UTC()}},
	}
}

// abandon tells the waiter that its call was cancelled.
func (w *waiter) abandon() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.abandoned = true
	w.wakeLocked()
}

// wakeLocked has the caller look. One that has left does not, and its bell may be another's by now.
func (w *waiter) wakeLocked() {
	if w.left {
		return
	}
	select {
	case w.news <- struct{}{}:
	default: // it has not looked yet
	}
}

// heard returns what is new: the answer if there is one, whether a receipt came since the last look, whether the device
// has begun, and whether the call was cancelled.
func (w *waiter) heard() (final *registry.Reply, receipt, running, abandoned bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	receipt = w.delivered && !w.told
	w.told = w.told || receipt
	return w.answer(), receipt, w.running, w.abandoned
}

// waiters is the table of calls this pod waits for. An answer finds its waiter by call id.
type waiters struct {
	bells sync.Pool // of *bell

	mu   sync.Mutex
	byID map[string]*waiter
}

func newWaiters() *waiters {
	return &waiters{bells: sync.Pool{New: func() any { return newBell() }}, byID: make(map[string]*waiter)}
}

func (w *waiters) add(c *registry.Call, pod string) *waiter {
	wt := &waiter{id: c.ID, pod: pod, since: time.Now(), record: c.Record, bell: w.bells.Get().(*bell)}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.byID[c.ID] = wt
	return wt
}

// remove ends the waiting for a call and forgets it. Who waited does not touch the waiter afterwards.
func (w *waiters) remove(wt *waiter) {
	w.mu.Lock()
	if w.byID[wt.id] == wt {
		delete(w.byID, wt.id)
	}
	w.mu.Unlock()
	wt.leave() // somebody may have found it just before
	wt.silence()
	w.bells.Put(wt.bell)
}

func (w *waiters) get(callID string) *waiter {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.byID[callID]
}

// resolve hands a reply to its waiter. It reports whether somebody hears it.
func (w *waiters) resolve(r registry.Reply) bool {
	wt := w.get(r.CallID)
	return wt != nil && wt.take(r)
}

// abandon tells the waiter of a call of that tenant that it was cancelled, and returns it; nil if nobody is waiting.
func (w *waiters) abandon(tenant, callID string) *waiter {
	wt := w.get(callID)
	if wt == nil || wt.record == nil || wt.record.Tenant != tenant {
		return nil
	}
	wt.abandon()
	return wt
}

// failExcept answers every waiter whose pod is neither this one nor in live, which is what was true at the time asked.
func (w *waiters) failExcept(live map[string]bool, asked time.Time, e *registry.Error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, wt := range w.byID {
		if wt.pod != "" && !live[wt.pod] && wt.since.Before(asked) {
			wt.take(registry.Reply{V: registry.EnvelopeVersion, CallID: id, Err: e})
		}
	}
}

func (w *waiters) len() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.byID)
}
