package routing

import (
	"hash/maphash"
	"sync"
)

// seenLimit bounds each of the two generations of remembered calls.
const seenLimit = 1 << 15

// seenCalls remembers recent calls, so that a message delivered twice (a client library that re-sent it after a
// lost reply, say) reaches the device once. It keeps at least the last seenLimit of them.
type seenCalls struct {
	seeds [2]maphash.Seed

	mu       sync.Mutex
	current  map[seenCall]struct{}
	previous map[seenCall]struct{}
}

// seenCall is a call as it went to one claim of a session. Its id is kept as 128 bits of hash under seeds that nobody
// knows: tens of thousands of strings would be looked at by every collection of garbage.
type seenCall struct {
	id         [2]uint64
	generation int64
}

func newSeenCalls() *seenCalls {
	return &seenCalls{seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}, current: make(map[seenCall]struct{})}
}

// has reports whether the call is remembered.
func (s *seenCalls) has(id string, generation int64) bool {
	c := s.call(id, generation)
	s.mu.Lock()
	defer s.mu.Unlock()
	_, current := s.current[c]
	_, previous := s.previous[c]
	return current || previous
}

func (s *seenCalls) call(id string, generation int64) seenCall {
	return seenCall{[2]uint64{maphash.String(s.seeds[0], id), maphash.String(s.seeds[1], id)}, generation}
}

// add reports whether the call is new to that generation, and remembers it.
func (s *seenCalls) add(id string, generation int64) bool {
	c := s.call(id, generation)
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.current[c]; ok {
		return false
	}
	if _, ok := s.previous[c]; ok {
		return false
	}
	if len(s.current) >= seenLimit {
		s.previous, s.current = s.current, make(map[seenCall]struct{}, seenLimit)
	}
	s.current[c] = struct{}{}
	return true
}
