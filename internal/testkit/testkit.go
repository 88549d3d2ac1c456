// Package testkit has what the tests of several packages share: how long they wait, and how.
//
// A test never judges by a clock what a busy machine can delay. It waits for the event itself, and the bound of the
// wait is only there so that a broken program ends the test. What must come before a deadline of the program is shown
// by the order of events: a call that ends as lost, and not as timed out, ended before its deadline. How long something
// takes is a figure for a benchmark.
package testkit

import (
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// Limit is how long a test waits for something that must happen. A machine with a load of ten, whose processes stall
// for seconds, does not reach it.
const Limit = time.Minute

const pollEvery = 10 * time.Millisecond

// Eventually polls until ok returns true: for what no channel tells. It fails the test after Limit, and returns how
// long it waited.
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

// FreeAddr returns a loopback address that nobody listens on, for a program that a test starts, and maybe starts again.
// Linux by default gives ports of this range to no connection and to no listener that asks for any port, so the address
// stays free while the program is away. Package redistest takes the range above.
func FreeAddr(t testing.TB) string {
	t.Helper()
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(FreePort(t, 10000, 20000)))
}

// FreePort returns a port from least on and below most that nobody listens on, and none of the tests of this machine
// gets until t ends. companions are distances to ports that must be free, too.
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
