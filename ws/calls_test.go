package ws_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/ws"
)

func TestCallAndAnswer(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	d := g.connectWithTools("phone", "echo")
	for _, tc := range []struct {
		name, answer string // ID stands for the call's id
		want         registry.Result
	}{
		{"text", `{"type":"tool_result","id":ID,"output":"hello","success":true}`,
			registry.Result{Success: true, Output: "hello"}},
		{"success absent", `{"type":"tool_result","id":ID,"output":"hello"}`,
			registry.Result{Success: true, Output: "hello"}},
		{"nothing", `{"type":"tool_result","id":ID}`, registry.Result{Success: true}},
		{"JSON is kept", `{"type":"tool_result","id":ID,"output":{"big": 12345678901234567890, "f":1.10}}`,
			registry.Result{
				Success: true, Output: `{"big": 12345678901234567890, "f":1.10}`,
				Structured: registry.MustJSON(`{"big": 12345678901234567890, "f":1.10}`),
			}},
		{"failure of the tool", `{"type":"tool_result","id":ID,"success":false,"error":"no permission"}`,
			registry.Result{Output: "no permission", Error: "no permission"}},
		{"tool_error", `{"type":"tool_error","id":ID,"error":"no camera","success":false}`,
			registry.Result{Output: "no camera", Error: "no camera"}},
		{"tool_error without text", `{"type":"tool_error","id":ID}`,
			registry.Result{Output: "The tool failed and did not say why.",
				Error: "The tool failed and did not say why."}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d.t = t
			done := g.call("phone", "echo", `{"html":"<a&b>","n":12345678901234567890}`)
			must(t, d.conn.SetReadDeadline(deadline()))
			_, raw, err := d.conn.ReadMessage()
			must(t, err)
			if !strings.Contains(string(raw), `"args":{"html":"<a&b>","n":12345678901234567890}`) {
				t.Fatalf("request: %s", raw)
			}
			var req struct {
				Type, ID, Name string
				DeadlineMS     int64 `json:"deadline_ms"`
			}
			must(t, json.Unmarshal(raw, &req))
			if req.Type != "tool_call_request" || req.Name != "echo" || req.DeadlineMS <= 0 ||
				req.DeadlineMS > testTimeout.Milliseconds() {
				t.Fatalf("request: %s", raw)
			}
			d.send(strings.ReplaceAll(tc.answer, "ID", `"`+req.ID+`"`))
			ack := d.expect("result_acknowledged")
			if _, ignored := ack["ignored"]; ignored || ack["id"] != req.ID {
				t.Fatalf("acknowledged: %v", ack)
			}
			o := await(t, done)
			must(t, o.err)
			if o.result.Success != tc.want.Success || o.result.Output != tc.want.Output ||
				o.result.Error != tc.want.Error ||
				o.result.Structured.String() != tc.want.Structured.String() {
				t.Fatalf("got %+v, want %+v", o.result, tc.want)
			}
			// The same answer once more is acknowledged as ignored.
			d.send(strings.ReplaceAll(tc.answer, "ID", `"`+req.ID+`"`))
			if ack := d.expect("result_acknowledged"); ack["ignored"] != true {
				t.Fatalf("acknowledged: %v", ack)
			}
		})
	}
}

func TestResultForAnUnknownCall(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	d := g.connectWithTools("forger", "echo")
	d.send(`{"type":"tool_result","id":"made \"up\" \u0007 ünicode","output":"x"}`)
	if ack := d.expect("result_acknowledged"); ack["id"] != "made \"up\" \a ünicode" || ack["ignored"] != true {
		t.Fatalf("acknowledged: %v", ack)
	}
	// A call of another session is not this device's to answer.
	other := g.connectWithTools("victim", "echo")
	done := g.call("victim", "echo", `{}`)
	id := other.expect("tool_call_request")["id"].(string)
	d.send(`{"type":"tool_result","id":"` + id + `","output":"forged"}`)
	if ack := d.expect("result_acknowledged"); ack["ignored"] != true {
		t.Fatalf("acknowledged: %v", ack)
	}
	other.send(`{"type":"tool_result","id":"` + id + `","output":"real"}`)
	if o := await(t, done); o.err != nil || o.result.Output != "real" {
		t.Fatalf("outcome: %+v", o)
	}
}

func TestCallsOfOneDeviceRunConcurrently(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	d := g.connectWithTools("parallel", "echo")
	const n = 32
	outcomes := make([]<-chan outcome, n)
	ids := make([]string, n)
	for i := range n {
		outcomes[i] = g.call("parallel", "echo", `{}`)
		ids[i] = d.expect("tool_call_request")["id"].(string)
	}
	for i := n - 1; i >= 0; i-- { // answered in the opposite order
		d.send(`{"type":"tool_result","id":"` + ids[i] + `","output":"` + ids[i] + `"}`)
		d.expect("result_acknowledged")
	}
	for i := range n {
		if o := await(t, outcomes[i]); o.err != nil || o.result.Output != ids[i] {
			t.Fatalf("call %d: %+v", i, o)
		}
	}
}

func TestDisconnectFailsTheCallsAtOnce(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	d := g.connectWithTools("leaver", "echo")
	done := g.call("leaver", "echo", `{}`)
	d.expect("tool_call_request")
	must(t, d.conn.Close())
	o := await(t, done)
	var failed *registry.Error
	if !errors.As(o.err, &failed) || failed.Code != registry.CodeConnectionLost ||
		failed.Dispatched != registry.DispatchedYes {
		t.Fatalf("outcome: %+v", o)
	}
	g.waitReleased()
	_, err := g.pod.Router.Resolve(context.Background(), registry.DefaultTenant, "echo",
		registry.Target{SessionID: "leaver"}, registry.SelectNone)
	if !errors.Is(err, registry.CodeNotConnected) {
		t.Fatalf("resolve after the disconnect: %v", err)
	}
}

func TestTooLargeArgumentsAreRefusedWithoutHarm(t *testing.T) {
	t.Parallel()
	g := newGateway(t, func(c *ws.Config) { c.MaxOutbound = 64 << 10 })
	d := g.connectWithTools("small", "echo")
	o := await(t, g.call("small", "echo", `{"x":"`+strings.Repeat("x", 64<<10)+`"}`))
	if !errors.Is(o.err, registry.CodePayloadTooLarge) {
		t.Fatalf("outcome: %+v", o)
	}
	d.alive()
}

func TestConnectUpdatesTheSession(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	d := g.connect("described")
	d.send(`{"type":"connect","v":1,"session_id":"described","device_name":"Pixel 8",` +
		`"capabilities":["drain","cancel"],"device_id":"dev-1","platform":"android","labels":{"room":"kitchen"}}`)
	d.expect("connected")
	key := registry.Key{Tenant: registry.DefaultTenant, Session: "described"}
	e, err := g.store.Entry(context.Background(), key)
	must(t, err)
	s := e.Session
	if s.DeviceName != "Pixel 8" || s.DeviceID != "dev-1" || s.Platform != "android" || s.Labels["room"] != "kitchen" ||
		!s.Can(registry.CapabilityDrain) || !s.Can(registry.CapabilityCancel) {
		t.Fatalf("session: %+v", s)
	}
	// What a second connect does not mention stays.
	d.send(`{"type":"connect","platform":"ios"}`)
	d.expect("connected")
	if s := g.pod.Hub.Get(key).Session(); s.Platform != "ios" || s.DeviceName != "Pixel 8" {
		t.Fatalf("session: %+v", s)
	}
}
