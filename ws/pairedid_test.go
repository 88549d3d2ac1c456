package ws_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent/access/pairing"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
	"github.com/farhand/farhand/ws"
)

// newPaired returns a gateway whose store has paired devices, and what pairs another one.
func newPaired(t *testing.T, changes ...func(*ws.Config)) (g *gateway, pair func(id string) registry.Credential) {
	t.Helper()
	store := memory.New(memory.Options{})
	service, err := pairing.New(pairing.Config{Store: store})
	must(t, err)
	g = newGatewayOn(t, store, append([]func(*ws.Config){func(c *ws.Config) {
		c.Auth, c.Pairing = boundAuth{}, service
	}}, changes...)...)
	return g, func(id string) registry.Credential {
		c, err := store.CreateCredential(t.Context(), registry.Credential{
			Tenant: registry.DefaultTenant, ID: id, Kind: registry.CredentialDevice, DeviceID: id,
			Digest: fmt.Sprintf("%064x", id),
		})
		must(t, err)
		return c
	}
}

// sessionsOf returns the ids of the sessions that a call to a device may reach.
func (g *gateway) sessionsOf(device string) string {
	g.t.Helper()
	page, _, err := g.store.List(g.t.Context(), registry.Query{
		Tenant: registry.DefaultTenant, Target: registry.Target{DeviceID: device},
	})
	must(g.t, err)
	var ids []string
	for _, e := range page {
		ids = append(ids, e.Session.Key.Session)
	}
	return strings.Join(ids, " ")
}

// Nobody is a paired device but whoever has its credential: neither an admin, nor another user, nor the same one.
func TestPairedDeviceIDsAreTaken(t *testing.T) {
	t.Parallel()
	g, pair := newPaired(t)
	pair("phone")
	for _, token := range []string{"device/bob/", "device//", "admin//", "device/anna/"} {
		first := g.dialAs(token, "")
		first.expect("session_start")
		first.send(`{"type":"connect","device_id":"phone"}`)
		first.expectError("SESSION_OWNER_MISMATCH", "paired")
		first.expectClose(ws.CloseOwnerMismatch)
		g.waitReleased()

		later := g.dialAs(token, "")
		later.expect("session_start")
		later.send(`{"type":"connect","device_id":"another"}`)
		later.expect("connected")
		later.send(`{"type":"connect","device_id":"phone"}`)
		later.expectError("SESSION_OWNER_MISMATCH", "paired")
		later.expectClose(ws.CloseOwnerMismatch)
		g.waitReleased()
	}
	if got := g.sessionsOf("phone"); got != "" {
		t.Errorf("calls to the device may reach %s", got)
	}
	real := g.dialAs("device/anna/phone", query("session_id", "real"))
	real.expect("session_start")
	real.send(`{"type":"connect","device_id":"phone"}`)
	real.expect("connected")
	if got := g.sessionsOf("phone"); got != "real" {
		t.Errorf("calls to the device may reach %q", got)
	}
}

// A device of today says who it is as before, as long as nobody has paired its id. When somebody has, it is that device
// no longer, on any pod; one with another id stays.
func TestDeviceWhoseIDIsPairedLater(t *testing.T) {
	t.Parallel()
	g, pair := newPaired(t)
	connect := func(token, id string) *device {
		d := g.dialAs(token, query("session_id", id+"-session"))
		d.expect("session_start")
		d.send(`{"type":"connect","device_id":"` + id + `"}`)
		d.expect("connected")
		return d
	}
	phone, tablet := connect("admin//", "phone"), connect("admin//", "tablet")
	bound := connect("device/anna/watch", "watch")
	if got := g.sessionsOf("phone"); got != "phone-session" {
		t.Fatalf("before: %q", got)
	}
	change := func(id string, revoked bool) {
		g.server.CredentialsChanged([]registry.CredentialChange{{
			Tenant: registry.DefaultTenant, Kind: registry.ChangeDevice, ID: id, Revoked: revoked,
		}})
	}
	pair("phone")
	pair("watch")
	change("tablet", false) // as read again from an old log: nobody has it paired now
	change("tablet", true)
	change("watch", false)
	change("phone", false)
	phone.expectError("SESSION_OWNER_MISMATCH", "paired")
	phone.expectClose(ws.CloseOwnerMismatch)
	if s := g.waitReleased(); s.Key.Session != "phone-session" {
		t.Errorf("%s is gone", s.Key.Session)
	}
	tablet.alive()
	bound.alive()
}

// latePairing pairs a device just after it was asked whether somebody has.
type latePairing struct {
	ws.Pairing
	after func()
}

func (l *latePairing) Paired(ctx context.Context, tenant, id string) (bool, error) {
	paired, err := l.Pairing.Paired(ctx, tenant, id)
	if l.after != nil {
		after := l.after
		l.after = nil
		after()
	}
	return paired, err
}

// A pairing that comes while a device says that it has the id is not missed.
func TestDeviceWhoseIDIsPairedMeanwhile(t *testing.T) {
	t.Parallel()
	late := &latePairing{}
	g, pair := newPaired(t, func(c *ws.Config) { late.Pairing, c.Pairing = c.Pairing, late })
	late.after = func() {
		pair("phone")
		g.server.CredentialsChanged([]registry.CredentialChange{{
			Tenant: registry.DefaultTenant, Kind: registry.ChangeDevice, ID: "phone",
		}})
	}
	d := g.dialAs("admin//", query("session_id", "s1"))
	d.expect("session_start")
	d.send(`{"type":"connect","device_id":"phone"}`)
	d.expectError("SESSION_OWNER_MISMATCH", "paired")
	d.expectClose(ws.CloseOwnerMismatch)
}

// Nobody knows whether an id is paired while the store is away: the device comes back.
func TestPairedDeviceIDsWithoutAStore(t *testing.T) {
	t.Parallel()
	g, _ := newPaired(t, func(c *ws.Config) { c.Pairing = awayApprovals{c.Pairing} })
	d := g.dialAs("admin//", query("session_id", "s1"))
	d.expect("session_start")
	d.send(`{"type":"connect","device_id":"phone"}`)
	d.expectClose(ws.CloseUnavailable)
	unnamed := g.dialAs("admin//", query("session_id", "s2"))
	unnamed.expect("session_start")
	unnamed.send(`{"type":"connect"}`)
	unnamed.expect("connected")
}

// awayApprovals does not know which devices are paired.
type awayApprovals struct{ ws.Pairing }

func (awayApprovals) Paired(context.Context, string, string) (bool, error) {
	return false, registry.StoreUnavailable("look up paired devices", context.DeadlineExceeded)
}
