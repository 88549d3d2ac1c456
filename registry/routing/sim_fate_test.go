package routing_test

import (
	"strconv"
	"strings"
	"time"
)

// fates decide what happens to each message, write and connection of a run. A fate is a hash of the seed and of what it
// is about, never of the order of events: which goroutine of a bubble runs first is not known, and dropping a step of
// the plan must leave the fates of all others as they are.
type fates uint64

// of returns the fate of what the parts name.
func (f fates) of(parts ...string) *fate {
	h := uint64(f) ^ 0xcbf29ce484222325
	for _, part := range parts {
		for i := range len(part) {
			h = (h ^ uint64(part[i])) * 0x100000001b3
		}
		h = (h ^ 0xff) * 0x100000001b3
	}
	one := fate(h)
	one.next()
	return &one
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
	name := strings.Join(parts, "/")
	s.mu.Lock()
	s.times[name]++
	n := s.times[name]
	s.mu.Unlock()
	return s.fates.of(name, strconv.Itoa(n))
}
