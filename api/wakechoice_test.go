package api_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/wake"
	"github.com/farhand/farhand/api"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
)

// ruler is viewers, and takes "root" for an admin who has a user.
type ruler struct{ viewers }

func (r ruler) Authenticate(ctx context.Context, req *http.Request, token string) (auth.Identity, error) {
	id, err := r.viewers.Authenticate(ctx, req, token)
	id.Admin = id.Admin || token == "root"
	return id, err
}

// Eve registers an id first. The device whose credential names the id is another user's, connected or asleep: an
// admin's PUT, GET and DELETE are about that user's registration, with and without a user of the admin. Eve's stays.
func TestAdminsReachTheBoundDevicesWake(t *testing.T) {
	for _, asleep := range []bool{false, true} {
		for _, admin := range []string{"boss", "root"} {
			t.Run(fmt.Sprint(admin, " asleep ", asleep), func(t *testing.T) {
				devices := memory.New(memory.Options{})
				w, err := wake.New(wake.Config{Store: devices, Settings: wake.Settings{WebhookSecret: wakeSecret}})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { w.Close(context.Background()) })
				k := newFleet(t, setup{change: func(c *api.Config) {
					c.Wakes, c.Devices, c.Auth = w, devices, ruler{}
				}})
				s := session("of-ben")
				s.Key.Tenant, s.UserID, s.DeviceID, s.Bound = registry.DefaultTenant, "ben", "lamp", true
				if !asleep {
					k.connect(0, s, echo)
				} else {
					k.must(devices.RememberDevices(t.Context(), []registry.DeviceMemory{{
						KnownDevice: registry.KnownDevice{Session: s, LastSeen: time.Now()}, Life: time.Hour,
					}}))
				}
				_, err = w.Register(t.Context(), registry.DefaultTenant, "eve", "lamp",
					registry.Wake{Kind: registry.WakeWebhook, URL: "https://eve.example.com/x"})
				k.must(err)
				send := func(method, body string) reply {
					return k.send(request{method: method, path: "/api/devices/lamp/wake", body: body,
						header: http.Header{"Authorization": {"Bearer " + admin}}})
				}
				send(http.MethodGet, "").want(http.StatusNotFound)
				send(http.MethodDelete, "").want(http.StatusNotFound)
				send(http.MethodPut, `{"kind":"webhook","url":"https://ben.example.com/x"}`).want(http.StatusOK)
				shown := string(send(http.MethodGet, "").want(http.StatusOK).body)
				if !strings.Contains(shown, "ben.example.com") {
					t.Errorf("shown: %s", shown)
				}
				of := func(user string) (registry.WakeRecord, error) {
					return w.Registered(t.Context(),
						registry.WakeRef{Tenant: registry.DefaultTenant, User: user, DeviceID: "lamp"})
				}
				if r, err := of("ben"); err != nil || r.Wake.URL != "https://ben.example.com/x" {
					t.Errorf("ben has %+v, %v", r, err)
				}
				send(http.MethodDelete, "").want(http.StatusNoContent)
				if r, err := of("eve"); err != nil || r.Wake.URL != "https://eve.example.com/x" {
					t.Errorf("eve has %+v, %v", r, err)
				}
			})
		}
	}
}

// pagesWithoutEnd has another page of a list after each, without a match.
type pagesWithoutEnd struct {
	registry.Directory
	registry.SleepingStore
	pages int
}

func (e *pagesWithoutEnd) List(context.Context, registry.Query) ([]registry.Entry, *registry.Cursor, error) {
	e.pages++
	return nil, &registry.Cursor{Generation: int64(e.pages)}, nil
}

func (e *pagesWithoutEnd) KnownDevices(_ context.Context, q registry.KnownQuery) ([]registry.KnownDevice, int, error) {
	e.pages++
	return nil, q.Skip + 1, nil
}

// A search among others' devices ends, however many of them have the id.
func TestTheSearchForAWakesUserEnds(t *testing.T) {
	e := &pagesWithoutEnd{}
	k := newFleet(t, setup{change: func(c *api.Config) {
		store := c.Directory.(registry.Store)
		w, err := wake.New(wake.Config{Store: store})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { w.Close(context.Background()) })
		e.Directory, e.SleepingStore = c.Directory, store
		c.Wakes, c.Directory, c.Devices, c.Credentials, c.Auth = w, e, e, store, viewers{}
	}})
	k.send(request{method: http.MethodGet, path: "/api/devices/lamp/wake",
		header: http.Header{"Authorization": {"Bearer ann"}}}).want(http.StatusNotFound)
	if e.pages == 0 || e.pages > 100 {
		t.Errorf("%d pages were read", e.pages)
	}
}

// A user sees a device without a user, but only admins say how it is woken.
func TestUsersDoNotChangeTheWakeOfASharedDevice(t *testing.T) {
	w, err := wake.New(wake.Config{
		Store: memory.New(memory.Options{}), Settings: wake.Settings{WebhookSecret: wakeSecret},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close(context.Background()) })
	k := newFleet(t, setup{change: func(c *api.Config) { c.Wakes, c.Auth = w, ruler{} }})
	s := session("shared")
	s.DeviceID = "lamp"
	k.connect(0, s, echo)
	send := func(as, method, body string) reply {
		return k.send(request{method: method, path: "/api/devices/lamp/wake", body: body,
			header: http.Header{"Authorization": {"Bearer " + as}}})
	}
	const hook = `{"kind":"webhook","url":"https://owner.example.com/x"}`
	send("boss", http.MethodPut, hook).want(http.StatusOK)
	wantProblem(send("eve", http.MethodPut, hook), http.StatusForbidden, registry.CodeForbidden)
	wantProblem(send("eve", http.MethodDelete, ""), http.StatusForbidden, registry.CodeForbidden)
	send("boss", http.MethodDelete, "").want(http.StatusNoContent)
}
