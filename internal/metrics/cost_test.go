package metrics_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/registry"
)

// BenchmarkCallEnded is what a Meter adds to a call.
func BenchmarkCallEnded(b *testing.B) {
	p := newTestPod(b)
	end := agent.CallEnd{
		Endpoint: agent.EndpointAPI, Route: agent.RouteLocal, Outcome: agent.OutcomeSucceeded,
		Duration: 3 * time.Millisecond,
	}
	for b.Loop() {
		p.set.Calls.CallEnded(end)
	}
}

// BenchmarkRequested is what a Meter adds to a request.
func BenchmarkRequested(b *testing.B) {
	p := newTestPod(b)
	for b.Loop() {
		p.set.HTTP.Requested(http.MethodPost, "/api/tools/:name/call", 200, "", 3*time.Millisecond, "")
	}
}

// BenchmarkCall is a light call to a device over a real socket, with and without metrics by turns: the numbers to
// compare are of one run.
func BenchmarkCall(b *testing.B) {
	p := newTestPod(b)
	conn := p.connectEcho()
	defer conn.Close()
	policy, err := agent.NewPolicy(agent.PolicyRules{})
	p.must(err)
	invokers := map[string]*agent.Invoker{
		"with": agent.NewInvoker(agent.Config{Router: p.Router, CallLog: p.Calls, Policy: policy, Pod: "pod",
			Meter: p.set.Calls}),
		"none": agent.NewInvoker(agent.Config{Router: p.Router, CallLog: p.Calls, Policy: policy, Pod: "pod"}),
	}
	spent, order := make(map[string][]time.Duration), []string{"with", "none"}
	for b.Loop() {
		order[0], order[1] = order[1], order[0] // whoever is second finds what the first has left behind
		for _, name := range order {
			req := agent.Request{
				Tool: "echo", Args: registry.MustJSON("{}"), Target: registry.Target{SessionID: "phone"},
				Endpoint: agent.EndpointAPI,
			}
			req.Caller.Tenant = registry.DefaultTenant
			began := time.Now()
			out, err := invokers[name].Invoke(context.Background(), req)
			took := time.Since(began)
			if err != nil || !out.Result.Success {
				b.Fatal(err)
			}
			if name == "with" {
				p.set.HTTP.Requested(http.MethodPost, "/api/tools/:name/call", 200, "", took, "")
			}
			spent[name] = append(spent[name], time.Since(began))
		}
	}
	with, without := median(spent["with"]), median(spent["none"])
	b.ReportMetric(with, "ns/with")
	b.ReportMetric(without, "ns/without")
	b.ReportMetric(100*(with/without-1), "%slower")
}

// median keeps what else the machine does out of the comparison.
func median(all []time.Duration) float64 {
	slices.Sort(all)
	return float64(all[len(all)/2])
}

// connectEcho connects a device that answers every call of the tool echo.
func (p *testPod) connectEcho() *websocket.Conn {
	p.Helper()
	conn, _, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(p.http.URL,
		"http")+"/ws/chat?session_id=phone", nil)
	p.must(err)
	p.must(conn.WriteJSON(map[string]any{"type": "connect"}))
	p.must(conn.WriteJSON(map[string]any{"type": "register_tools", "tools": []any{map[string]any{"name": "echo"}}}))
	registered := make(chan struct{})
	go func() {
		for {
			var frame struct{ Type, ID string }
			if conn.ReadJSON(&frame) != nil {
				return
			}
			switch frame.Type {
			case "tools_registered":
				close(registered)
			case "tool_call_request":
				_ = conn.WriteJSON(map[string]any{"type": "tool_result", "id": frame.ID, "output": "done"})
			}
		}
	}()
	select {
	case <-registered:
	case <-time.After(time.Minute):
		p.Fatal("the device has not registered")
	}
	return conn
}
