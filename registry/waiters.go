package registry

import "sync"

// waiter is one caller waiting on this pod for an answer from another.
type waiter struct {
	pod     string        // the pod that was asked
	final   chan Reply    // capacity 1: the answer, sent once
	receipt chan struct{} // capacity 1: the call was written to the socket
}

// waiters is the table of calls this pod waits for. An answer finds its waiter by call id, and only the first counts.
type waiters struct {
	mu   sync.Mutex
	byID map[string]*waiter
}

func newWaiters() *waiters { return &waiters{byID: make(map[string]*waiter)} }

func (w *waiters) add(callID, pod string) *waiter {
	wt := &waiter{pod: pod, final: make(chan Reply, 1), receipt: make(chan struct{}, 1)}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.byID[callID] = wt
	return wt
}

func (w *waiters) remove(callID string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.byID, callID)
}

// resolve hands a reply to its waiter. It reports whether somebody was waiting.
func (w *waiters) resolve(r Reply) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	wt := w.byID[r.CallID]
	if wt == nil {
		return false
	}
	if r.Delivered {
		select {
		case wt.receipt <- struct{}{}:
		default: // a second receipt says nothing new
		}
		return true
	}
	delete(w.byID, r.CallID)
	wt.final <- r // cannot block: the entry is removed in the same step, so this happens once
	return true
}

// fail answers every waiter whose pod is not in live.
func (w *waiters) failExcept(live map[string]bool, e *Error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, wt := range w.byID {
		if !live[wt.pod] {
			delete(w.byID, id)
			wt.final <- Reply{V: EnvelopeVersion, CallID: id, Err: e}
		}
	}
}

func (w *waiters) len() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.byID)
}
