package bench

import (
	"fmt"
	"math/rand/v2"
)

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
