package routing

import (
	"log/slog"
	"sync"

	"github.com/farhand/farhand/registry"
)

// watchers is the table of requests on this pod that wait for a record to become final. The zero value is ready.
type watchers struct {
	mu   sync.Mutex
	byID map[string]map[chan struct{}]struct{}
}

// watch returns a channel that notify closes, and a function that ends the wait.
func (w *watchers) watch(callID string) (woken <-chan struct{}, stop func()) {
	c := make(chan struct{})
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.byID == nil {
		w.byID = make(map[string]map[chan struct{}]struct{})
	}
	if w.byID[callID] == nil {
		w.byID[callID] = make(map[chan struct{}]struct{})
	}
	w.byID[callID][c] = struct{}{}
	return c, func() { w.forget(callID, c) }
}

func (w *watchers) forget(callID string, c chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.byID[callID], c)
	if len(w.byID[callID]) == 0 {
		delete(w.byID, callID)
	}
}

func (w *watchers) notify(callID string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.byID[callID] {
		close(c)
	}
	delete(w.byID, callID)
}

// notifyWatchers tells the pods that watch a call that it is final. A pod that misses the message reads the record
// again after watchPause.
func notifyWatchers(bus registry.Bus, log *slog.Logger, m registry.Moved) {
	for _, pod := range m.Watchers {
		wake := registry.Reply{V: registry.EnvelopeVersion, CallID: m.Record.CallID, Wake: true}
		if err := bus.Reply(pod, wake); err != nil {
			log.Debug("watcher not woken", "call", m.Record.CallID, "pod", pod, "error", err)
		}
	}
}
