//go:build unix

package testkit

import (
	"syscall"
	"testing"
	"time"
)

// CPU runs work and returns how much processor time the test program used meanwhile. Other processes on a busy machine
// do not make it longer, so a test may bound work by it. Tests that run in parallel in the same process do.
func CPU(t testing.TB, work func()) time.Duration {
	t.Helper()
	before := processorTime(t)
	work()
	return processorTime(t) - before
}

func processorTime(t testing.TB) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
