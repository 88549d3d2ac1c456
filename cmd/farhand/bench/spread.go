package bench

import (
	"fmt"
	"math/rand/v2"
)

// Spread says how callers choose among the devices. It is a flag's value.
type Spread string

// The spreads. What is remembered of a device, and what rides along with the next call to it, serves a pinned caller
// best and a uniform one least: a fleet's calls lie between.
const (
	SpreadUniform Spread = "uniform" // each call goes to a device chosen at random
	SpreadZipf    Spread = "zipf"    // the same, but few get most calls: the n-th in proportion to n^-1.1
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

// zipfExponent is how steeply the calls fall from the device that is called most.
const zipfExponent = 1.1

// chooser returns how the i-th caller chooses the session it calls next.
func (s Spread) chooser(sessions []string, i int) func() string {
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
