package routing

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
)

func routeEntry(session, pod string) registry.Entry {
	return registry.Entry{Session: registry.Session{
		Key: registry.Key{Tenant: "t", Session: session}, Pod: pod, Generation: 1, DeviceID: "device of " + session,
	}}
}

// A remembered route needs no clock to stay valid, but its pod's lease.
func TestRouteCacheForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRouteCache()
		e := routeEntry("s", "b")
		known := func() bool {
			_, _, ok := r.get(e.Session.Key)
			return ok
		}
		r.put(e, time.Now())
		time.Sleep(time.Hour)
		if !known() {
			t.Error("forgotten by the clock")
		}
		r.setLive(map[string]bool{"a": true, "b": true}, time.Now())
		if !known() {
			t.Error("forgotten although the pod is live")
		}
		time.Sleep(time.Second)
		r.setLive(map[string]bool{"a": true}, time.Now())
		if known() {
			t.Error("a route to a pod without a lease")
		}
		time.Sleep(time.Second)
		r.put(e, time.Now()) // the pod is new: the directory knew it, the last look did not
		if !known() {
			t.Error("what was read since the last look is not known")
		}
		began := time.Now()
		time.Sleep(time.Second)
		r.setLive(map[string]bool{"a": true}, time.Now())
		time.Sleep(time.Second)
		r.put(e, began) // the read took until now, but may not know what the last look knows
		if known() {
			t.Error("a route that may have been read before the pod lost its lease")
		}
		r.put(e, time.Now().Add(time.Millisecond))
		r.drop(e.Session.Key, time.Now().Add(-time.Second)) // by a call that began before
		if !known() {
			t.Error("what was read since the call began is not known")
		}
		r.drop(e.Session.Key, time.Now().Add(time.Second))
		if known() {
			t.Error("a dropped entry is still there")
		}
	})
}

// However many sessions are called, the routes take no more memory than their bound.
func TestRouteCacheIsBounded(t *testing.T) {
	r := newRouteCache()
	for i := range 4 * routeBytes / 500 {
		r.put(routeEntry(fmt.Sprintf("s%07d", i), "b"), time.Now())
	}
	if _, _, ok := r.get(registry.Key{Tenant: "t", Session: "s0000000"}); ok {
		t.Error("the first is still remembered")
	}
}

// The tools of sessions are bounded, too: sessions with large lists of their own are forgotten earlier.
func TestToolsOfRememberedSessionsAreBounded(t *testing.T) {
	r := newRouteCache()
	parameters := json.RawMessage(`{"type":"object","description":"` + strings.Repeat("x", 50_000) + `"}`)
	const sessions = 4 * routeToolBytes / 50_000
	for i := range sessions {
		e := routeEntry(fmt.Sprintf("s%07d", i), "b")
		spec := registry.ToolSpec{Name: fmt.Sprintf("tool%d", i), Parameters: parameters}
		e.Tools = []registry.ToolSpec{spec.Hashed()}
		r.put(e, time.Now())
	}
	known := 0
	for i := range sessions {
		if _, _, ok := r.get(registry.Key{Tenant: "t", Session: fmt.Sprintf("s%07d", i)}); ok {
			known++
		}
	}
	if known == 0 || known > 2*routeToolBytes/50_000 {
		t.Errorf("%d of %d sessions are remembered with their tools", known, sessions)
	}
}

// countedDirectory counts how often a session is read, and cannot be read while it is away.
type countedDirectory struct {
	registry.Store
	reads int
	away  bool
}

func (d *countedDirectory) Entry(ctx context.Context, k registry.Key) (registry.Entry, error) {
	d.reads++
	if d.away {
		return registry.Entry{}, registry.StoreUnavailable("read the session", context.DeadlineExceeded)
	}
	return d.Store.Entry(ctx, k)
}

// One session costs one read, however long it is called, also while the store is away.
func TestARouteIsReadOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(memory.Options{})
		asking := startPod(t, store, "a")
		connect(t, startPod(t, store, "b"), deafConn{}, nil)
		dir := &countedDirectory{Store: asking.Router.store}
		asking.Router.store = dir
		for i := range 100 {
			dir.away = i > 50
			target := registry.Target{SessionID: "s"}
			_, err := asking.Router.Resolve(t.Context(), "t", "tool", target, registry.SelectNone)
			if err != nil {
				t.Fatalf("%d: %v", i, err)
			}
			time.Sleep(time.Second)
		}
		if dir.reads != 1 {
			t.Errorf("the session was read %d times", dir.reads)
		}
		if s := asking.Stats(); s.RoutesRead != 1 || s.RoutesRemembered != 99 {
			t.Errorf("counted %d read and %d remembered", s.RoutesRead, s.RoutesRemembered)
		}
	})
}

// A call that was checked against another definition than the device's is refused, also when the store has not heard of
// the new one: the refusal waits until it has.
func TestACallCheckedAgainstAnotherDefinitionIsRefused(t *testing.T) {
	for _, pod := range []string{"a", "b"} {
		for _, durable := range []bool{false, true} {
			t.Run(fmt.Sprintf("device on %s, durable %v", pod, durable), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store := memory.New(memory.Options{})
					pods := map[string]*Pod{"a": startPod(t, store, "a"), "b": startPod(t, store, "b")}
					device := newNotedConn()
					l := connect(t, pods[pod], device, nil)
					route, err := pods["a"].Router.Resolve(
						t.Context(), "t", "tool", registry.Target{SessionID: "s"}, registry.SelectNone)
					if err != nil {
						t.Fatal(err)
					}
					changed, err := registry.ToolSpec{
						Name: "tool", Parameters: json.RawMessage(`{"type":"object","required":["new"]}`),
					}.Normalize()
					if err != nil {
						t.Fatal(err)
					}
					if err := l.PutTools(t.Context(), []registry.ToolSpec{changed}, nil); err != nil {
						t.Fatal(err)
					}
					call := func(attempt int64) error {
						return (<-begin(t, pods["a"], route.Session, "c1", time.Second, func(c *registry.Call) {
							c.Route, c.Durable, c.Attempt = route, durable, attempt
						})).err
					}
					if err := call(0); !errors.Is(err, registry.CodeStaleRoute) ||
						registry.AsError(err).Dispatched != registry.DispatchedNo {
						t.Errorf("%v", err)
					}
					route, err = pods["a"].Router.ResolveAgain(t.Context(), route)
					if err != nil || route.Spec.Hash() != changed.Hash() {
						t.Fatalf("%+v, %v", route, err)
					}
					_ = call(1)
					if !durable && len(device.calls) != 1 { // a durable call needs a record to be claimed
						t.Errorf("%d calls reached the device", len(device.calls))
					}
				})
			})
		}
	}
}

// BenchmarkRememberedRoutes prints what a remembered session takes in memory.
func BenchmarkRememberedRoutes(b *testing.B) {
	const sessions = 50_000
	spec, err := registry.ToolSpec{Name: "tool"}.Normalize()
	if err != nil {
		b.Fatal(err)
	}
	var before, after runtime.MemStats
	for range b.N {
		runtime.GC()
		runtime.ReadMemStats(&before)
		r := newRouteCache()
		for i := range sessions {
			e := routeEntry(fmt.Sprintf("session-of-phone-%07d", i), "pod-7f9c4d")
			e.Session.UserID, e.Session.Platform = fmt.Sprintf("user-%07d", i), "android"
			e.Session.Capabilities = []string{registry.CapabilityAck, registry.CapabilityResume}
			e.Tools = []registry.ToolSpec{spec, spec, spec, spec, spec}
			r.put(e, time.Now())
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/sessions, "B/session")
		runtime.KeepAlive(r)
	}
}
