package routing

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
)

// named gives a session an id, a user and a device id, which its credential may name.
func named(session, user, device string, bound bool) func(*registry.Session) {
	return func(s *registry.Session) {
		s.Key.Session, s.UserID, s.DeviceID, s.Bound = session, user, device, bound
	}
}

// A device whose credential names it is found among any number of sessions that chose its id. If it does not offer the
// tool, no other session gets the call.
func TestADeviceIsFoundAmongManyOfItsID(t *testing.T) {
	pod := startPod(t, memory.New(memory.Options{}), "a")
	for i := range maxOneDevice + 20 {
		copied := named(fmt.Sprint("copy", i), fmt.Sprint("eve", i%2), "lamp", false)
		connect(t, pod, deafConn{}, copied, testTool(t, "other"))
	}
	connect(t, pod, deafConn{}, named("real", "anna", "lamp", true))
	resolve := func(tool, viewer string) (registry.Route, error) {
		target := registry.Target{DeviceID: "lamp", Viewer: viewer}
		return pod.Router.Resolve(t.Context(), "t", tool, target, registry.SelectNone)
	}
	for _, viewer := range []string{"", "anna"} {
		if route, err := resolve("tool", viewer); err != nil || route.Session.Key.Session != "real" {
			t.Errorf("viewer %q: %+v, %v", viewer, route.Session.Key, err)
		}
		if route, err := resolve("other", viewer); !errors.Is(err, registry.CodeToolNotFound) {
			t.Errorf("viewer %q: a session that chose the id gets the call: %+v, %v", viewer, route.Session.Key, err)
		}
	}
}

// The pod of a device is told of its queued calls, however many newer sessions of others have its id.
func TestADevicesSessionIsFoundAmongNewerOnes(t *testing.T) {
	pod := startPod(t, memory.New(memory.Options{}), "a")
	for session, of := range map[string]struct {
		user  string
		bound bool
	}{"of-ann": {user: "ann"}, "nobodys": {}, "real": {"ben", true}} {
		connect(t, pod, deafConn{}, named(session, of.user, "lamp", of.bound))
	}
	for i := range 3 * maxQueueLook {
		connect(t, pod, deafConn{}, named(fmt.Sprint("copy", i), "eve", "lamp", false))
	}
	for session, key := range map[string]string{"of-ann": "u3:annlamp", "nobodys": "u0:lamp", "real": "blamp"} {
		found, err := pod.Queue.sessionsOf(t.Context(), "t", key)
		if err != nil || len(found) != 1 || found[0].Session.Key.Session != session {
			t.Errorf("%s: %d sessions, %v", key, len(found), err)
		}
	}
	for _, key := range []string{"", "u", "u3:ann", "u9:annlamp", "ux:lamp"} { // of no device
		if of := registry.TargetOfKey(key); of.DeviceID != "" {
			t.Errorf("%q: %+v", key, of)
		}
	}
}

// A user's sleeping device is found by its label among many of another user, and one that its credential names among
// those that chose its id.
func TestASleepingDeviceIsFoundAmongMany(t *testing.T) {
	store := memory.New(memory.Options{})
	pod := startPod(t, store, "a")
	remember := func(user, id string, bound bool, tool string) {
		s := registry.Session{
			Key: registry.Key{Tenant: "t", Session: "s-" + id}, DeviceID: id, UserID: user, Bound: bound,
			Labels: map[string]string{"room": "kitchen"},
		}
		known := registry.KnownDevice{Session: s, Tools: []registry.ToolSpec{testTool(t, tool)}, LastSeen: time.Now()}
		device := registry.DeviceMemory{Life: time.Hour, KnownDevice: known}
		if err := store.RememberDevices(t.Context(), []registry.DeviceMemory{device}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range maxOneDevice + 20 {
		remember("eve", fmt.Sprint("e", i), false, "tool")
		remember(fmt.Sprint("eve", i), "lamp", false, "tool")
		remember("", fmt.Sprint("n", i), false, "other")
	}
	remember("ann", "phone", false, "tool")
	remember("ben", "lamp", true, "tool")
	for _, test := range []struct {
		target registry.Target
		want   string // user of the device
	}{
		{registry.Target{Labels: map[string]string{"room": "kitchen"}, Viewer: "ann"}, "ann"},
		{registry.Target{DeviceID: "lamp"}, "ben"},
		{registry.Target{DeviceID: "lamp", Viewer: "ben"}, "ben"},
	} {
		d, err := pod.Queue.Known(t.Context(), "t", "tool", test.target)
		if err != nil || d.Session.UserID != test.want {
			t.Errorf("%+v: %q of %q, %v", test.target, d.Session.DeviceID, d.Session.UserID, err)
		}
	}
	if d, err := pod.Queue.Known(t.Context(), "t", "other", registry.Target{DeviceID: "lamp"}); !errors.Is(err,
		registry.CodeToolNotFound) {
		t.Errorf("a device that chose the id: %+v, %v", d.Session, err)
	}
}
