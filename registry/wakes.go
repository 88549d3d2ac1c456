package registry

import (
	"log/slog"
	"sync"
)

// wakes is the table of requests on this pod that wait for a record to become final. The zero value is ready.
type wakes struct {
	mu   sync.Mutex
	byID map[string][]chan struct{}
}

// wait returns a channel that is closed by wake, and a function that ends the waiting.
func (w *wakes) wait(callID string) (woken <-chan struct{}, stop func()) {
	c := make(chan struct{})
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.byID == nil {
		w.byID = make(map[string][]chan struct{})
	}
	w.byID[callID] = append(w.byID[callID], c)
	return c, func() { w.forget(callID, c) }
}

func (w *wakes) forget(callID string, c chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	left := w.byID[callID][:0:0]
	for _, other := range w.byID[callID] {
		if other != c {
			left = append(left, other)
		}
	}
	if len(left) == 0 {
		delete(w.byID, callID)
	} else {
		w.byID[callID] = left
	}
}

func (w *wakes) wake(callID string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.byID[callID] {
		close(c)
	}
	delete(w.byID, callID)
}

// wakeAll tells the pods that watch a call that it is final. One that does not hear it looks again by itself.
func wakeAll(bus Bus, log *slog.Logger, m Moved) {
	for _, pod := range m.Watchers {
		if err := bus.Reply(pod, Reply{V: EnvelopeVersion, CallID: m.Record.CallID, Wake: true}); err != nil {
			log.Debug("watcher not woken", "call", m.Record.CallID, "pod", pod, "error", err)
		}
	}
}
