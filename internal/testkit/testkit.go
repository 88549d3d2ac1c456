// Package testkit has helpers for tests of several packages that wait for events.
//
// A test must not use a clock to check anything that a busy machine can delay. It waits for the event itself; the limit
// of the wait only ends the test of a broken program. The order of events shows what must come before a deadline of the
// program: a call that ends as lost, and not as timed out, ended before its deadline. Durations are measured by
// benchmarks.
package testkit

import (
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"
)

// Limit is how long a test waits for something that must happen. A machine with a load of ten, whose processes stall
// for seconds, does not reach it.
const Limit = time.Minute

const pollEvery = 10 * time.Millisecond

// Eventually polls until ok returns true. Use it where no channel reports the event. It fails the test after Limit, and
// returns how long it waited.
func Eventually(t testing.TB, what string, ok func() bool) time.Duration {
	t.Helper()
	began := time.Now()
	deadline := time.NewTimer(Limit)
	defer deadline.Stop()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline.C:
			t.Fatalf("not within %v: %s", Limit, what)
		case <-tick.C:
		}
	}
	return time.Since(began)
}

// Receive returns the next value of a channel, or the zero value when the channel is closed. It fails the test when
// neither happens within Limit.
func Receive[T any](t testing.TB, what string, c <-chan T) T {
	t.Helper()
	deadline := time.NewTimer(Limit)
	defer deadline.Stop()
	select {
	case v := <-c:
		return v
	case <-deadline.C:
		t.Fatalf("not received within %v: %s", Limit, what)
		panic("unreachable")
	}
}

// FreeAddr returns a loopback address without a listener, for a program that a test starts and maybe restarts. By
// default Linux assigns ports of this range neither to connections nor to listeners on port 0. So the address stays
// free while the program is down. Package redistest uses the range above.
func FreeAddr(t testing.TB) string {
	t.Helper()
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(FreePort(t, 10000, 20000)))
}

// FreePort returns a port from least on and below most that has no listener. No other test on this machine gets it
// until t ends. companions are distances to ports that must also be free.
func FreePort(t testing.TB, least, most int, companions ...int) int {
	t.Helper()
	dir := filepath.Join(os.TempDir(), "farhand-test-ports")
	if err := os.MkdirAll(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		port := least + rand.IntN(most-least)
		unlock, ok := lockFile(filepath.Join(dir, strconv.Itoa(port)))
		if !ok {
			continue
		}
		free := isFree(port)
		for _, distance := range companions {
			free = free && isFree(port+distance)
		}
		if free {
			t.Cleanup(unlock)
			return port
		}
		unlock()
	}
	t.Fatal("no free port found")
	return 0
}

func isFree(port int) bool {
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return false
	}
	_ = l.Close()
	return true
}

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
