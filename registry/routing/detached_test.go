package routing

import (
	"fmt"
	"testing"
	"time"

	"github.com/farhand/farhand/registry"
)

// returning measures how long a hundred devices take to get their calls back, one call each, out of n that are away.
func returning(t *testing.T, n int) time.Duration {
	t.Helper()
	var away detachedCalls
	keys := make([]registry.Key, n)
	for i := range keys {
		keys[i] = registry.Key{Tenant: "t", Session: fmt.Sprint("s", i)}
		f := &inFlightCall{key: keys[i], callID: fmt.Sprint("c", i), timer: time.NewTimer(time.Hour)}
		away.add(f)
		defer f.timer.Stop()
		defer away.remove(f)
	}
	began := time.Now()
	for _, key := range keys[:100] {
		if calls := away.takeAll(key, nil); len(calls) != 1 || calls[0].key != key {
			t.Fatalf("%d calls of %v", len(calls), key)
		}
	}
	took := time.Since(began)
	if left := away.len(); left != n-100 {
		t.Fatalf("%d of %d calls are still away", left, n)
	}
	return took
}

// A device that returns gets its calls back without a search through those of all others, which may be away as well:
// a hundred times as many of those do not make it slow. With a search they would make it a hundred times as slow.
func TestDeviceReturnsAmongMany(t *testing.T) {
	alone, among := time.Hour, time.Hour
	for range 5 { // the fastest of several: a machine that stalls only makes a run slower
		alone, among = min(alone, returning(t, 100)), min(among, returning(t, 10_000))
	}
	if among > 20*alone {
		t.Errorf("a hundred devices return in %v alone, and in %v among ten thousand that are away", alone, among)
	}
}

// A session's calls are told apart from those of another session, also under the same id.
func TestDetachedCallsOfTwoSessions(t *testing.T) {
	var away detachedCalls
	first, second := registry.Key{Tenant: "t", Session: "a"}, registry.Key{Tenant: "t", Session: "b"}
	away.add(&inFlightCall{key: first, callID: "c1"})
	away.add(&inFlightCall{key: second, callID: "c1"})
	if got := away.take(first, "c1", nil, nil); got == nil || got.key != first || away.has(first, "c1") {
		t.Errorf("taken: %+v", got)
	}
	if got := away.takeAll(second, nil); len(got) != 1 || got[0].key != second || away.len() != 0 {
		t.Errorf("taken: %+v, %d left", got, away.len())
	}
}
