//go:build !linux && !darwin && !windows

package demotools

// readFacts returns nothing: it is not implemented for this system.
func readFacts() facts { return facts{} }
