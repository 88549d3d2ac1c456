package api_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/api"
	"github.com/farhand/farhand/registry"
)

// clock is a tool of the gateway itself.
type clock struct{}

func (clock) Spec() registry.ToolSpec { return tool("clock", "tells the time") }

func (clock) Execute(context.Context, json.RawMessage) (registry.Result, error) {
	return registry.Result{Success: true, Output: "noon"}, nil
}

func TestBuiltinTool(t *testing.T) {
	box, err := agent.NewLocalTools(agent.Registration{
		Names: []string{"clock"}, Make: func(agent.SessionContext) []agent.Tool { return []agent.Tool{clock{}} },
	})
	if err != nil {
		t.Fatal(err)
	}
	f := newFleet(t, setup{pods: 2, builtins: box})
	for _, body := range []string{`{}`, `{"idempotency_key":"k"}`} {
		if got := decode[answer](f.post("/api/tools/clock/call", body), 200); got.Output != "noon" ||
			got.SessionID != "" {
			t.Errorf("%s: %+v", body, got)
		}
	}
	a := decode[answer](f.post("/api/tools/clock/call", `{"mode":"async"}`), 202)
	rec := decode[map[string]any](f.send(request{path: "/api/calls/" + a.CallID + "?wait_ms=10000", pod: 1}), 200)
	if rec["state"] != "succeeded" || rec["status"] != "completed" || rec["source"] != "builtin" ||
		rec["session_id"] != nil || rec["output"] != "noon" {
		t.Errorf("record %v", rec)
	}
}

// A call of a conversation is found by its turn, and its status follows its state.
func TestCallOfATurn(t *testing.T) {
	var invoker *agent.Invoker
	f := newFleet(t, setup{change: func(c *api.Config) { invoker = c.Invoker }})
	d := f.connect(0, session("s1"), silent, tools("t")...)
	done := make(chan error, 1)
	id := registry.NewCallID()
	go func() {
		_, err := invoker.Invoke(t.Context(), agent.Request{
			CallID: id, Caller: auth.Identity{Tenant: registry.DefaultTenant}, Tool: "t",
			Target: registry.Target{SessionID: "s1"}, Turn: "turn-1",
		})
		done <- err
	}()
	d.local.Progress(d.delivered().ID, nil, nil, "", "")
	for running := false; !running; { // the record of a light call is written in batches
		got := f.get("/api/calls/" + id)
		if got.status == 404 {
			continue
		}
		r := decode[record](got, 200)
		if running = r.State == registry.StateRunning; r.TurnID != "turn-1" ||
			running != (r.Status == registry.StatusExecuting) {
			t.Fatalf("record %+v", r)
		}
	}
	d.settle(id, registry.Result{Success: true})
	if err := await(t, "the answer", done); err != nil {
		t.Fatal(err)
	}
	if r := f.record(0, id, "?wait_ms=10000"); r.Status != registry.StatusCompleted || r.TurnID != "turn-1" {
		t.Errorf("record %+v", r)
	}
}
