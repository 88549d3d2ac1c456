package api_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/wake"
	"github.com/farhand/farhand/api"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
)

const wakeSecret = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="

// notedWakes notes for which user a device is registered.
type notedWakes struct {
	api.Wakes
	user string
}

func (w *notedWakes) Register(ctx context.Context, tenant, user, id string, r registry.Wake) (registry.Wake, error) {
	w.user = user
	return w.Wakes.Register(ctx, tenant, user, id, r)
}

// viewers takes a user's name for a token; the boss is an admin without a user.
type viewers struct{}

func (viewers) Authenticate(_ context.Context, _ *http.Request, token string) (auth.Identity, error) {
	if token == "boss" {
		return auth.Identity{
			Tenant: registry.DefaultTenant, Roles: auth.RoleApprover, Admin: true, Credential: "key:boss",
		}, nil
	}
	return auth.Identity{
		Tenant: registry.DefaultTenant, User: token, Roles: auth.RoleCaller, Credential: "key:" + token,
	}, nil
}

// A caller registers how the own device is woken, however many other users have devices with its id: connected, or
// asleep. An admin registers the device whose credential names the id.
func TestAWakeIsOfTheRightDevice(t *testing.T) {
	for _, asleep := range []bool{false, true} {
		t.Run(fmt.Sprint("asleep ", asleep), func(t *testing.T) {
			noted, devices := &notedWakes{}, memory.New(memory.Options{})
			k := newFleet(t, setup{change: func(c *api.Config) {
				w, err := wake.New(wake.Config{Store: devices, Settings: wake.Settings{WebhookSecret: wakeSecret}})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { w.Close(context.Background()) })
				noted.Wakes, c.Wakes, c.Devices, c.Auth = w, noted, devices, viewers{}
			}})
			device := func(user, id string, bound bool) {
				s := session("of-" + user + id)
				s.Key.Tenant, s.UserID, s.DeviceID, s.Bound = registry.DefaultTenant, user, id, bound
				if !asleep {
					k.connect(0, s, echo)
					return
				}
				k.must(devices.RememberDevices(t.Context(), []registry.DeviceMemory{{
					KnownDevice: registry.KnownDevice{Session: s, LastSeen: time.Now()}, Life: time.Hour,
				}}))
			}
			for i := range 20 {
				device(fmt.Sprint("eve", i), "phone", false)
				device(fmt.Sprint("eve", i), "lamp", false)
			}
			device("", "phone", false)
			device("ann", "phone", false)
			device("ben", "lamp", true)
			for _, test := range []struct{ who, device, want string }{
				{"ann", "phone", "ann"}, {"boss", "lamp", "ben"}, {"ben", "lamp", "ben"},
			} {
				noted.user = "-"
				r := k.send(request{method: http.MethodPut, path: "/api/devices/" + test.device + "/wake",
					body:   `{"kind":"webhook","url":"https://push.example.com/x"}`,
					header: http.Header{"Authorization": {"Bearer " + test.who}}})
				if r.status != http.StatusOK || noted.user != test.want {
					t.Errorf("%s registers %s for %q: %d %s", test.who, test.device, noted.user, r.status, r.body)
				}
			}
		})
	}
}
