package testkit

import (
	"sync/atomic"
	"testing"
	"time"
)

// Stalls measures, until the test ends, how late this process wakes from a short sleep. longest returns the maximum so
// far. Use it to judge a promise in seconds on a machine that has little time for the test.
func Stalls(t testing.TB) (longest func() time.Duration) {
	t.Helper()
	var worst atomic.Int64
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTimer(pollEvery)
		defer tick.Stop()
		for {
			began := time.Now()
			tick.Reset(pollEvery)
			select {
			case <-tick.C:
			case <-end:
				return
			}
			worst.Store(max(worst.Load(), int64(time.Since(began)-pollEvery)))
		}
	}()
	t.Cleanup(func() {
		close(end)
		<-ended
	})
	return func() time.Duration { return time.Duration(worst.Load()) }
}
