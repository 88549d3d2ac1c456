package redisstore

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/farhand/farhand/redisstore/bus"
	"github.com/farhand/farhand/redisstore/internal/redisconn"
	"github.com/farhand/farhand/redisstore/redistest"
	"github.com/farhand/farhand/registry/documents"
)

// trips keeps what a Meter is told.
type trips struct {
	mu     sync.Mutex
	kinds  map[Kind]int
	failed map[Failure]int
}

func (m *trips) RoundTrip(k Kind, took time.Duration, failed Failure) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.kinds[k]++
	m.failed[failed]++
	if took <= 0 {
		m.kinds["no time"]++
	}
}

func (m *trips) of(k Kind) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.kinds[k]
}

func (m *trips) failures(f Failure) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.failed[f]
}

func TestMeterHearsOfRoundTrips(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	heard := &trips{kinds: make(map[Kind]int), failed: make(map[Failure]int)}
	conn := dial(t, Options{URL: server.URL(), Meter: heard})
	s := conn.Store()
	if _, err := s.Heartbeat(t.Context(), "pod"); err != nil {
		t.Fatal(err)
	}
	claim(t, s, "s1", "pod")
	if heard.of(KindPods) == 0 || heard.of(KindSessions) == 0 || heard.of("no time") != 0 ||
		heard.failures(FailureNone) == 0 {
		t.Errorf("heard of %v", heard.kinds)
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

// TestEveryScriptHasAKind: what somebody adds is not hidden among the others.
func TestEveryScriptHasAKind(t *testing.T) {
	imports := []*redisconn.Script{scriptImportWhole, scriptImportMerge, scriptImportStream} // no pod runs them
	for _, s := range slices.Concat(scripts.All(), bus.Scripts().All()) {
		if slices.Contains(imports, s) {
			continue
		}
		if k := s.Kind(); k != kindDocuments && (k == KindOther || !slices.Contains(Kinds(), k)) {
			t.Errorf("a script has the kind %q", k)
		}
	}
	for space, want := range map[documents.Space]Kind{
		{Tenant: "a:{b", Kind: "approvals"}:          KindApprovals,
		{Tenant: "a", Kind: "nonces", Owner: "a:}b"}: KindCredentials,
		{Kind: "blobs"}: KindCalls, {Tenant: "approvals", Kind: "unknown"}: KindOther,
	} {
		hook := meterHook{kinds: map[string]Kind{scriptDocsRead.SHA(): kindDocuments}}
		args := []any{"evalsha", scriptDocsRead.SHA(), 1, documentKey(space, "a")}
		if got := hook.kindOfEval(args); got != want {
			t.Errorf("%+v is of kind %s, want %s", space, got, want)
		}
	}
}
