package ws_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/ws"
)

// byDevice authenticates a token as the credential of the device with this name.
func byDevice(_ context.Context, _ *http.Request, token string) (auth.Identity, error) {
	return auth.Identity{
		Tenant: "default", Device: token, Roles: auth.RoleDevice, Credential: "device:" + token,
	}, nil
}

// opens opens a session with a credential. It returns nil if the upgrade is refused for its rate.
func (g *gateway) opens(session, token string) *device {
	g.t.Helper()
	conn, resp, err := websocket.DefaultDialer.Dial(g.url(query("session_id", session, "token", token)), nil)
	if resp != nil && resp.StatusCode == http.StatusTooManyRequests {
		return nil
	}
	must(g.t, err)
	g.t.Cleanup(func() { _ = conn.Close() })
	d := &device{t: g.t, conn: conn}
	d.expect("session_start")
	return d
}

// answers sends a frame and reports whether an answer of a type came, and not an error or the end of the connection.
func (d *device) answers(frame, typ string) bool {
	d.t.Helper()
	if d.conn.WriteMessage(websocket.TextMessage, []byte(frame)) != nil {
		return false
	}
	must(d.t, d.conn.SetReadDeadline(time.Now().Add(testkit.Limit)))
	_, text, err := d.conn.ReadMessage()
	return err == nil && strings.Contains(string(text), `"type":"`+typ+`"`)
}

// A device whose credential names it gets no further budget with another session id. Another device has its own.
func TestSessionsOfADeviceShareItsBudget(t *testing.T) {
	t.Parallel()
	t.Run("frames", func(t *testing.T) {
		t.Parallel()
		g := newGateway(t, func(c *ws.Config) {
			c.Auth, c.MaxFramesPerSecond, c.FrameBurst = auth.AuthenticatorFunc(byDevice), 0.001, 20
		})
		served := 0
		for i := range 12 {
			d := g.opens(fmt.Sprint("session-", i), "lamp")
			if d == nil {
				break
			}
			for range 15 {
				if !d.answers(`{"type":"abort"}`, "abort_ack") {
					break
				}
				served++
			}
		}
		if served < 60 || served > 80 {
			t.Errorf("%d frames of 12 sessions were served; a session has 20, all of a device 80", served)
		}
		if g.opens("door-0", "door") == nil || g.opens("door-1", "door") == nil {
			t.Error("another device is refused")
		}
	})
	t.Run("definitions", func(t *testing.T) {
		t.Parallel()
		g := newGateway(t, func(c *ws.Config) {
			c.Auth = auth.AuthenticatorFunc(byDevice)
			c.Admission = newAdmission(t, agent.AdmissionLimits{MaxToolBytes: 1 << 20})
		})
		accepted := 0
		for session := range 12 { // of 0.9 MB; of a device, 4 MiB at once
			d := g.opens(fmt.Sprint("session-", session), "lamp")
			if d == nil {
				break
			}
			var all []string
			for i := range 18 {
				all = append(all, bigTool(fmt.Sprintf("tool_%d_%d", session, i), 50<<10))
			}
			_, rejected := d.register(all...)
			accepted += len(all) - len(rejected)
		}
		if accepted < 60 || accepted > 100 {
			t.Errorf("%d definitions of 50 KiB were accepted of one device; it has 4 MiB at once", accepted)
		}
	})
	t.Run("labels", func(t *testing.T) {
		t.Parallel()
		g := newGateway(t, func(c *ws.Config) { c.Auth = auth.AuthenticatorFunc(byDevice) })
		accepted := 0
		for session := range 40 {
			d := g.opens(fmt.Sprint("session-", session), "lamp")
			var labels []string
			for i := range 32 {
				labels = append(labels, fmt.Sprintf(`"key-%d-%d":"x"`, session, i))
			}
			if d.answers(`{"type":"connect","labels":{`+strings.Join(labels, ",")+`}}`, "connected") {
				accepted++
			}
		}
		if accepted < 10 || accepted > 25 {
			t.Errorf("the labels of %d of 40 sessions were accepted; of a device, 640 labels at once", accepted)
		}
	})
}
