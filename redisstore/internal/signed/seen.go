package signed

import (
	"sync"
	"time"
)

// maxSeen is how many messages a generation has at most: about 20 MB. A pod reads fewer within 2*Window.
const maxSeen = 1 << 20

// seen has the messages received within 2*Window, in two generations that alternate: a message is valid at most that
// long after it was first received. A full generation ends early. Then messages that were sent before the oldest known
// one are rejected, because they may have been forgotten.
type seen struct {
	mu      sync.Mutex
	tags    [2]map[uint64]struct{}
	newest  [2]time.Time // when the newest message of each generation was sent
	began   time.Time    // of the current generation, the first of both
	floor   time.Time    // messages that were sent until then are rejected
	maximum int          // of a generation; zero: maxSeen
}

// first reports whether a message, sent at a time, is received for the first time.
func (s *seen) first(tag uint64, at, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	limit := s.maximum
	if limit == 0 {
		limit = maxSeen
	}
	full := len(s.tags[0]) >= limit
	if full || now.Sub(s.began) >= 2*Window {
		if full {
			s.floor = s.newest[1]
		}
		s.tags = [2]map[uint64]struct{}{make(map[uint64]struct{}), s.tags[0]}
		s.newest, s.began = [2]time.Time{{}, s.newest[0]}, now
	}
	for _, tags := range s.tags {
		if _, ok := tags[tag]; ok {
			return false
		}
	}
	if !at.After(s.floor) {
		return false
	}
	s.tags[0][tag] = struct{}{}
	if at.After(s.newest[0]) {
		s.newest[0] = at
	}
	return true
}
