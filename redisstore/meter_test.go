package redisstore

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/farhand/farhand/redisstore/bus"
	"github.com/farhand/farhand/redisstore/redistest"
)

// trips keeps what a Meter is told.
type trips struct {
	mu     sync.Mutex
	groups map[Group]int
	failed map[Failure]int
}

func (m *trips) RoundTrip(g Group, took time.Duration, failed Failure) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.groups[g]++
	m.failed[failed]++
	if took <= 0 {
		m.groups["no time"]++
	}
}

func (m *trips) of(g Group) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.groups[g]
}

func (m *trips) failures(f Failure) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.failed[f]
}

func TestMeterHearsOfRoundTrips(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	heard := &trips{groups: make(map[Group]int), failed: make(map[Failure]int)}
	conn := dial(t, Options{URL: server.URL(), Meter: heard})
	s := conn.Store()
	if _, err := s.Heartbeat(t.Context(), "pod"); err != nil {
		t.Fatal(err)
	}
	claim(t, s, "s1", "pod")
	if heard.of(GroupPods) == 0 || heard.of(GroupSessions) == 0 || heard.of("no time") != 0 || heard.failures(FailureNone) == 0 {
		t.Errorf("heard of %v", heard.groups)
	}
	for _, f := range Failures() {
		if n := heard.failures(f); n != 0 {
			t.Errorf("%d failures of kind %s", n, f)
		}
	}
	if p := conn.Pools()[PoolCommands]; p.Open == 0 {
		t.Errorf("pool %+v", p)
	}
	server.Pause()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := s.Heartbeat(ctx, "pod"); err == nil {
		t.Error("a server that stands still has answered")
	}
	server.Resume()
	if heard.failures(FailureTimeout) == 0 {
		t.Errorf("failures %v", heard.failed)
	}
	server.Kill()
	if _, err := s.Heartbeat(t.Context(), "pod"); err == nil {
		t.Error("a server that is gone has answered")
	}
	if heard.failures(FailureConnection) == 0 {
		t.Errorf("failures %v", heard.failed)
	}
}

// TestEveryScriptHasAGroup: what somebody adds is not hidden among the others.
func TestEveryScriptHasAGroup(t *testing.T) {
	for _, s := range slices.Concat(scripts.All(), bus.Scripts().All()) {
		if groupOfScript(s.Name()) == GroupOther {
			t.Errorf("script %s has no group", s.Name())
		}
	}
}
