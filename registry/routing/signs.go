package routing

import "sync"

// signs are the signs of life that this pod waits for. The zero value is ready.
type signs struct {
	mu   sync.Mutex
	byID map[string]chan bool
}

// wait returns where the answer will be, and a function that ends the waiting.
func (s *signs) wait(id string) (answer <-chan bool, stop func()) {
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

// give hands over an answer. Only the first counts.
func (s *signs) give(id string, alive bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case s.byID[id] <- alive: // a channel that is nil, of nobody who waits, never takes it
	default:
	}
}
