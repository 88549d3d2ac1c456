package ws_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/ws/node/nodetest"
)

var protocolSchema = sync.OnceValues(func() (nodetest.Schema, error) {
	return nodetest.ReadSchema("node/testdata/schema/gateway-protocol.json")
})

// nodePeer is a hand-driven OpenClaw node. Every frame that it gets is checked by the published schema.
type nodePeer struct {
	*device
	key   nodetest.Key
	hello map[string]any // payload of hello-ok
	ids   int
}

// dialNode upgrades to /ws/node and returns the peer with the nonce of its challenge.
func (g *gateway) dialNode(key nodetest.Key) (p *nodePeer, nonce string) {
	g.t.Helper()
	conn, _, err := websocket.DefaultDialer.Dial(g.nodeURL(), nil)
	must(g.t, err)
	p = &nodePeer{device: g.newDevice(conn), key: key}
	challenge := p.event("connect.challenge")
	nonce, _ = challenge["nonce"].(string)
	return p, nonce
}

func (g *gateway) nodeURL() string { return strings.Replace(g.url(""), "/ws/chat?", "/ws/node", 1) }

// connectNode connects a node with the test's token and some commands, and reads hello-ok.
func (g *gateway) connectNode(key nodetest.Key, commands ...string) *nodePeer {
	g.t.Helper()
	p, nonce := g.dialNode(key)
	p.send(string(nodetest.Connect{
		Key: key, Nonce: nonce, Commands: commands, Auth: map[string]string{"token": testToken},
	}.Frame()))
	p.hello, _ = p.response("1:connect")["payload"].(map[string]any)
	if p.hello["type"] != "hello-ok" {
		g.t.Fatalf("not welcome: %v", p.hello)
	}
	if len(commands) > 0 {
		g.offersNode(key)
	}
	return p
}

// offersNode waits until the session of a node offers its tools.
func (g *gateway) offersNode(key nodetest.Key) {
	g.t.Helper()
	eventually(g.t, "the node offers its commands", func() bool {
		local := g.pod.Hub.Get(registry.Key{Tenant: registry.DefaultTenant, Session: key.ID})
		return local != nil && len(local.Tools()) > 0 // all at once
	})
}

// frame reads one frame, other than a tick.
func (p *nodePeer) frame() map[string]any {
	p.t.Helper()
	schema, err := protocolSchema()
	must(p.t, err)
	for {
		must(p.t, p.conn.SetReadDeadline(time.Now().Add(testTimeout)))
		_, text, err := p.conn.ReadMessage()
		must(p.t, err)
		if err := schema.Check(text); err != nil {
			p.t.Fatalf("%s: %v", text, err)
		}
		var f map[string]any
		must(p.t, json.Unmarshal(text, &f))
		if f["event"] != "tick" {
			return f
		}
	}
}

// event reads an event and returns its payload.
func (p *nodePeer) event(name string) map[string]any {
	p.t.Helper()
	f := p.frame()
	if f["type"] != "event" || f["event"] != name {
		p.t.Fatalf("got %v, want the event %s", f, name)
	}
	payload, _ := f["payload"].(map[string]any)
	return payload
}

// response reads the response to a request.
func (p *nodePeer) response(id string) map[string]any {
	p.t.Helper()
	f := p.frame()
	if f["type"] != "res" || f["id"] != id {
		p.t.Fatalf("got %v, want the response to %s", f, id)
	}
	return f
}

// ask sends a request and reads the response.
func (p *nodePeer) ask(method, params string) map[string]any {
	p.t.Helper()
	return p.response(p.request(method, params))
}

// request sends a request and returns its id.
func (p *nodePeer) request(method, params string) string {
	p.t.Helper()
	p.ids++
	id := fmt.Sprintf("%d:test", p.ids)
	p.send(fmt.Sprintf(`{"type":"req","id":%q,"method":%q,"params":%s}`, id, method, params))
	return id
}

// invoked reads the invocation of a command.
func (p *nodePeer) invoked(command string) (id string, payload map[string]any) {
	p.t.Helper()
	payload = p.event("node.invoke.request")
	if payload["command"] != command || payload["nodeId"] != p.key.ID {
		p.t.Fatalf("invoked %v, want %s", payload, command)
	}
	return fmt.Sprint(payload["id"]), payload
}

// result sends the result of an invocation, with more members, and returns the id of the request.
func (p *nodePeer) result(id, members string) string {
	p.t.Helper()
	return p.request("node.invoke.result", fmt.Sprintf(`{"id":%q,"nodeId":%q,%s}`, id, p.key.ID, members))
}

// refused reads the refusal of the connect frame and the close frame after it. detail is details.code.
func (p *nodePeer) refused(code, detail string, closed int) map[string]any {
	p.t.Helper()
	f := p.response("1:connect")
	failure, _ := f["error"].(map[string]any)
	details, _ := failure["details"].(map[string]any)
	got, _ := details["code"].(string)
	if f["ok"] != false || failure["code"] != code || got != detail {
		p.t.Fatalf("got %v, want %s %s", f, code, detail)
	}
	p.closed(closed, "")
	return failure
}

// closed reads to the end and checks the close frame. An empty reason is not checked.
func (p *nodePeer) closed(code int, reason string) {
	p.t.Helper()
	must(p.t, p.conn.SetReadDeadline(time.Now().Add(testTimeout)))
	for {
		_, _, err := p.conn.ReadMessage()
		if err == nil {
			continue
		}
		if !websocket.IsCloseError(err, code) || reason != "" && !strings.Contains(err.Error(), reason) {
			p.t.Fatalf("ended with %v, want %d %q", err, code, reason)
		}
		return
	}
}

// upgradeRefused dials /ws/node and returns the status that it was refused with.
func (g *gateway) upgradeRefused(header http.Header) int {
	g.t.Helper()
	conn, resp, err := websocket.DefaultDialer.Dial(g.nodeURL(), header)
	if err == nil {
		_ = conn.Close()
		return 0
	}
	if resp == nil {
		g.t.Fatal(err)
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

func newKey(t testing.TB) nodetest.Key { return nodetest.NewKey(t) }
