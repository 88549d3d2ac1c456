package ws_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/gorilla/websocket"

	"github.com/farhand/farhand/agent/access/pairing"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
	"github.com/farhand/farhand/ws"
)

// newPairing returns a gateway with one token that pairs devices, and its store.
func newPairing(t *testing.T, mode pairing.Mode) (*gateway, *memory.Store) {
	t.Helper()
	store := memory.New(memory.Options{})
	service, err := pairing.New(pairing.Config{Store: store, Mode: mode})
	must(t, err)
	return newGatewayOn(t, store, func(c *ws.Config) { c.Pairing = service }), store
}

// Where the operator allows it, a device that has no credential is listed as pending, hears its code and how to go on,
// and is let go for good; it has no session.
func TestDeviceWithoutACredentialIsListed(t *testing.T) {
	t.Parallel()
	g, store := newPairing(t, pairing.ModeOpen)
	dialer := websocket.Dialer{Subprotocols: []string{"clawseed.v1"}}
	conn, _, err := dialer.Dial(g.url(query("name", "Front door", "device_id", "door-1", "platform", "linux")), nil)
	must(t, err)
	defer conn.Close()
	if conn.Subprotocol() != "clawseed.v1" {
		t.Errorf("subprotocol %q", conn.Subprotocol())
	}
	d := &device{t: t, conn: conn}
	d.send(`{"type":"connect","v":1}`) // as ClawSeed's apps do without waiting
	frame := d.expect("error")
	told, _ := frame["pairing"].(map[string]any)
	code, _ := told["code"].(string)
	secret, _ := told["secret"].(string)
	message, _ := frame["message"].(string)
	if frame["code"] != "PAIRING_REQUIRED" || len(code) != 9 || !strings.Contains(message, code) ||
		strings.Contains(message, secret) || told["device_id"] != "door-1" || told["expires_in"] != 300.0 {
		t.Errorf("told %v", frame)
	}
	d.expectClose(ws.ClosePairing)
	waiting, err := store.Pairings(t.Context(), registry.DefaultTenant)
	must(t, err)
	if len(waiting) != 1 || waiting[0].ID != told["id"] || waiting[0].DeviceID != "door-1" ||
		waiting[0].DeviceName != "Front door" || waiting[0].Platform != "linux" || waiting[0].Decision != nil {
		t.Errorf("waiting: %+v", waiting)
	}
	if page, _, err := store.List(t.Context(), registry.Query{Tenant: registry.DefaultTenant}); err != nil ||
		len(page) != 0 {
		t.Errorf("sessions: %+v, %v", page, err)
	}
	if s := g.server.Stats(); s.Closed["pairing_required"] != 1 || s.Open != 0 {
		t.Errorf("counted %+v", s)
	}
}

// Elsewhere, with a wrong token, or when it is no handshake, it is refused as before; and so is whoever asks too often.
func TestDevicesThatAreNotListed(t *testing.T) {
	t.Parallel()
	for _, mode := range []pairing.Mode{pairing.ModeOff, pairing.ModeCode} {
		g, _ := newPairing(t, mode)
		if status, _, _ := g.refusal("", nil); status != http.StatusUnauthorized {
			t.Errorf("%s: status %d", mode, status)
		}
	}
	g, store := newPairing(t, pairing.ModeOpen)
	for name, get := range map[string]func() int{
		"a wrong token": func() int {
			status, _, _ := g.refusal("", http.Header{"Authorization": {"Bearer wrong"}})
			return status
		},
		"no handshake": func() int {
			resp, err := http.Get(g.http.URL + "/ws/chat")
			must(t, err)
			must(t, resp.Body.Close())
			return resp.StatusCode
		},
	} {
		if status := get(); status != http.StatusUnauthorized {
			t.Errorf("%s: status %d", name, status)
		}
	}
	if status, _, _ := g.refusal("", http.Header{"Origin": {"https://evil.example"}}); status != http.StatusForbidden {
		t.Errorf("a foreign page: status %d", status)
	}
	if waiting, err := store.Pairings(t.Context(), registry.DefaultTenant); err != nil || len(waiting) != 0 {
		t.Errorf("waiting: %+v, %v", waiting, err)
	}
	for range registry.MaxPairingsOfSource {
		conn, _, err := websocket.DefaultDialer.Dial(g.url(""), nil)
		must(t, err)
		(&device{t: t, conn: conn}).expectClose(ws.ClosePairing)
	}
	if status, problem, header := g.refusal("", nil); status != http.StatusTooManyRequests ||
		header.Get("Retry-After") == "" {
		t.Errorf("one more: status %d, %v", status, problem)
	}
	g.connect("with-the-token").alive()
}
