package routing

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
)

// notedConn is a device that never answers and notes that it was asked.
type notedConn struct {
	deafConn
	calls chan DeviceCall
}

func newNotedConn() notedConn { return notedConn{calls: make(chan DeviceCall, 8)} }

func (notedConn) Ping(answered func()) { answered() }

func (notedConn) Owner() share.Owner { return share.Owner{} }

func (notedConn) Pulse() registry.Pulse { return registry.Pulse{} }

func (c notedConn) Deliver(d DeviceCall) error {
	c.calls <- d
	return nil
}

func ofUser(user string) func(*registry.Session) {
	return func(s *registry.Session) {
		s.AnyOwner = true // it may have been another's a moment ago
		s.UserID, s.DeviceID, s.Labels = user, "phone of "+user, map[string]string{"of": user}
	}
}

// targetsOf are targets that mean session s as long as it is the user's.
func targetsOf(user string) map[string]registry.Target {
	return map[string]registry.Target{
		"user":   {SessionID: "s", UserID: user},
		"device": {SessionID: "s", DeviceID: "phone of " + user},
		"label":  {SessionID: "s", Labels: map[string]string{"of": user}},
	}
}

// Who asks for more than the id of a session is not answered from memory, although another caller may be.
func TestMemoryIsNotForWhoAsksForMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(memory.Options{})
		asking, owning := startPod(t, store, "a"), startPod(t, store, "b")
		resolve := func(target registry.Target) (registry.Route, error) {
			return asking.Router.Resolve(t.Context(), "t", "tool", target, registry.SelectNone)
		}
		l := connect(t, owning, deafConn{}, ofUser("anna"))
		for name, target := range targetsOf("anna") {
			if route, err := resolve(target); err != nil || route.Remembered {
				t.Errorf("%s: %+v, %v", name, route, err)
			}
		}
		if route, err := resolve(registry.Target{SessionID: "s"}); err != nil || !route.Remembered ||
			route.Session.UserID != "anna" {
			t.Errorf("by id alone: %+v, %v", route, err)
		}
		seen := registry.Target{SessionID: "s", Viewer: "anna"}
		if route, err := resolve(seen); err != nil || !route.Remembered {
			t.Errorf("by id, of anna: %+v, %v", route, err)
		}
		hidden := registry.Target{SessionID: "s", Viewer: "bert"}
		if route, err := resolve(hidden); !errors.Is(err, registry.CodeSessionNotFound) ||
			err.Error() != registry.UnknownSession().With(registry.DispatchedNo).Error() {
			t.Errorf("what the pod remembers for anna exists for bert: %+v, %v", route, err)
		}
		l.Close(t.Context())
		if _, err := resolve(hidden); !errors.Is(err, registry.CodeSessionNotFound) {
			t.Errorf("that the session was anna's is known to bert: %v", err)
		}
		connect(t, owning, deafConn{}, ofUser("bert"))
		for name, target := range targetsOf("anna") {
			if route, err := resolve(target); !errors.Is(err, registry.CodeSessionNotFound) {
				t.Errorf("%s: %+v, %v", name, route, err)
			}
		}
	})
}

// A device whose credential names it gets the calls for its id, although others that chose the same id came before.
func TestADeviceIDMeansTheDeviceOfItsCredential(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(memory.Options{})
		asking, owning := startPod(t, store, "a"), startPod(t, store, "b")
		named := func(session, user string, bound bool) func(*registry.Session) {
			return func(s *registry.Session) {
				s.Key.Session, s.UserID, s.DeviceID, s.Bound = session, user, "lamp", bound
			}
		}
		for i := range 30 {
			connect(t, owning, deafConn{}, named(fmt.Sprint("copy", i), "", false))
			time.Sleep(time.Second)
		}
		target := registry.Target{DeviceID: "lamp", Viewer: "anna"}
		if route, err := asking.Router.Resolve(t.Context(), "t", "tool", target, registry.SelectNone); err == nil {
			t.Errorf("several devices chose an id: %+v", route.Session)
		}
		connect(t, owning, deafConn{}, named("real", "anna", true))
		for _, sel := range []registry.Select{registry.SelectNone, registry.SelectAny, registry.SelectNewest} {
			route, err := asking.Router.Resolve(t.Context(), "t", "tool", target, sel)
			if err != nil || route.Session.Key.Session != "real" {
				t.Errorf("select %q: %+v, %v", sel, route.Session.Key, err)
			}
		}
	})
}

// A session that becomes another user's between choosing and calling does not get the call; the same user's does. If
// nobody asked for more than the id, anybody's gets it, but only once hooks have decided on who that is.
func TestCallReachesNobodyElse(t *testing.T) {
	for name, tt := range map[string]struct {
		target  registry.Target
		user    string // who has the session by the time of the call
		pod     string // where
		reaches bool
	}{
		"another user":              {registry.Target{SessionID: "s", UserID: "anna"}, "bert", "b", false},
		"another user, another pod": {registry.Target{SessionID: "s", UserID: "anna"}, "bert", "c", false},
		"another user, here":        {registry.Target{SessionID: "s", UserID: "anna"}, "bert", "a", false},
		"another device":            {registry.Target{DeviceID: "phone of anna"}, "bert", "b", false},
		"a user sees no other's":    {registry.Target{SessionID: "s", Viewer: "anna"}, "bert", "b", false},
		"nor that has moved":        {registry.Target{SessionID: "s", Viewer: "anna"}, "bert", "c", false},
		"nor that is here":          {registry.Target{SessionID: "s", Viewer: "anna"}, "bert", "a", false},
		"a user's own":              {registry.Target{SessionID: "s", Viewer: "anna"}, "anna", "c", true},
		"the same user":             {registry.Target{SessionID: "s", UserID: "anna"}, "anna", "b", true},
		"the same user, elsewhere":  {registry.Target{UserID: "anna"}, "anna", "c", true},
		"whoever has it":            {registry.Target{SessionID: "s"}, "bert", "b", true},
		"whoever has it, elsewhere": {registry.Target{SessionID: "s"}, "bert", "c", true},
		"whoever has it, here":      {registry.Target{SessionID: "s"}, "bert", "a", true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memory.New(memory.Options{})
				pods := map[string]*Pod{"a": startPod(t, store, "a"), "b": startPod(t, store, "b"),
					"c": startPod(t, store, "c")}
				l := connect(t, pods["b"], deafConn{}, ofUser("anna"))
				route, err := pods["a"].Router.Resolve(t.Context(), "t", "tool", tt.target, registry.SelectNone)
				if err != nil {
					t.Fatal(err)
				}
				if tt.user != "anna" { // for whom a session somebody else has does not exist
					l.Close(t.Context())
				}
				now := newNotedConn()
				connect(t, pods[tt.pod], now, ofUser(tt.user))
				call := func(attempt int64) *registry.Error {
					return registry.AsError((<-begin(t, pods["a"], route.Session, "c1", time.Second,
						func(c *registry.Call) { c.Route, c.Attempt = route, attempt })).err)
				}
				got := call(0)
				stale := errors.Is(got, registry.CodeStaleRoute)
				if tt.reaches && tt.user != "anna" && !stale || stale && len(now.calls) != 0 {
					t.Errorf("the first attempt: %+v; %d calls reached the device", got, len(now.calls))
				} else if stale {
					if route, err = pods["a"].Router.ResolveAgain(t.Context(), route); err != nil {
						got = registry.AsError(err)
					} else {
						got = call(1)
					}
				}
				if tt.reaches != (len(now.calls) == 1) || len(now.calls) > 1 {
					t.Errorf("%d calls reached the device", len(now.calls))
				}
				if !tt.reaches && (got.Code != registry.CodeSessionNotFound ||
					got.Dispatched != registry.DispatchedNo) || tt.reaches && got.Code != registry.CodeTimeout {
					t.Errorf("%+v", got)
				}
			})
		})
	}
}

func TestRefreshReadsWhatIsTrueNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(memory.Options{})
		asking, owning := startPod(t, store, "a"), startPod(t, store, "b")
		l := connect(t, owning, deafConn{}, nil)
		resolve := func() registry.Route {
			route, err := asking.Router.Resolve(t.Context(), "t", "tool", registry.Target{SessionID: "s"},
				registry.SelectNone)
			if err != nil {
				t.Fatal(err)
			}
			return route
		}
		resolve()
		changed, err := registry.ToolSpec{Name: "tool",
			Parameters: json.RawMessage(`{"type":"object","required":["new"]}`)}.Normalize()
		if err != nil {
			t.Fatal(err)
		}
		if err := l.PutTools(t.Context(), []registry.ToolSpec{changed}, nil); err != nil {
			t.Fatal(err)
		}
		old := resolve()
		fresh, err := asking.Router.ResolveAgain(t.Context(), old)
		if err != nil || !old.Remembered || fresh.Remembered ||
			string(fresh.Spec.Parameters) != string(changed.Parameters) {
			t.Errorf("%+v of %+v, %v", fresh, old, err)
		}
		if next := resolve(); string(next.Spec.Parameters) != string(changed.Parameters) {
			t.Errorf("what was read is not remembered: %+v", next)
		}
		l.Close(t.Context())
		if _, err := asking.Router.ResolveAgain(t.Context(), old); !errors.Is(err, registry.CodeNotConnected) ||
			registry.AsError(err).Dispatched != registry.DispatchedNo {
			t.Errorf("of a device that has gone: %v", err)
		}
	})
}

// A call to a remembered session that is elsewhere, or does not have the tool any more, is for its caller to decide on
// anew: the session may be another one by now.
func TestARememberedRouteThatIsStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(memory.Options{})
		asking, before, now := startPod(t, store, "a"), startPod(t, store, "b"), startPod(t, store, "c")
		old := connect(t, before, deafConn{}, nil)
		remembered := func(c *registry.Call) { c.Route.Remembered = true }
		route := old.Session()
		if err := old.PutTools(t.Context(), nil, []string{"tool"}); err != nil {
			t.Fatal(err)
		}
		got := <-begin(t, asking, route, "c1", time.Second, remembered)
		if !errors.Is(got.err, registry.CodeStaleRoute) {
			t.Errorf("a tool that is gone: %+v", got)
		}
		device := newNotedConn()
		connect(t, now, device, nil)
		synctest.Wait()
		before.Hub.adopt(old) // as if the eviction were still on its way
		got = <-begin(t, asking, route, "c2", time.Second, remembered)
		if !errors.Is(got.err, registry.CodeStaleRoute) || len(device.calls) != 0 {
			t.Errorf("a session that moved: %+v; %d calls reached the device", got, len(device.calls))
		}
		fresh, err := asking.Router.ResolveAgain(t.Context(), registry.Route{
			Session: route, Spec: registry.ToolSpec{Name: "tool"}, Target: registry.Target{SessionID: "s"},
		})
		if err != nil {
			t.Fatal(err)
		}
		<-begin(t, asking, route, "c2", time.Second, func(c *registry.Call) { c.Route, c.Attempt = fresh, 1 })
		if len(device.calls) != 1 {
			t.Errorf("%d calls reached the device", len(device.calls))
		}
	})
}

// A remembered session that became another user's on the same pod, or said something else about itself since, does not
// get the call: hooks decided on what it was.
func TestARememberedSessionThatIsAnother(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, pod *Pod, l *LocalSession){
		"another claim": func(t *testing.T, pod *Pod, l *LocalSession) {
			l.Close(t.Context())
			connect(t, pod, newNotedConn(), ofUser("bert"))
		},
		"other labels": func(t *testing.T, _ *Pod, l *LocalSession) {
			relabel := func(s *registry.Session) { s.Labels = map[string]string{"of": "all"} }
			if err := l.Update(t.Context(), relabel); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memory.New(memory.Options{})
				asking, owning := startPod(t, store, "a"), startPod(t, store, "b")
				device := newNotedConn()
				l := connect(t, owning, device, ofUser("anna"))
				resolve := func() registry.Route {
					t.Helper()
					route, err := asking.Router.Resolve(t.Context(), "t", "tool", registry.Target{SessionID: "s"},
						registry.SelectNone)
					if err != nil {
						t.Fatal(err)
					}
					return route
				}
				resolve()
				call := func(route registry.Route) error {
					return (<-begin(t, asking, route.Session, registry.NewCallID(), time.Second,
						func(c *registry.Call) { c.Route = route })).err
				}
				if route := resolve(); !route.Remembered || !errors.Is(call(route), registry.CodeTimeout) {
					t.Fatalf("%+v is not remembered, or does not reach the device", route)
				}
				resolve() // read anew: a timeout ends a route
				time.Sleep(time.Hour)
				change(t, owning, l)
				route := resolve()
				if !route.Remembered {
					t.Fatal("the route is not remembered")
				}
				if err := call(route); !errors.Is(err, registry.CodeStaleRoute) || len(device.calls) != 1 {
					t.Errorf("%v; %d calls reached the device", err, len(device.calls))
				}
				if next := resolve(); next.Remembered || next.Session.Labels["of"] == "anna" {
					t.Errorf("the next call decides on %+v", next)
				}
			})
		})
	}
}
