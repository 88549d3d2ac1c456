package ws_test

import (
	"context"
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/ws"
)

// namedAuth takes every token for the name of its user.
type namedAuth struct{}

func (namedAuth) Authenticate(_ context.Context, _ *http.Request, token string) (auth.Identity, error) {
	return auth.Identity{Tenant: registry.DefaultTenant, User: token, Roles: auth.RoleDevice}, nil
}

// dialAs is dial with a token of one's own.
func (g *gateway) dialAs(user, query string) *device {
	g.t.Helper()
	conn, _, err := websocket.DefaultDialer.Dial(g.url(query), http.Header{"Authorization": {"Bearer " + user}})
	must(g.t, err)
	d := &device{t: g.t, conn: conn}
	g.t.Cleanup(func() { _ = conn.Close() })
	return d
}

// TestSessionsOfOtherUsersAreNotFound: neither a session that another user's device has, nor one whose conversation
// another user began. A device without a user may have any that no user's device has.
func TestSessionsOfOtherUsersAreNotFound(t *testing.T) {
	t.Parallel()
	g := newGateway(t, func(c *ws.Config) { c.Auth = namedAuth{} })
	turn, err := g.store.BeginTurn(t.Context(), registry.Key{Tenant: registry.DefaultTenant, Session: "talked"},
		time.Minute)
	must(t, err)
	must(t, g.store.SetOwner(t.Context(), turn, registry.Owner{UserID: "ada"}))
	_, err = g.store.AppendMessages(t.Context(), turn, json.RawMessage(`{}`))
	must(t, err)
	must(t, g.store.EndTurn(t.Context(), turn))
	g.dialAs("ada", query("session_id", "connected")).expect("session_start")
	for _, id := range []string{"talked", "connected"} {
		status, problem, _ := g.refusal(query("session_id", id, "token", "bob"), nil)
		if status != http.StatusNotFound || problem["code"] != string(registry.CodeSessionNotFound) {
			t.Errorf("%s: %d %v", id, status, problem)
		}
		d := g.dialAs("bob", "")
		d.expect("session_start")
		d.send(`{"type":"connect","session_id":"` + id + `"}`)
		d.expectError("SESSION_OWNER_MISMATCH", "session_id")
		d.expectClose(ws.CloseOwnerMismatch)
	}
	g.dialAs("", query("session_id", "talked")).expect("session_start")
	g.dialAs("ada", query("session_id", "talked")).expect("session_start")
}

// TestMCPDeviceWhoseSessionAnotherUserHas: a session named after a device and its user can be foreseen, so another user
// can have it before. The device gets another session.
func TestMCPDeviceWhoseSessionAnotherUserHas(t *testing.T) {
	t.Parallel()
	g := newGateway(t, func(c *ws.Config) { c.Auth = namedAuth{} })
	g.dialAs("ada", query("session_id", "lamp@bob")).expect("session_start")
	p := g.dialMCP(query("device_id", "lamp"), "Authorization", "Bearer bob")
	p.answer(p.initialize(), mcpTools("light"))
	eventually(t, "the device has a session", func() bool {
		for _, l := range g.pod.Hub.All() {
			s := l.Session()
			if s.UserID == "bob" && s.DeviceID == "lamp" && s.Key.Session != "lamp@bob" && len(l.Tools()) == 1 {
				return true
			}
		}
		return false
	})
}
