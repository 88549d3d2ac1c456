package ws_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/ws"
)

// boundAuth reads role, user and device from a token: "device/anna/phone".
type boundAuth struct{}

func (boundAuth) Authenticate(_ context.Context, _ *http.Request, token string) (auth.Identity, error) {
	parts := strings.Split(token, "/")
	id := auth.Identity{Tenant: registry.DefaultTenant, User: parts[1], Device: parts[2]}
	return id, id.SetRoles(parts[0])
}

func newBound(t *testing.T) *gateway {
	return newGateway(t, func(c *ws.Config) { c.Auth = boundAuth{} })
}

// A device is the one that its credential names, whether it says so or not, and cannot say that it is another.
func TestDeviceOfTheCredential(t *testing.T) {
	t.Parallel()
	g := newBound(t)
	d := g.dialAs("device/anna/phone", query("session_id", "s1"))
	d.expect("session_start")
	if s := g.session("s1").Session(); s.DeviceID != "phone" || !s.Bound || s.UserID != "anna" {
		t.Errorf("before connect: %+v", s)
	}
	d.send(`{"type":"connect","device_id":"phone","device_name":"Anna's"}`)
	d.expect("connected")
	d.send(`{"type":"connect","device_id":""}`)
	d.expect("connected")
	if s := g.session("s1").Session(); s.DeviceID != "phone" || !s.Bound {
		t.Errorf("after connect: %+v", s)
	}
	d.send(`{"type":"connect","device_id":"tablet"}`)
	d.expectError("SESSION_OWNER_MISMATCH", "device_id")
	d.expectClose(ws.CloseOwnerMismatch)

	first := g.dialAs("device/anna/phone", query("session_id", "s2"))
	first.expect("session_start")
	first.send(`{"type":"connect","device_id":"tablet"}`)
	first.expectError("SESSION_OWNER_MISMATCH", "device_id")
	first.expectClose(ws.CloseOwnerMismatch)
}

// gone waits until a session is released.
func (g *gateway) gone(session string) {
	g.t.Helper()
	eventually(g.t, "the session is released", func() bool {
		_, err := g.store.Entry(g.t.Context(), registry.Key{Tenant: registry.DefaultTenant, Session: session})
		return errors.Is(err, registry.CodeNotConnected)
	})
}

// A session belongs to the user and the device that claimed it, while it lives and after that.
func TestSessionsOfDevices(t *testing.T) {
	t.Parallel()
	g := newBound(t)
	for _, id := range []string{"live", "gone"} {
		d := g.dialAs("device/anna/phone", query("session_id", id))
		d.expect("session_start")
		if id == "gone" {
			_ = d.conn.Close()
			g.gone(id)
		}
		for _, other := range []string{"device/anna/tablet", "device/anna/", "device/ben/phone", "device//phone",
			"device//", "admin/ben/"} {
			status, problem, _ := g.refusal(query("session_id", id, "token", other), nil)
			if status != http.StatusNotFound || problem["code"] != string(registry.CodeSessionNotFound) {
				t.Errorf("%s session, %s: %d %v", id, other, status, problem)
			}
			moving := g.dialAs(other, "")
			moving.expect("session_start")
			moving.send(`{"type":"connect","session_id":"` + id + `"}`)
			moving.expectError("SESSION_OWNER_MISMATCH", "session_id")
			moving.expectClose(ws.CloseOwnerMismatch)
		}
	}
	back := g.dialAs("device/anna/phone", query("session_id", "gone"))
	back.expect("session_start")
	_ = back.conn.Close()
	g.gone("gone")
	g.dialAs("admin//", query("session_id", "gone")).expect("session_start")
	if s := g.session("gone").Session(); s.UserID != "anna" || s.Bound {
		t.Errorf("as an admin has it: %+v", s)
	}
}

// A conversation is kept for longer than its session is remembered, and belongs to the same user and device.
func TestConversationsOfForgottenSessions(t *testing.T) {
	t.Parallel()
	g := newBound(t)
	for id, owner := range map[string]registry.Owner{
		"bound": {UserID: "anna", DeviceID: "phone", Bound: true}, "user": {UserID: "anna", DeviceID: "phone"},
		"device": {DeviceID: "phone", Bound: true},
	} {
		key := registry.Key{Tenant: registry.DefaultTenant, Session: id}
		turn, err := g.store.BeginTurn(t.Context(), key, time.Minute)
		if err == nil {
			err = g.store.SetOwner(t.Context(), turn, owner)
		}
		if err == nil {
			_, err = g.store.AppendMessages(t.Context(), turn, json.RawMessage(`{"role":"user","content":"secret"}`))
		}
		if err = errors.Join(err, g.store.EndTurn(t.Context(), turn)); err != nil {
			t.Fatal(err)
		}
	}
	for id, others := range map[string][]string{
		"bound": {"device//", "device/bob/", "device/anna/", "device/anna/tablet", "device//tablet"},
		"user":  {"device/bob/"}, "device": {"device//", "device/anna/", "device//tablet"},
	} {
		for _, other := range others {
			status, _, _ := g.refusal(query("session_id", id, "token", other), nil)
			if status != http.StatusNotFound {
				t.Errorf("%s, by %s: %d", id, other, status)
			}
		}
	}
	g.dialAs("device/anna/phone", query("session_id", "bound")).expect("session_start")
	g.dialAs("device/anna/", query("session_id", "user")).expect("session_start")
	g.dialAs("device//phone", query("session_id", "device")).expect("session_start")
}

func TestSocketsNeedTheRoleDevice(t *testing.T) {
	t.Parallel()
	g := newBound(t)
	for _, role := range []string{"caller", "approver"} {
		status, problem, _ := g.refusal(query("token", role+"/anna/"), nil)
		if detail, _ := problem["detail"].(string); status != http.StatusForbidden ||
			!strings.Contains(detail, "role device") {
			t.Errorf("%s: %d %v", role, status, problem)
		}
	}
	g.dialAs("admin//", "").expect("session_start")
}

// The address of the list of running sessions is no session's.
func TestReservedSession(t *testing.T) {
	t.Parallel()
	g := newBound(t)
	status, problem, _ := g.refusal(query("session_id", "running", "token", "device/anna/"), nil)
	if status != http.StatusBadRequest || problem["code"] != string(registry.CodeInvalidRequest) {
		t.Errorf("%d %v", status, problem)
	}
	d := g.dialAs("device/anna/", "")
	d.expect("session_start")
	d.send(`{"type":"connect","session_id":"running"}`)
	d.expectError("INVALID_MESSAGE", "running")
}
