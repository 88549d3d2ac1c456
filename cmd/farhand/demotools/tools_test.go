package demotools

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/ws/client"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// run calls a tool and returns its output as JSON, or its error.
func run(t *testing.T, tools []Tool, name, args string) (string, error) {
	t.Helper()
	for _, tool := range tools {
		if tool.Name != name {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), testkit.Limit)
		defer cancel()
		out, err := tool.Handler(ctx, client.Call{ID: "1", Tool: name, Args: json.RawMessage(args)})
		if err != nil {
			return "", err
		}
		b, err := json.Marshal(out)
		if err != nil {
			t.Fatal(err)
		}
		return string(b), nil
	}
	t.Fatalf("there is no tool %s", name)
	return "", nil
}

func TestBasicToolsAnswer(t *testing.T) {
	for _, tt := range []struct{ name, args, want string }{
		{"device_info", `{}`, `"hostname":"`},
		{"sensors", `{}`, `"read_at":"`},
		{"sensors", `{"type":"memory"}`, `"memory":{"total_bytes":`},
		{"echo", `{"text":"hällo"}`, `"hällo"`},
		{"sleep", `{"seconds":0.001}`, `"slept 1ms"`},
	} {
		out, err := run(t, Basic(), tt.name, tt.args)
		if err != nil || !strings.Contains(out, tt.want) {
			t.Errorf("%s %s: %s, %v", tt.name, tt.args, out, err)
		}
	}
	if out, _ := run(t, Basic(), "sensors", `{"type":"load"}`); strings.Contains(out, "memory") {
		t.Errorf("asked for the load alone: %s", out)
	}
}

func TestSleepEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := sleep(ctx, struct{ Seconds float64 }{600}); err == nil {
		t.Error("it slept on")
	}
}

func TestChoose(t *testing.T) {
	chosen, err := Choose(Basic(), []string{"echo", "sensors"})
	if err != nil || len(chosen) != 2 || chosen[0].Name != "echo" {
		t.Errorf("%v, %v", chosen, err)
	}
	if _, err := Choose(Basic(), []string{"camera"}); err == nil || !strings.Contains(err.Error(), "device_info") {
		t.Errorf("an unknown tool: %v", err)
	}
	if all, err := Choose(Basic(), nil); err != nil || len(all) != len(Basic()) {
		t.Errorf("no choice: %v, %v", all, err)
	}
}
