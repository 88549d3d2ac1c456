package routing_test

import (
	"strconv"
	"time"
)

// fates decide what happens to each message, write and connection of a run. A fate is a hash of the seed and of what it
// is about, never of the order of events: which goroutine of a bubble runs first is not known, and dropping a step of
// the plan must leave the fates of all others as they are.
type fates uint64

// of returns the fate of what the parts name.
func (f fates) of(parts ...string) *fate {
	h := f.begin()
	for _, part := range parts {
		h = h.add(part).end()
	}
	return h.fate()
}

// nameHash is the hash of a seed and of a part of a name (FNV-1a).
type nameHash uint64

func (f fates) begin() nameHash { return nameHash(f) ^ 0xcbf29ce484222325 }

func (h nameHash) byte(b byte) nameHash { return (h ^ nameHash(b)) * 0x100000001b3 }

func (h nameHash) add(part string) nameHash {
	for i := range len(part) {
		h = h.byte(part[i])
	}
	return h
}

// end ends a part, so that "a" and "bc" are not "ab" and "c".
func (h nameHash) end() nameHash { return h.byte(0xff) }

func (h nameHash) fate() *fate {
	f := fate(h)
	f.next()
	return &f
}

// fate is a short source of random numbers.
type fate uint64

// next returns the next number (SplitMix64).
func (f *fate) next() uint64 {
	*f += 0x9e3779b97f4a7c15
	z := uint64(*f)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// chance reports true with probability p.
func (f *fate) chance(p float64) bool { return float64(f.next()>>11)/(1<<53) < p }

// span returns a duration in [low, high), to the nanosecond: two events of a run hardly ever come at the same instant,
// so their order does not depend on the scheduler.
func (f *fate) span(low, high time.Duration) time.Duration {
	return low + time.Duration(f.next()%uint64(high-low))
}

// pick returns a number in [0, n).
func (f *fate) pick(n int) int { return int(f.next() % uint64(n)) }

// fateOf returns the fate of the next event of this name. Events of one name follow one another.
func (s *simulation) fateOf(parts ...string) *fate {
	h := s.fates.begin() // of the parts with a slash between them: a name is not put together for each event
	for i, part := range parts {
		if i > 0 {
			h = h.byte('/')
		}
		h = h.add(part)
	}
	h = h.end()
	s.mu.Lock()
	s.times[h]++
	n := s.times[h]
	s.mu.Unlock()
	return h.add(strconv.Itoa(n)).end().fate()
}
