package ws_test

import (
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/access/pairing"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
	"github.com/farhand/farhand/ws"
	"github.com/farhand/farhand/ws/node/nodetest"
)

// newPairedNodes returns a gateway that pairs nodes, and watches their credentials.
func newPairedNodes(t *testing.T, changes ...func(*ws.Config)) (*gateway, *pairing.Service, *memory.Store) {
	t.Helper()
	store := memory.New(memory.Options{})
	service, err := pairing.New(pairing.Config{Store: store, Mode: pairing.ModeOpen})
	must(t, err)
	var server *ws.Server
	live := auth.NewLive(auth.LiveConfig{
		Store: store, Poll: 5 * time.Millisecond,
		Changed: func(changes []registry.CredentialChange) {
			if server != nil {
				server.CredentialsChanged(changes)
			}
		},
	})
	chain := auth.Chain{
		Keys:      auth.NewKeys(auth.KeysConfig{Store: store, Live: live, Prove: service.Prove}),
		Otherwise: auth.NewStaticToken(testToken), Live: live,
	}
	var sources auth.Sources
	service.Serve(pairing.NodeConfig{
		Auth: chain, Refusals: auth.NewRefusals(sources, slog.New(slog.DiscardHandler)), Sources: sources,
	})
	g := newGatewayOn(t, store, append(changes, func(c *ws.Config) {
		c.Auth, c.Nodes, c.Pairing, c.Live = chain, service, service, live
	})...)
	server = g.server
	must(t, live.Start(t.Context()))
	t.Cleanup(live.Close)
	return g, service, store
}

// greet connects with what a node presents, and returns the peer before it has read the answer.
func (g *gateway) greet(key nodetest.Key, present map[string]string, commands ...string) *nodePeer {
	g.t.Helper()
	p, nonce := g.dialNode(key)
	p.send(string(nodetest.Connect{Key: key, Nonce: nonce, Commands: commands, Auth: present}.Frame()))
	return p
}

// welcomed reads hello-ok and returns the credential in it.
func (p *nodePeer) welcomed() string {
	p.t.Helper()
	var f struct {
		Payload struct {
			Type string
			Auth struct{ DeviceToken string }
		}
	}
	text, err := json.Marshal(p.response("1:connect"))
	must(p.t, err)
	must(p.t, json.Unmarshal(text, &f))
	if f.Payload.Type != "hello-ok" {
		p.t.Fatalf("not welcome: %s", text)
	}
	return f.Payload.Auth.DeviceToken
}

func nodeApprover() pairing.Approver {
	return pairing.Approver{
		Identity: auth.Identity{Tenant: registry.DefaultTenant, Admin: true, Credential: auth.CredentialToken},
		Source:   "10.1.0.1/32",
	}
}

// A full pod makes no credential for a node that it then refuses, and keeps the approval and the setup code.
func TestFullPodMakesNoCredentials(t *testing.T) {
	t.Parallel()
	g, service, store := newPairedNodes(t, func(c *ws.Config) { c.MaxSockets = 4 })
	approved := newKey(t)
	waiting := g.greet(approved, nil).refused("NOT_PAIRED", "PAIRING_REQUIRED", 1008)
	details, _ := waiting["details"].(map[string]any)
	_, code, _ := strings.Cut(details["requestId"].(string), ".")
	_, err := service.Decide(t.Context(), nodeApprover(), "", code, pairing.Decision{Approve: true})
	must(t, err)
	setup, err := service.MakeSetup(t.Context(), nodeApprover(), pairing.SetupRequest{})
	must(t, err)
	bySetup := newKey(t)

	others := g.connectAll(testToken)
	for range 2 {
		g.greet(approved, nil).refused("UNAVAILABLE", "", 1008)
		g.greet(bySetup, map[string]string{"bootstrapToken": setup.Secret}).refused("UNAVAILABLE", "", 1008)
	}
	made, _, err := store.Credentials(t.Context(), registry.CredentialQuery{
		Tenant: registry.DefaultTenant, Kind: registry.CredentialDevice, Limit: 10,
	})
	must(t, err)
	if len(made) > 0 {
		t.Errorf("made for refused nodes: %+v", made)
	}
	for _, d := range others {
		must(t, d.conn.Close())
		g.waitReleased()
	}
	if g.greet(approved, nil).welcomed() == "" ||
		g.greet(bySetup, map[string]string{"bootstrapToken": setup.Secret}).welcomed() == "" {
		t.Error("no credential")
	}
}

// A node waits for its approval, gets its credential once, offers what was approved, and is told when the credential is
// revoked.
func TestNodeIsPaired(t *testing.T) {
	t.Parallel()
	g, service, _ := newPairedNodes(t)
	approver := nodeApprover()
	key := newKey(t)
	var code string
	for range 2 {
		failure := g.greet(key, nil, "acme.look").refused("NOT_PAIRED", "PAIRING_REQUIRED", 1008)
		details, _ := failure["details"].(map[string]any)
		if details["pauseReconnect"] != false || failure["retryable"] != true || details["requestId"] == "" {
			t.Errorf("pending: %v", failure)
		}
		_, told, _ := strings.Cut(failure["message"].(string), "the code ")
		if again, _, _ := strings.Cut(told, " "); code == "" {
			code = again
		} else if again != code {
			t.Errorf("another code: %v", failure)
		}
	}
	_, err := service.Decide(t.Context(), approver, "", code, pairing.Decision{Approve: true})
	must(t, err)

	p := g.greet(key, nil, "acme.look")
	token := p.welcomed()
	if token == "" {
		t.Fatal("no credential")
	}
	g.offersNode(key)
	must(t, p.conn.Close())
	g.waitReleased()

	// With another command, which waits for an approver.
	p = g.greet(key, map[string]string{"deviceToken": token}, "acme.look", "acme.touch")
	if again := p.welcomed(); again != "" {
		t.Error("a second credential")
	}
	p.ask("node.event", `{"event":"x"}`)
	local := g.pod.Hub.Get(registry.Key{Tenant: registry.DefaultTenant, Session: key.ID})
	if tools := local.Tools(); len(tools) != 1 || tools[0].Name != "acme_look" {
		t.Errorf("it offers %+v", tools)
	}

	other := newKey(t)
	g.greet(other, map[string]string{"deviceToken": token}).
		refused("INVALID_REQUEST", "AUTH_DEVICE_TOKEN_MISMATCH", 1008)
	devices, _, err := service.Devices(t.Context(), approver, "", 10)
	must(t, err)
	if len(devices) != 1 || devices[0].DeviceID != key.ID {
		t.Fatalf("devices: %+v", devices)
	}
	must(t, service.Revoke(t.Context(), approver, devices[0].ID))
	p.closed(4001, "auth changed")
	g.greet(key, map[string]string{"deviceToken": token}).refused("INVALID_REQUEST", "AUTH_DEVICE_TOKEN_MISMATCH", 1008)
}
