package ws_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/ws"
	"github.com/farhand/farhand/ws/client"
)

// runSDK runs a device of package client until the test ends.
func (g *gateway) runSDK(options ...client.Option) (c *client.Client, states <-chan client.State, done <-chan error) {
	g.t.Helper()
	return runSDK(g.t, g.http.URL, options...)
}

func runSDK(t *testing.T, address string,
	options ...client.Option) (c *client.Client, states <-chan client.State, done <-chan error) {
	t.Helper()
	changes := make(chan client.State, 256)
	options = append([]client.Option{
		client.WithToken(testToken), client.WithBackoff(time.Millisecond, 10*time.Millisecond),
		client.WithState(func(s client.State) { changes <- s }),
	}, options...)
	c, err := client.New(address, options...)
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	result, finished := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(finished)
		result <- c.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-finished
	})
	return c, changes, result
}

func receive[T any](t *testing.T, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(testTimeout):
		t.Fatal("waited in vain")
		panic("unreachable")
	}
}

// connected waits until the gateway has confirmed n tools.
func connected(t *testing.T, states <-chan client.State, n int) client.State {
	t.Helper()
	for {
		if s := receive(t, states); s.Phase == client.PhaseConnected && s.Registered == n {
			return s
		}
	}
}

func echo(_ context.Context, call client.Call) (any, error) { return call.Args, nil }

func TestSDKCalls(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	c, states, _ := g.runSDK(client.WithSession("sdk"), client.WithDevice("dev", "Dev", "linux"),
		client.WithLabels(map[string]string{"room": "lab"}),
		client.WithTool(client.Tool{Name: "echo", Description: "returns its arguments", Timeout: time.Minute}, echo),
		client.WithTool(client.Tool{Name: "fails"},
			func(context.Context, client.Call) (any, error) { return nil, errors.New("broken") }),
		client.WithTool(client.Tool{Name: "panics"}, func(context.Context, client.Call) (any, error) { panic("oh") }))
	<-c.Ready()
	if s := connected(t, states, 3); s.SessionID != "sdk" || s.Resumed || len(s.Rejected) != 0 {
		t.Fatalf("state: %+v", s)
	}
	session := g.session("sdk").Session()
	if session.DeviceID != "dev" || session.Labels["room"] != "lab" || !session.Can(registry.CapabilityDrain) {
		t.Fatalf("session: %+v", session)
	}
	if o := await(t, g.call("sdk", "echo", `{"n":12345678901234567890}`)); o.err != nil ||
		o.result.Structured.String() != `{"n":12345678901234567890}` {
		t.Fatalf("echo: %+v", o)
	}
	if o := await(t, g.call("sdk", "fails", `{}`)); o.err != nil || o.result.Success || o.result.Error != "broken" {
		t.Fatalf("fails: %+v", o)
	}
	if o := await(t, g.call("sdk", "panics", `{}`)); o.err != nil || o.result.Success ||
		!strings.Contains(o.result.Error, "oh") {
		t.Fatalf("panics: %+v", o)
	}
	must(t, c.AddTool(client.Tool{Name: "late"}, echo))
	connected(t, states, 4)
	if o := await(t, g.call("sdk", "late", `{}`)); o.err != nil || !o.result.Success {
		t.Fatalf("late: %+v", o)
	}
	must(t, c.RemoveTool("late"))
	connected(t, states, 3)
}

func TestSDKComesBackAndRegistersAgain(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	r := newRelay(t, g)
	c, states, _ := runSDK(t, r.url(), client.WithSession("phoenix"), client.WithTool(client.Tool{Name: "echo"}, echo))
	connected(t, states, 1)
	lost := r.lose()
	must(t, c.AddTool(client.Tool{Name: "second"}, echo))
	<-lost
	r.disconnect()
	connected(t, states, 2)
	if o := await(t, g.call("phoenix", "second", `{}`)); o.err != nil || !o.result.Success {
		t.Fatalf("call: %+v", o)
	}
}

func TestSDKRejectedTool(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	_, states, _ := g.runSDK(client.WithTool(client.Tool{Name: "forbidden_tool"}, echo),
		client.WithTool(client.Tool{Name: "echo"}, echo))
	if s := connected(t, states, 1); len(s.Rejected) != 1 || s.Rejected[0].Name != "forbidden_tool" {
		t.Fatalf("state: %+v", s)
	}
}

func TestSDKRegistersMoreThanOneFrameHolds(t *testing.T) {
	t.Parallel()
	g := newGateway(t, func(c *ws.Config) {
		c.Admission = newAdmission(t, agent.AdmissionLimits{MaxToolBytes: 4 << 20})
	})
	var options []client.Option
	for i := range 22 {
		schema, err := json.Marshal(map[string]any{"type": "object", "description": strings.Repeat("x", 50<<10)})
		must(t, err)
		options = append(options, client.WithTool(client.Tool{Name: fmt.Sprintf("big_%d", i), Parameters: schema},
			echo))
	}
	c, states, _ := g.runSDK(options...)
	<-c.Ready()
	connected(t, states, 22)
}

// TestTwoSDKsOfOneSession: the first keeps it, the other one waits longer and longer, and gets it when the first is
// ended.
func TestTwoSDKsOfOneSession(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	_, states, first := g.runSDK(client.WithSession("one"), client.WithTool(client.Tool{Name: "echo"}, echo))
	connected(t, states, 1)
	_, others, _ := g.runSDK(client.WithSession("one"), client.WithTool(client.Tool{Name: "echo"}, echo),
		client.WithTool(client.Tool{Name: "second"}, echo))
	for range 3 {
		s := receive(t, others)
		for ; s.Phase != client.PhaseWaiting; s = receive(t, others) {
		}
		if !errors.Is(s.Err, client.ErrHeld) {
			t.Fatalf("state: %+v", s)
		}
	}
	if o := await(t, g.call("one", "echo", `{}`)); o.err != nil {
		t.Fatalf("call: %+v", o)
	}
	must(t, g.pod.Hub.Kick(context.Background(), g.session("one").Session()))
	if err := receive(t, first); !errors.Is(err, client.ErrEnded) {
		t.Fatalf("Run returned %v", err)
	}
	connected(t, others, 2)
}

func TestSDKWrongTokenIsFinal(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	_, _, done := g.runSDK(client.WithToken("wrong"))
	var refused *client.RefusedError
	if err := receive(t, done); !errors.Is(err, client.ErrRefused) || !errors.As(err, &refused) ||
		refused.Code != "unauthenticated" {
		t.Fatalf("Run returned %v", err)
	}
}

func TestSDKManyCallsAtOnce(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	_, states, _ := g.runSDK(client.WithSession("busy"), client.WithTool(client.Tool{Name: "echo"}, echo))
	connected(t, states, 1)
	for range 10 {
		var all []<-chan outcome
		for i := range 64 {
			all = append(all, g.call("busy", "echo", fmt.Sprintf(`{"i":%d}`, i)))
		}
		for i, done := range all {
			if o := await(t, done); o.err != nil || o.result.Output != fmt.Sprintf(`{"i":%d}`, i) {
				t.Fatalf("call %d: %+v", i, o)
			}
		}
	}
}
