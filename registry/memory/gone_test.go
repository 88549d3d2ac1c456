package memory

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand/registry"
)

// comeAndGo has a session of a tenant connect, offer tools and leave for a moment.
func comeAndGo(t *testing.T, m *Store, tenant, id string, s registry.Session, tools []registry.ToolSpec) {
	t.Helper()
	s.Key, s.Pod = registry.Key{Tenant: tenant, Session: id}, "pod"
	claim, err := m.Claim(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.SetTools(t.Context(), claim.Session, tools); err != nil {
		t.Fatal(err)
	}
	if released, err := m.Release(t.Context(), claim.Session, time.Minute); err != nil || !released {
		t.Fatal(released, err)
	}
}

func awaited(t *testing.T, m *Store, tenant string) int {
	t.Helper()
	found, err := m.Awaited(t.Context(), registry.Query{Tenant: tenant, Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	return len(found)
}

// One tenant's devices come and go, each with labels and tools of its own. Those of another one are still expected
// back, and what is remembered has a bound.
func TestSessionsThatAreGoneAreShared(t *testing.T) {
	m, now := storeWithClock()
	m.gone.most, m.goneLists.most = 100<<10, 100<<10
	labels := make(map[string]string)
	for i := range 32 {
		labels[fmt.Sprint("label", i)] = strings.Repeat("x", 64)
	}
	long := registry.Session{Labels: labels}
	for i := range 200 {
		list := []registry.ToolSpec{{Name: "a", Description: strings.Repeat("y", 4<<10)}}
		comeAndGo(t, m, "greedy", fmt.Sprint(i), long, list)
	}
	if n := awaited(t, m, "greedy"); n == 0 || n > 50 {
		t.Errorf("%d sessions of the tenant are awaited", n)
	}
	if m.gone.counts["greedy"] > 50<<10 || m.goneLists.counts["greedy"] > 50<<10 {
		t.Errorf("a tenant has %v and %v", m.gone.counts, m.goneLists.counts)
	}
	same := []registry.ToolSpec{{Name: "a", Description: strings.Repeat("z", 4<<10)}}
	for i := range 40 { // a fleet that runs one app is remembered whole
		comeAndGo(t, m, "modest", fmt.Sprint(i), registry.Session{}, same)
	}
	if n := awaited(t, m, "modest"); n != 40 {
		t.Errorf("%d of 40 sessions of another tenant are awaited", n)
	}
	_, err := m.Entry(t.Context(), registry.Key{Tenant: "greedy", Session: "199"})
	if !errors.Is(err, registry.CodeSessionNotFound) {
		t.Errorf("a session without room: %v", err)
	}
	*now = now.Add(2 * registry.DefaultSessionTTL)
	if _, err := m.Sweep(t.Context()); err != nil || m.gone.count+m.goneLists.count != 0 {
		t.Errorf("%d and %d bytes are kept, %v", m.gone.count, m.goneLists.count, err)
	}
}

// A session is claimed anew by a connection that registers nothing: what the former one offered is expected for a
// while, within the tenant's share, and then forgotten although the session lives.
func TestWhatIsExpectedOfLiveSessionsIsShared(t *testing.T) {
	m, now := storeWithClock()
	m.goneLists.most = 100 << 10
	ctx := t.Context()
	claim := func(id string) registry.Session {
		t.Helper()
		s := registry.Session{Key: registry.Key{Tenant: "greedy", Session: id}, Pod: "pod",
			Generation: registry.AnyHolder}
		claimed, err := m.Claim(ctx, s)
		if err != nil {
			t.Fatal(err)
		}
		return claimed.Session
	}
	if _, err := m.Heartbeat(ctx, "pod"); err != nil {
		t.Fatal(err)
	}
	expect := func() (bytes, sessions int) {
		for _, stored := range m.sessions.byTenant["greedy"] {
			if len(stored.expected.tools) > 0 {
				sessions++
				bytes += (&goneList{tools: stored.expected.tools}).size()
			}
		}
		return bytes, sessions
	}
	for i := range 100 {
		id := fmt.Sprint(i)
		list := []registry.ToolSpec{{Name: "a", Description: strings.Repeat("y", 4<<10)}}
		if err := m.SetTools(ctx, claim(id), list); err != nil {
			t.Fatal(err)
		}
		claim(id)
	}
	if bytes, sessions := expect(); sessions == 0 || bytes > 50<<10 {
		t.Errorf("%d bytes are expected of %d sessions", bytes, sessions)
	}
	if n := awaited(t, m, "greedy"); n == 0 {
		t.Error("nothing is awaited")
	}
	*now = now.Add(registry.RegisterWait + time.Second)
	if _, err := m.Heartbeat(ctx, "pod"); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Sweep(ctx); err != nil {
		t.Fatal(err)
	}
	if bytes, _ := expect(); bytes != 0 || len(m.expecting) != 0 {
		t.Errorf("%d bytes are still kept, and %d tenants", bytes, len(m.expecting))
	}
}
