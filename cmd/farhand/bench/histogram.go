package bench

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"time"
)

const (
	subBits    = 7                      // buckets per power of two: each is less than 1 % wide
	firstPower = 10                     // everything below 1 µs falls into the first bucket
	powers     = 27                     // up to about 137 s
	buckets    = powers << subBits      // of one histogram
	subMask    = uint64(1)<<subBits - 1 // position within a power
)

// Histogram counts durations with a resolution of 1 %. It is not safe for concurrent use: each caller has its own.
type Histogram struct {
	counts [buckets]uint32
	total  int64
	Max    time.Duration
}

func (h *Histogram) Record(d time.Duration) {
	h.counts[bucketOf(d)]++
	h.total++
	h.Max = max(h.Max, d)
}

func (h *Histogram) merge(o *Histogram) {
	for i, n := range o.counts {
		h.counts[i] += n
	}
	h.total += o.total
	h.Max = max(h.Max, o.Max)
}

// Quantile returns the duration that a share q of all durations does not exceed, or zero if there are none.
func (h *Histogram) Quantile(q float64) time.Duration {
	if h.total == 0 {
		return 0
	}
	rank := int64(q * float64(h.total-1))
	for i, n := range h.counts {
		if rank -= int64(n); rank < 0 {
			return min(durationOf(i), h.Max)
		}
	}
	return h.Max
}

func bucketOf(d time.Duration) int {
	ns := uint64(max(d, 0))
	if ns < 1<<firstPower {
		return 0
	}
	power := bits.Len64(ns) - 1
	sub := ns >> (power - subBits) & subMask
	return min((power-firstPower)<<subBits|int(sub), buckets-1)
}

// durationOf returns the middle of a bucket.
func durationOf(bucket int) time.Duration {
	power := bucket>>subBits + firstPower
	width := uint64(1) << (power - subBits)
	return time.Duration(uint64(1)<<power + (uint64(bucket)&subMask)*width + width/2)
}

// Spread is how callers choose among the devices. It is a flag's value.
type Spread string

// The spreads. Caches of a device's route, and batching with the next call to it, help a pinned caller most and a
// uniform one least. Calls of a real fleet are in between.
const (
	SpreadUniform Spread = "uniform" // each call goes to a device chosen at random
	SpreadZipf    Spread = "zipf"    // the same, but few get most calls: the n-th gets calls in proportion to n^-1.1
	SpreadPinned  Spread = "pinned"  // each caller calls one device over and over
)

// String, Set and Type implement the value of a flag.
func (s *Spread) String() string { return string(*s) }

// Set implements the value of a flag.
func (s *Spread) Set(text string) error {
	switch Spread(text) {
	case SpreadUniform, SpreadZipf, SpreadPinned:
		*s = Spread(text)
		return nil
	}
	return fmt.Errorf("must be uniform, zipf or pinned")
}

// Type implements the value of a flag.
func (*Spread) Type() string { return "spread" }

// zipfExponent is how steeply calls decrease from the most called device.
const zipfExponent = 1.1

// Chooser returns the function by which the i-th caller chooses the session of its next call.
func (s Spread) Chooser(sessions []string, i int) func() string {
	random := rand.New(rand.NewPCG(uint64(i), uint64(len(sessions))))
	switch s {
	case SpreadPinned:
		session := sessions[i%len(sessions)]
		return func() string { return session }
	case SpreadZipf:
		zipf := rand.NewZipf(random, zipfExponent, 1, uint64(len(sessions)-1))
		return func() string { return sessions[zipf.Uint64()] }
	default:
		return func() string { return sessions[random.IntN(len(sessions))] }
	}
}
