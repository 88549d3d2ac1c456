package browser

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// However many browsers there are, the processes are read once in a tick, and not at all without a browser.
func TestBrowsersAreWeighedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reads, ended atomic.Int32
		s := newMemoryWatch(func() map[string]int64 {
			reads.Add(1)
			return map[string]int64{"a": 10, "b": 11, "c": 99}
		})
		pass := func(want, wantEnded int32) {
			t.Helper()
			reads.Store(0)
			time.Sleep(10 * measureEvery)
			synctest.Wait()
			if got := reads.Load(); got != want {
				t.Errorf("%d reads in 10 ticks, want %d", got, want)
			}
			if got := ended.Load(); got != wantEnded {
				t.Errorf("%d browsers were ended, want %d", got, wantEnded)
			}
		}
		pass(0, 0)
		gone, runs := make(chan struct{}), make(chan struct{})
		s.add("a", watched{10, runs, func() { t.Error("a light browser is ended") }})
		pass(10, 0)
		s.add("b", watched{10, runs, func() { ended.Add(1) }})
		s.add("c", watched{10, gone, func() { t.Error("a browser that is no more is ended") }})
		close(gone)
		pass(10, 1)
		s.remove("a")
		pass(0, 1) // the others are no more, but are not taken off yet
		s.remove("b")
		s.remove("c")
		pass(0, 1)
		s.add("b", watched{10, runs, func() { ended.Add(1) }})
		pass(1, 2)
		s.remove("b")
	})
}
