package routing

import "sync"

// pendingPings is the table of pings whose answers this pod waits for. The zero value is ready.
type pendingPings struct {
	mu   sync.Mutex
	byID map[string]chan bool
}

// add returns a channel that gets the answer, and a function that ends the wait.
func (s *pendingPings) add(id string) (answer <-chan bool, stop func()) {
	c := make(chan bool, 1)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byID == nil {
		s.byID = make(map[string]chan bool)
	}
	s.byID[id] = c
	return c, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.byID, id)
	}
}

// answer hands over an answer. Only the first one counts.
func (s *pendingPings) answer(id string, alive bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case s.byID[id] <- alive: // nil if nobody waits, and a nil channel takes nothing
	default:
	}
}
