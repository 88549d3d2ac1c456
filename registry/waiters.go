package registry

import (
	"sync"
	"time"
)

// waiter is one caller waiting on this pod for an answer.
type waiter struct {
	pod       string        // the pod that was asked; empty when it is this one
	since     time.Time     // when it was asked
	record    *Record       // of the call; only what never changes may be read by others than its caller
	final     chan Reply    // capacity 1: the answer, sent once
	receipt   chan bool     // capacity 1: the call was written to the socket; true when the device has begun
	abandoned chan struct{} // capacity 1: somebody cancelled the call
}

// take hands the waiter a reply. Of final replies the first counts.
func (w *waiter) take(r Reply) {
	if !r.Delivered {
		select {
		case w.final <- r:
		default:
		}
		return
	}
	select {
	case w.receipt <- r.Running:
	default: // the one before has not been looked at, and says almost the same
	}
}

// waiters is the table of calls this pod waits for. An answer finds its waiter by call id.
type waiters struct {
	mu   sync.Mutex
	byID map[string]*waiter
}

func newWaiters() *waiters { return &waiters{byID: make(map[string]*waiter)} }

func (w *waiters) add(c Call, pod string) *waiter {
	wt := &waiter{
		pod: pod, since: time.Now(), record: c.Record, final: make(chan Reply, 1), receipt: make(chan bool, 1), abandoned: make(chan struct{}, 1),
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.byID[c.ID] = wt
	return wt
}

func (w *waiters) remove(callID string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.byID, callID)
}

func (w *waiters) get(callID string) *waiter {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.byID[callID]
}

// resolve hands a reply to its waiter. It reports whether somebody was waiting.
func (w *waiters) resolve(r Reply) bool {
	wt := w.get(r.CallID)
	if wt == nil {
		return false
	}
	wt.take(r)
	return true
}

// abandon tells the waiter of a call of that tenant that it was cancelled, and returns it; nil if nobody is waiting.
func (w *waiters) abandon(tenant, callID string) *waiter {
	wt := w.get(callID)
	if wt == nil || wt.record.Tenant != tenant {
		return nil
	}
	select {
	case wt.abandoned <- struct{}{}:
	default: // twice is once
	}
	return wt
}

// failExcept answers every waiter whose pod is neither this one nor in live, which is what was true at the time asked.
func (w *waiters) failExcept(live map[string]bool, asked time.Time, e *Error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, wt := range w.byID {
		if wt.pod != "" && !live[wt.pod] && wt.since.Before(asked) {
			wt.take(Reply{V: EnvelopeVersion, CallID: id, Err: e})
		}
	}
}

func (w *waiters) len() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.byID)
}
