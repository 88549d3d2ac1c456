package routing

import (
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"
	"time"

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

func (c notedConn) Deliver(d DeviceCall) error {
	c.calls <- d
	return nil
}

func ofUser(user string) func(*registry.Session) {
	return func(s *registry.Session) {
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
		if route, err := resolve(registry.Target{SessionID: "s"}); err != nil || !route.Remembered || route.Session.UserID != "anna" {
			t.Errorf("by id alone: %+v, %v", route, err)
		}
		l.Close(t.Context()) // or it would not exist for bert
		connect(t, owning, deafConn{}, ofUser("bert"))
		for name, target := range targetsOf("anna") {
			if route, err := resolve(target); !errors.Is(err, registry.CodeSessionNotFound) {
				t.Errorf("%s: %+v, %v", name, route, err)
			}
		}
	})
}

// A session that becomes another user's between choosing and calling does not get the call; the same user's does, and
// so does anybody's if nobody asked for more than the id.
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
		"the same user":             {registry.Target{SessionID: "s", UserID: "anna"}, "anna", "b", true},
		"the same user, elsewhere":  {registry.Target{UserID: "anna"}, "anna", "c", true},
		"whoever has it":            {registry.Target{SessionID: "s"}, "bert", "b", true},
		"whoever has it, elsewhere": {registry.Target{SessionID: "s"}, "bert", "c", true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memory.New(memory.Options{})
				pods := map[string]*Pod{"a": startPod(t, store, "a"), "b": startPod(t, store, "b"), "c": startPod(t, store, "c")}
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
				ended := begin(t, pods["a"], route.Session, "c1", time.Second, func(c *registry.Call) { c.Route = route })
				got := registry.AsError((<-ended).err)
				if tt.reaches != (len(now.calls) == 1) || len(now.calls) > 1 {
					t.Errorf("%d calls reached the device", len(now.calls))
				}
				if !tt.reaches && (got.Code != registry.CodeSessionNotFound || got.Dispatched != registry.DispatchedNo) || tt.reaches && got.Code != registry.CodeTimeout {
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
			route, err := asking.Router.Resolve(t.Context(), "t", "tool", registry.Target{SessionID: "s"}, registry.SelectNone)
			if err != nil {
				t.Fatal(err)
			}
			return route
		}
		resolve()
		changed, err := registry.ToolSpec{Name: "tool", Parameters: json.RawMessage(`{"type":"object","required":["new"]}`)}.Normalize()
		if err != nil {
			t.Fatal(err)
		}
		if err := l.PutTools(t.Context(), []registry.ToolSpec{changed}, nil); err != nil {
			t.Fatal(err)
		}
		old := resolve()
		fresh, err := asking.Router.Refresh(t.Context(), old)
		if err != nil || !old.Remembered || fresh.Remembered || string(fresh.Spec.Parameters) != string(changed.Parameters) {
			t.Errorf("%+v of %+v, %v", fresh, old, err)
		}
		if next := resolve(); string(next.Spec.Parameters) != string(changed.Parameters) {
			t.Errorf("what was read is not remembered: %+v", next)
		}
		l.Close(t.Context())
		if _, err := asking.Router.Refresh(t.Context(), old); !errors.Is(err, registry.CodeNotConnected) || registry.AsError(err).Dispatched != registry.DispatchedNo {
			t.Errorf("of a device that has gone: %v", err)
		}
	})
}

// A remembered pod that has not noticed yet that the session moved may not have the tool the session has there.
func TestRememberedPodWithoutTheTool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(memory.Options{})
		asking, before, now := startPod(t, store, "a"), startPod(t, store, "b"), startPod(t, store, "c")
		old := connect(t, before, deafConn{}, nil)
		remembered := func(c *registry.Call) { c.Route.Remembered = true }
		route := old.Session()
		if err := old.PutTools(t.Context(), nil, []string{"tool"}); err != nil {
			t.Fatal(err)
		}
		if got := <-begin(t, asking, route, "c1", time.Second, remembered); !errors.Is(got.err, registry.CodeToolNotFound) {
			t.Errorf("a tool that is gone: %+v", got)
		}
		device := newNotedConn()
		connect(t, now, device, nil)
		synctest.Wait()
		before.Hub.adopt(old) // as if the eviction were still on its way
		<-begin(t, asking, route, "c2", time.Second, remembered)
		if len(device.calls) != 1 {
			t.Errorf("%d calls reached the device", len(device.calls))
		}
	})
}
