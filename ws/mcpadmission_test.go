package ws_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/gorilla/websocket"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/pairing"
	"github.com/farhand/farhand/agent/schema"
	"github.com/farhand/farhand/registry/memory"
	"github.com/farhand/farhand/ws"
)

// Who may connect is decided as for other devices.
func TestMCPDevicesMustBeAllowed(t *testing.T) {
	g := newGateway(t)
	for query, token := range map[string]string{
		"session_id=s1": "wrong", "session_id=running": testToken, "label=x": testToken, "resume=maybe": testToken,
		"device_id=a%00b": testToken,
	} {
		conn, resp, err := websocket.DefaultDialer.Dial(g.mcpURL(query),
			http.Header{"Authorization": {"Bearer " + token}})
		if err == nil {
			_ = conn.Close()
			t.Errorf("%s: accepted", query)
			continue
		}
		_ = resp.Body.Close()
		if want := map[bool]int{true: 400, false: 401}[token == testToken]; resp.StatusCode != want {
			t.Errorf("%s: %d", query, resp.StatusCode)
		}
	}
	conn, _, err := websocket.DefaultDialer.Dial(g.mcpURL("token="+testToken), nil)
	must(t, err)
	must(t, conn.Close())
}

// Nobody is a device that was paired, but that device.
func TestMCPDevicesArePaired(t *testing.T) {
	g, pair := newPaired(t)
	pair("d1")
	for _, token := range []string{"device/bob/", "device/bob/d2"} {
		p := g.dialMCP("session_id=s1&device_id=d1", "Authorization", "Bearer "+token)
		p.expectClose(ws.CloseOwnerMismatch)
	}
	p := g.dialMCP("", "Authorization", "Bearer device/bob/d2") // which is a session of its own
	p.answer(p.initialize(), mcpTools())
	g.offersMCP("d2@bob")
	if s := g.session("d2@bob").Session(); s.DeviceID != "d2" || !s.Bound || s.UserID != "bob" {
		t.Errorf("the session: %+v", s)
	}
}

// A device without a credential is told its code, where devices may ask for one.
func TestMCPStrangersGetACode(t *testing.T) {
	g, _ := newPairing(t, pairing.ModeOpen)
	for _, voice := range []bool{false, true} {
		header := http.Header{}
		if voice {
			header.Set("Device-Id", "AA:BB")
			header.Set("Protocol-Version", "1")
		}
		conn, _, err := websocket.DefaultDialer.Dial(g.mcpURL(""), header)
		must(t, err)
		p := &mcpPeer{device: &device{t: t, conn: conn}}
		if voice {
			if alert := p.expect("alert"); !strings.Contains(fmt.Sprint(alert["message"]), "code") {
				t.Errorf("%v", alert)
			}
		} else if m := p.asked("notifications/message"); !strings.Contains(string(m.Params), "PAIRING_REQUIRED") {
			t.Errorf("%s", m.Params)
		}
		p.expectClose(ws.ClosePairing)
	}
}

// A pod that stops sends its devices to another one, once they have answered.
func TestMCPDrain(t *testing.T) {
	g := newGatewayOn(t, memory.New(memory.Options{}))
	p := g.connectMCP("session_id=s1", "t")
	g.offersMCP("s1", "t")
	done := g.call("s1", "t", `{}`)
	call := p.asked("tools/call")
	closed := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
		defer cancel()
		closed <- g.server.Close(ctx)
	}()
	p.answer(call, `{"content":[{"type":"text","text":"done"}]}`)
	if o := await(t, done); o.err != nil || o.result.Output != "done" {
		t.Errorf("%+v", o)
	}
	p.expectClose(ws.CloseRestart)
	must(t, <-closed)
}

// newReserving returns an admission with names that no device may use.
func newReserving(t *testing.T, names ...string) *agent.Admission {
	t.Helper()
	policy, err := agent.NewPolicy(agent.PolicyRules{})
	must(t, err)
	return agent.NewAdmission(policy, schema.NewValidator(), agent.AdmissionLimits{}, names...)
}
