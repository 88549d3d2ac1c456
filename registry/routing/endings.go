package routing

import (
	"sync"

	"github.com/farhand/farhand/registry"
)

// ending is how a call without a record of its own ended, as its caller saw it.
type ending struct {
	record registry.Record
	line   int64 // the recorder's line with the record, for waitFor; zero if the record is not stored
}

// endings is the table of requests that cancelled a call of this pod and wait for its caller to say how it ended. The
// zero value is ready.
type endings struct {
	mu   sync.Mutex
	byID map[string][]chan<- ending
}

// wait returns a channel that gets the ending of a call, and a function that ends the wait.
func (e *endings) wait(callID string) (ended <-chan ending, stop func()) {
	c := make(chan ending, 1)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.byID == nil {
		e.byID = make(map[string][]chan<- ending)
	}
	e.byID[callID] = append(e.byID[callID], c)
	return c, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		waiting := e.byID[callID]
		for i := range waiting {
			if waiting[i] == c {
				waiting[i] = waiting[len(waiting)-1]
				e.byID[callID] = waiting[:len(waiting)-1]
				break
			}
		}
		if len(e.byID[callID]) == 0 {
			delete(e.byID, callID)
		}
	}
}

// tell hands the ending of a call to the requests that wait for it.
func (e *endings) tell(callID string, end ending) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, c := range e.byID[callID] {
		c <- end // there is room: a call ends once, and each channel is removed here
	}
	delete(e.byID, callID)
}
