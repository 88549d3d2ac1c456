package registry

import "sync"

// seenLimit bounds each of the two generations of remembered call ids.
const seenLimit = 1 << 15

// seenCalls remembers recent call ids, so that a message delivered twice (a client library that re-sent it after a
// lost reply, say) reaches the device once. It keeps at least the last seenLimit ids.
type seenCalls struct {
	mu       sync.Mutex
	current  map[string]struct{}
	previous map[string]struct{}
}

func newSeenCalls() *seenCalls { return &seenCalls{current: make(map[string]struct{})} }

// first reports whether id is new, and remembers it.
func (s *seenCalls) first(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.current[id]; ok {
		return false
	}
	if _, ok := s.previous[id]; ok {
		return false
	}
	if len(s.current) >= seenLimit {
		s.previous, s.current = s.current, make(map[string]struct{}, seenLimit)
	}
	s.current[id] = struct{}{}
	return true
}
