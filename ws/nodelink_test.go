package ws_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
	"github.com/farhand/farhand/ws"
	"github.com/farhand/farhand/ws/node/nodetest"
)

// A node is a session like any other: named after its key, its commands are listed as tools and called.
func TestNode(t *testing.T) {
	t.Parallel()
	g := newGateway(t, func(c *ws.Config) { c.Version = "1.2.3" })
	key := newKey(t)
	p, nonce := g.dialNode(key)
	p.send(string(nodetest.Connect{
		Key: key, Nonce: nonce, DisplayName: "Anna's Mac", Platform: "darwin", Family: "Mac",
		Commands: []string{"acme.look"}, Auth: map[string]string{"token": testToken},
	}.Frame()))
	hello, _ := p.response("1:connect")["payload"].(map[string]any)
	policy, _ := hello["policy"].(map[string]any)
	server, _ := hello["server"].(map[string]any)
	if hello["protocol"] != 4.0 || policy["maxPayload"] != 26214400.0 || policy["tickIntervalMs"] != 30000.0 ||
		server["version"] != "1.2.3" {
		t.Errorf("hello-ok: %v", hello)
	}
	g.offersNode(key)
	s := g.pod.Hub.Get(registry.Key{Tenant: registry.DefaultTenant, Session: key.ID}).Session()
	if s.DeviceID != key.ID || s.DeviceName != "Anna's Mac" || s.Platform != "darwin" {
		t.Errorf("the session: %+v", s)
	}

	done := g.call(key.ID, "acme_look", `{"bins":["sh"]}`)
	id, invoke := p.invoked("acme.look")
	var params map[string]any
	must(t, json.Unmarshal([]byte(fmt.Sprint(invoke["paramsJSON"])), &params))
	if fmt.Sprint(params["bins"]) != "[sh]" || invoke["timeoutMs"].(float64) <= 0 || invoke["idempotencyKey"] != id {
		t.Errorf("the invocation: %v", invoke)
	}
	request := p.result(id, `"ok":true,"payloadJSON":"{\"bins\":{\"sh\":\"/bin/sh\"}}"`)
	if ack := p.response(request); ack["ok"] != true {
		t.Errorf("the result was answered with %v", ack)
	}
	if o := await(t, done); o.err != nil || !o.result.Success || !strings.Contains(o.result.Output, "/bin/sh") {
		t.Errorf("the result: %+v", o)
	}

	done = g.call(key.ID, "acme_look", `{"bins":["sh"]}`)
	id, _ = p.invoked("acme.look")
	p.result(id, `"ok":false,"error":{"code":"UNAVAILABLE","message":"no shell"}`)
	if o := await(t, done); o.err != nil || o.result.Success || !strings.Contains(o.result.Error, "no shell") {
		t.Errorf("the failure: %+v", o)
	}
	must(t, p.conn.Close())
	if s := g.waitReleased(); s.Key.Session != key.ID {
		t.Errorf("released %v", s.Key)
	}
}

// What an answer must be: of this connection, of this node, once.
func TestNodeAnswers(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	key, other := newKey(t), newKey(t)
	p, q := g.connectNode(key, "acme.look"), g.connectNode(other, "acme.look")
	done := g.call(key.ID, "acme_look", `{"bins":["sh"]}`)
	id, _ := p.invoked("acme.look")

	ignored := func(f map[string]any) {
		t.Helper()
		if payload, _ := f["payload"].(map[string]any); f["ok"] != true || payload["ignored"] != true {
			t.Errorf("not ignored: %v", f)
		}
	}
	ignored(q.response(q.result(id, `"ok":true,"payload":{"forged":1}`)))
	forged := q.ask("node.invoke.result", fmt.Sprintf(`{"id":%q,"nodeId":%q,"ok":true,"payload":{}}`, id, key.ID))
	failure, _ := forged["error"].(map[string]any)
	if forged["ok"] != false || failure["message"] != "nodeId mismatch" {
		t.Errorf("a node that answers for another one: %v", forged)
	}
	ignored(p.response(p.result("unknown", `"ok":true`)))
	p.response(p.result(id, `"ok":true,"payload":{"bins":{}}`))
	if o := await(t, done); o.err != nil || strings.Contains(o.result.Output, "forged") {
		t.Errorf("the result: %+v", o)
	}
	ignored(p.response(p.result(id, `"ok":true,"payload":{}`)))

	// A malformed answer ends the call, so its caller need not wait.
	done = g.call(key.ID, "acme_look", `{"bins":["sh"]}`)
	id, _ = p.invoked("acme.look")
	if f := p.response(p.result(id, `"ok":true,"payloadJSON":"{"`)); f["ok"] != false {
		t.Errorf("a malformed answer: %v", f)
	}
	if o := await(t, done); registry.AsError(o.err).Code != registry.CodeInvalidResult {
		t.Errorf("%+v", o)
	}
}

// Output of a running command arrives in order, whatever the order of its chunks.
func TestNodeProgress(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	key := newKey(t)
	p := g.connectNode(key, "acme.look")
	id, done := g.callDurable(key.ID, "acme_look")
	invocation, _ := p.invoked("acme.look")
	for _, seq := range []int{2, 1, 1, 0, 0, 3} {
		p.ask("node.invoke.progress",
			fmt.Sprintf(`{"invokeId":%q,"nodeId":%q,"seq":%d,"chunk":"%d;"}`, invocation, key.ID, seq, seq))
	}
	f := p.ask("node.invoke.progress", fmt.Sprintf(`{"invokeId":%q,"nodeId":%q,"seq":4,"chunk":%q}`, invocation, key.ID,
		strings.Repeat("x", 16385)))
	if f["ok"] != false {
		t.Errorf("a chunk that is too long: %v", f)
	}
	p.response(p.result(invocation, `"ok":true,"payload":{"bins":{}}`))
	await(t, done)
	eventually(t, "all output is stored", func() bool {
		events, err := g.store.CallEvents(context.Background(), registry.DefaultTenant, id, "", 100)
		must(t, err)
		var output strings.Builder
		for _, e := range events {
			output.WriteString(e.Chunk)
		}
		return output.String() == "0;1;2;3;"
	})
}

// A node hears that a call was cancelled, and that it timed out.
func TestNodeCancels(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	key := newKey(t)
	p := g.connectNode(key, "acme.look")
	ctx, cancel := context.WithCancel(context.Background())
	call := registry.Call{ID: registry.NewCallID(), Args: registry.MustJSON(`{"bins":["sh"]}`)}
	done := g.callContext(ctx, key.ID, call, "acme_look")
	id, _ := p.invoked("acme.look")
	cancel()
	await(t, done)
	if c := p.event("node.invoke.cancel"); c["invokeId"] != id || c["nodeId"] != key.ID {
		t.Errorf("cancelled: %v", c)
	}
	call.ID, call.Timeout = registry.NewCallID(), 50*time.Millisecond
	done = g.callContext(context.Background(), key.ID, call, "acme_look")
	id, _ = p.invoked("acme.look")
	await(t, done)
	if c := p.event("node.invoke.cancel"); c["invokeId"] != id {
		t.Errorf("timed out: %v", c)
	}
}

// Every request is answered: with what a gateway says that has nothing, or with why it is not served.
func TestNodeRequests(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	p := g.connectNode(newKey(t))
	for _, c := range []struct{ method, params, payload, message string }{
		{"node.event", `{"event":"node.presence.alive","payloadJSON":"{}"}`, `handled:true`, ""},
		{"node.event", `{"event":"exec.finished","payload":{}}`, `handled:true`, ""},
		{"node.event", `{"event":"voice.transcript"}`, `handled:false`, ""},
		{"node.event", `{}`, "", "event"},
		{"node.pending.pull", `{}`, `actions:[]`, ""},
		{"node.pending.ack", `{"ids":["a"]}`, `ackedIds:[a]`, ""},
		{"node.pending.drain", `{}`, `items:[]`, ""},
		{"node.skills.update", `{"skills":[]}`, `skills:[]`, ""},
		{"node.runnerInventory.update", `{}`, `nodeId:`, ""},
		{"skills.bins", `{}`, `bins:[]`, ""},
		{"connect", `{}`, "", "only valid as the first request"},
		{"config.get", `{}`, "", "docs/openclaw.md"},
		{"node.list", `{}`, "", "docs/openclaw.md"},
		{"made.up", `{}`, "", "unknown method: made.up"},
	} {
		f := p.ask(c.method, c.params)
		failure, _ := f["error"].(map[string]any)
		if f["ok"] == (c.message != "") || !strings.Contains(fmt.Sprint(f["payload"]), c.payload) ||
			!strings.Contains(fmt.Sprint(failure["message"]), c.message) {
			t.Errorf("%s %s: %v", c.method, c.params, f)
		}
	}
	for _, bad := range []string{`{`, `[]`, `{"type":"event","event":"x"}`, `{"type":"req","id":"","method":"x"}`} {
		p.send(bad)
		if f := p.response("invalid"); f["ok"] != false {
			t.Errorf("%s: %v", bad, f)
		}
	}
	must(t, p.conn.WriteMessage(websocket.BinaryMessage, []byte("x")))
	if f := p.frame(); f["ok"] != false {
		t.Errorf("a binary message: %v", f)
	}
}

// The answer to a node that publishes tools of plug-ins names those that are offered.
func TestNodePublishesTools(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	p := g.connectNode(newKey(t), "acme.call")
	tool := func(name, more string) string {
		return fmt.Sprintf(`{"pluginId":"acme","name":%q,"description":"d",%s}`, name, more)
	}
	f := p.ask("node.pluginTools.update", `{"tools":[`+strings.Join([]string{
		tool("good", `"command":"acme.call"`), tool("undeclared", `"command":"acme.other"`),
		tool("refused", `"command":"acme.call","parameters":{"type":"nonsense"}`),
	}, ",")+`]}`)
	payload, _ := f["payload"].(map[string]any)
	tools, _ := payload["tools"].([]any)
	if len(tools) != 1 || tools[0].(map[string]any)["name"] != "good" {
		t.Errorf("the node was told that these are offered: %v", f)
	}
}

// A node that comes back takes its session over, also from a connection that looks alive, and cannot answer what the
// earlier connection was asked.
func TestNodeTakesOver(t *testing.T) {
	t.Parallel()
	store := memory.New(memory.Options{})
	g, second := newGatewayOn(t, store), newGatewayOn(t, store)
	key := newKey(t)
	p := g.connectNode(key, "acme.look")
	done := g.call(key.ID, "acme_look", `{"bins":["sh"]}`)
	id, _ := p.invoked("acme.look")
	again := second.connectNode(key, "acme.look")
	p.closed(websocket.ClosePolicyViolation, "replaced")
	f := again.response(again.result(id, `"ok":true,"payload":{"late":1}`))
	if payload, _ := f["payload"].(map[string]any); payload["ignored"] != true {
		t.Errorf("the answer to an earlier connection's call: %v", f)
	}
	if o := await(t, done); o.err == nil && o.result.Success {
		t.Errorf("the call ended with %+v", o)
	}
}

// A pod that stops tells its nodes so.
func TestNodeDrains(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	p := g.connectNode(newKey(t), "acme.look")
	waiting, _ := g.dialNode(newKey(t)) // has not said who it is
	closed := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
		defer cancel()
		closed <- g.server.Close(ctx)
	}()
	if s := p.event("shutdown"); s["reason"] != "service restart" {
		t.Errorf("shutdown: %v", s)
	}
	p.closed(websocket.CloseServiceRestart, "service restart")
	waiting.closed(websocket.CloseServiceRestart, "service restart")
	must(t, <-closed)
	if status := g.upgradeRefused(nil); status != http.StatusServiceUnavailable {
		t.Errorf("after that: %d", status)
	}
}

// Ticks come with pings.
func TestNodeTicks(t *testing.T) {
	t.Parallel()
	g := newGateway(t, func(c *ws.Config) { c.PingInterval, c.PongTimeout = 20*time.Millisecond, testTimeout })
	p := g.connectNode(newKey(t))
	schema, err := protocolSchema()
	must(t, err)
	for range 3 {
		must(t, p.conn.SetReadDeadline(time.Now().Add(testTimeout)))
		_, text, err := p.conn.ReadMessage()
		must(t, err)
		if err := schema.Check(text); err != nil || !strings.Contains(string(text), `"event":"tick"`) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// A node that wants a person's decision has the call given back. When it comes again as decided, it may take several
// invocations.
func TestNodeAsksAPerson(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	key := newKey(t)
	p := g.connectNode(key, "system.run", "system.run.prepare")
	call := registry.Call{ID: registry.NewCallID(), Args: registry.MustJSON(`{"command":"uname -a"}`)}
	done := g.callContext(context.Background(), key.ID, call, "run")
	ids := make(map[string]bool)
	invoked := func() (id string) { // prepared as often as it is asked to
		for {
			asked := p.event("node.invoke.request")
			if id = fmt.Sprint(asked["id"]); ids[id] {
				t.Errorf("%v was asked for twice", id)
			}
			if ids[id] = true; asked["command"] != "system.run.prepare" {
				return id
			}
			p.response(p.result(id, `"ok":true,"payload":{"plan":{"argv":["/bin/sh","-lc","uname -a"],
				"commandText":"uname -a","cwd":null,"agentId":null,"sessionKey":null}}`))
		}
	}
	f := p.response(p.result(invoked(), `"ok":false,"error":{"code":"SYSTEM_RUN_DENIED",
		"message":"SYSTEM_RUN_DENIED: approval required"}`))
	if f["ok"] != true {
		t.Errorf("the demand was answered with %v", f)
	}
	if o := await(t, done); registry.AsError(o.err).Code != registry.CodeAsksPerson {
		t.Fatalf("the call ended with %+v", o)
	}
	call.Approved, call.Attempt = true, 1
	done = g.callContext(context.Background(), key.ID, call, "run")
	p.response(p.result(invoked(),
		`"ok":true,"payload":{"exitCode":0,"timedOut":false,"success":true,"stdout":"Linux\n","stderr":""}`))
	if o := await(t, done); o.err != nil || !o.result.Success || !strings.Contains(o.result.Output, "Linux") {
		t.Errorf("the result: %+v", o)
	}
}

// A node whose session another device has stops, until a person starts it again. If the store is away, it comes back.
func TestNodeSessionNotOpened(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	key := newKey(t)
	other := g.connect(key.ID)
	other.send(`{"type":"connect","device_id":"other"}`)
	other.expect("connected")
	ended := make(chan struct{})
	go func() { // answers pings
		defer close(ended)
		answerWith(other.conn, func([]byte) string { return "" })
	}()
	failure := g.greet(key, map[string]string{"token": testToken}).
		refused("INVALID_REQUEST", "AUTH_SCOPE_MISMATCH", 1008)
	details, _ := failure["details"].(map[string]any)
	if failure["retryable"] == true || details["recommendedNextStep"] != "review_auth_configuration" {
		t.Errorf("%v", failure)
	}
	must(t, other.conn.Close())
	<-ended
	g.waitReleased()
	away := func() error { return registry.Errorf(registry.CodeStoreUnavailable, "The store is away.") }
	g.store.claim.Store(&away)
	failure = g.greet(key, map[string]string{"token": testToken}).refused("UNAVAILABLE", "", 1013)
	if failure["retryable"] != true || failure["retryAfterMs"] == 0.0 {
		t.Errorf("%v", failure)
	}
}
