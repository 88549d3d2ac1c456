package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/farhand/farhand/ws/client"
)

func newContext() (context.Context, context.CancelFunc) {
	return context.WithCancel(context.Background())
}

func answer(text string) client.Handler {
	return func(context.Context, client.Call) (any, error) { return text, nil }
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	c, _, _ := start(t, f.http.URL,
		client.WithTool(client.Tool{Name: "text"}, answer("hello <&>")),
		client.WithTool(client.Tool{Name: "nothing"},
			func(context.Context, client.Call) (any, error) { return nil, nil }),
		client.WithTool(client.Tool{Name: "json"}, func(_ context.Context, call client.Call) (any, error) {
			var args struct{ N int }
			err := call.Bind(&args)
			return map[string]any{"n": args.N, "id": call.ID, "tool": call.Tool}, err
		}),
		client.WithTool(client.Tool{Name: "raw"}, func(context.Context, client.Call) (any, error) {
			return json.RawMessage(`{"big":12345678901234567890}`), nil
		}),
		client.WithTool(client.Tool{Name: "fails"},
			func(context.Context, client.Call) (any, error) { return nil, errors.New("no camera") }),
		client.WithTool(client.Tool{Name: "panics"},
			func(context.Context, client.Call) (any, error) { panic("lens cap") }),
		client.WithTool(client.Tool{Name: "exits"},
			func(context.Context, client.Call) (any, error) { runtime.Goexit(); return nil, nil }),
		client.WithTool(client.Tool{Name: "unsendable"},
			func(context.Context, client.Call) (any, error) { return make(chan int), nil }),
		client.WithTool(client.Tool{Name: "huge"},
			func(context.Context, client.Call) (any, error) { return strings.Repeat("x", 2<<20), nil }),
		client.WithTool(client.Tool{Name: "orphan"}, nil),
	)
	p := f.accept()
	wait(t, c.Ready())
	if c.SessionID() != "given" {
		t.Fatalf("session id %q", c.SessionID())
	}
	for _, tc := range []struct {
		tool   string
		output any
		fails  string
	}{
		{tool: "text", output: "hello <&>"},
		{tool: "nothing", output: ""},
		{tool: "json", output: map[string]any{"n": 1.0, "id": "call-json", "tool": "json"}},
		{tool: "raw", output: map[string]any{"big": 12345678901234567890.0}},
		{tool: "fails", fails: "no camera"},
		{tool: "panics", fails: "lens cap"},
		{tool: "exits", fails: "without a result"},
		{tool: "unsendable", fails: "JSON"},
		{tool: "huge", fails: "too large"},
		{tool: "orphan", fails: "No handler registered"},
		{tool: "unheard_of", fails: "Unknown tool"},
	} {
		p.call("call-"+tc.tool, tc.tool, 10_000)
		got := p.next()
		if got["id"] != "call-"+tc.tool {
			t.Fatalf("%s: answer to another call: %v", tc.tool, got)
		}
		if tc.fails != "" {
			text, _ := got["error"].(string)
			if got["type"] != "tool_error" || got["success"] != false || !strings.Contains(text, tc.fails) {
				t.Errorf("%s: %v", tc.tool, got)
			}
			continue
		}
		want, err := json.Marshal(tc.output)
		must(t, err)
		have, err := json.Marshal(got["output"])
		must(t, err)
		if got["type"] != "tool_result" || got["success"] != true || string(want) != string(have) {
			t.Errorf("%s: %v", tc.tool, got)
		}
	}
}

func TestFallbackAnswersToolsWithoutHandler(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	_, _, _ = start(t, f.http.URL,
		client.WithTool(client.Tool{Name: "orphan"}, nil),
		client.WithHandler(func(_ context.Context,
			call client.Call) (any, error) {
			return "fallback of " + call.Tool, nil
		}))
	p := f.accept()
	p.call("1", "orphan", 10_000)
	if got := p.expect("tool_result"); got["output"] != "fallback of orphan" {
		t.Fatalf("answer: %v", got)
	}
}

func TestOneAnswerPerCall(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	var runs atomic.Int64
	entered, release := make(chan struct{}, 4), make(chan struct{})
	_, _, _ = start(t, f.http.URL,
		client.WithTool(client.Tool{Name: "once"}, func(context.Context, client.Call) (any, error) {
			entered <- struct{}{}
			<-release
			return runs.Add(1), nil
		}))
	p := f.accept()
	p.call("same", "once", 10_000)
	wait(t, entered)
	p.call("same", "once", 10_000) // while it runs: ignored
	p.call("other", "unheard_of", 10_000)
	if got := p.expect("tool_error"); got["id"] != "other" {
		t.Fatalf("answer: %v", got)
	}
	close(release)
	if got := p.expect("tool_result"); got["output"] != 1.0 {
		t.Fatalf("answer: %v", got)
	}
	p.call("same", "once", 10_000) // answered: the same again
	if got := p.expect("tool_result"); got["id"] != "same" || got["output"] != 1.0 {
		t.Fatalf("answer: %v", got)
	}
	// Also after a reconnect.
	must(t, p.conn.Close())
	p = f.accept()
	p.call("same", "once", 10_000)
	if got := p.expect("tool_result"); got["output"] != 1.0 || runs.Load() != 1 {
		t.Fatalf("answer: %v after %d runs", got, runs.Load())
	}
}

func TestAnswersOutliveTheConnection(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	entered, release := make(chan struct{}), make(chan struct{})
	_, _, _ = start(t, f.http.URL,
		client.WithTool(client.Tool{Name: "slow"}, func(context.Context, client.Call) (any, error) {
			close(entered)
			<-release
			return "done", nil
		}))
	p := f.accept()
	p.call("1", "slow", 10_000)
	wait(t, entered)
	must(t, p.conn.Close())
	p = f.accept()
	close(release)
	if got := p.expect("tool_result"); got["id"] != "1" || got["output"] != "done" {
		t.Fatalf("answer: %v", got)
	}
}

// A handler whose caller has stopped waiting goes on, and its answer is sent: the gateway keeps it.
func TestLateHandlerFinishes(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	_, _, _ = start(t, f.http.URL,
		client.WithTool(client.Tool{Name: "late"}, func(ctx context.Context, call client.Call) (any, error) {
			awaited, stop := call.Awaited(ctx)
			defer stop()
			<-awaited.Done() // the caller has stopped waiting
			if ctx.Err() != nil || time.Now().Before(call.Deadline) {
				return nil, fmt.Errorf("ended at the deadline %v: %w", call.Deadline, context.Cause(ctx))
			}
			return "late, but whole", nil
		}))
	p := f.accept()
	p.call("c", "late", 20)
	if got := p.expect("tool_result"); got["output"] != "late, but whole" {
		t.Fatalf("answer: %v", got)
	}
}

func TestDeadlineAndCancelReachTheHandler(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	_, _, _ = start(t, f.http.URL,
		client.WithTool(client.Tool{Name: "waits"}, func(ctx context.Context, call client.Call) (any, error) {
			if _, ok := ctx.Deadline(); !ok {
				return nil, errors.New("no deadline")
			}
			if call.ID == "short" {
				awaited, stop := call.Awaited(ctx)
				defer stop()
				ctx = awaited
			}
			<-ctx.Done()
			return nil, context.Cause(ctx)
		}))
	p := f.accept()
	p.call("short", "waits", 20)
	if got := p.expect("tool_error"); !strings.Contains(got["error"].(string), "deadline") {
		t.Fatalf("answer: %v", got)
	}
	p.call("long", "waits", 60_000)
	p.send(map[string]any{"type": "tool_call_cancel", "id": "long", "reason": "caller hung up"})
	if got := p.expect("tool_error"); !strings.Contains(got["error"].(string), "caller hung up") {
		t.Fatalf("answer: %v", got)
	}
	p.send(map[string]any{"type": "tool_call_cancel", "id": "unknown", "reason": "x"})
	p.send(map[string]any{"type": "a_frame_of_the_future", "id": 7})
	p.call("still", "alive", 1000)
	p.expect("tool_error")
}

func TestParallelismIsBounded(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	var now, most atomic.Int64
	release := make(chan struct{})
	entered := make(chan struct{}, 16)
	_, _, _ = start(t, f.http.URL, client.WithParallelism(2),
		client.WithTool(client.Tool{Name: "work"}, func(context.Context, client.Call) (any, error) {
			if n := now.Add(1); n > most.Load() {
				most.Store(n)
			}
			entered <- struct{}{}
			<-release
			now.Add(-1)
			return nil, nil
		}))
	p := f.accept()
	for _, id := range []string{"a", "b", "c", "d"} {
		p.call(id, "work", 10_000)
	}
	wait(t, entered)
	wait(t, entered)
	p.call("expires", "work", 20) // never gets its turn
	if got := p.expect("tool_error"); got["id"] != "expires" ||
		!strings.Contains(got["error"].(string), "not started") {
		t.Fatalf("answer: %v", got)
	}
	close(release)
	for range 4 {
		p.expect("tool_result")
	}
	if most.Load() != 2 {
		t.Fatalf("%d ran at once", most.Load())
	}
}

func TestReconnectRegistersAgainUnderTheSameSession(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	states := make(chan client.State, 64)
	c, _, _ := start(t, f.http.URL, client.WithName("Kitchen"), client.WithTool(client.Tool{Name: "a"}, answer("a")),
		client.WithState(func(s client.State) { states <- s }))
	p := f.accept()
	if p.query["session_id"] != nil || p.query["name"][0] != "Kitchen" {
		t.Fatalf("first query: %v", p.query)
	}
	wait(t, c.Ready())
	must(t, c.AddTool(client.Tool{Name: "b"}, answer("b")))
	if got := p.expect("register_tools"); len(got["tools"].([]any)) != 1 {
		t.Fatalf("added: %v", got)
	}
	must(t, c.RemoveTool("a"))
	if got := p.expect("unregister_tools"); got["names"].([]any)[0] != "a" {
		t.Fatalf("removed: %v", got)
	}
	p.close(1012, "server_restart")

	second := wait(t, f.conns)
	second.expect("connect")
	second.send(map[string]any{"type": "session_start", "v": 1, "session_id": "given"})
	tools := second.expect("register_tools")["tools"].([]any)
	if len(tools) != 1 || tools[0].(map[string]any)["name"] != "b" || second.query["session_id"][0] != "given" {
		t.Fatalf("second time: %v, %v", tools, second.query)
	}
	var phases []client.Phase
	for len(states) > 0 {
		phases = append(phases, (<-states).Phase)
	}
	if len(phases) < 4 || phases[0] != client.PhaseConnecting || phases[1] != client.PhaseConnected ||
		phases[2] != client.PhaseWaiting {
		t.Fatalf("phases: %v", phases)
	}
}

func TestDrainingWaitsAsLongAsAsked(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	states := make(chan client.State, 64)
	_, _, _ = start(t, f.http.URL, client.WithState(func(s client.State) { states <- s }))
	p := f.accept()
	p.send(map[string]any{"type": "server_draining", "retry_after_ms": 150})
	p.close(1012, "server_restart")
	for s := wait(t, states); s.Phase != client.PhaseWaiting; s = wait(t, states) {
	}
	begin := time.Now()
	f.accept()
	if waited := time.Since(begin); waited < 100*time.Millisecond {
		t.Fatalf("came back after %v", waited)
	}
}

func TestCodesThatEndIt(t *testing.T) {
	t.Parallel()
	for reason, want := range map[string]error{"session_ended": client.ErrEnded, "": client.ErrEnded} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			_, done, _ := start(t, f.http.URL)
			f.accept().close(1000, reason)
			if err := wait(t, done); !errors.Is(err, want) {
				t.Fatalf("Run returned %v", err)
			}
		})
	}
}

// TestRivalsAreGivenMoreAndMoreTime: while another connection has the session the client comes back, each time later,
// and the connection it has in between does not make it forget.
func TestRivalsAreGivenMoreAndMoreTime(t *testing.T) {
	t.Parallel()
	for reason, want := range map[string]error{"session_replaced": client.ErrReplaced,
		"session_owner_mismatch": client.ErrHeld} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			const least, most = 8 * time.Millisecond, 64 * time.Millisecond
			f := newFake(t)
			states := make(chan client.State, 256)
			start(t, f.http.URL, client.WithBackoff(least, most),
				client.WithState(func(s client.State) { states <- s }))
			for _, atLeast := range []time.Duration{4, 8, 16, 32, 32, 32} {
				atLeast *= time.Millisecond
				f.accept().close(1000, reason)
				s := wait(t, states)
				for ; s.Phase != client.PhaseWaiting; s = wait(t, states) {
				}
				if !errors.Is(s.Err, want) || s.RetryIn < atLeast || s.RetryIn > 2*atLeast {
					t.Fatalf("%v, in %v; want %v after at least %v", s.Err, s.RetryIn, want, atLeast)
				}
			}
		})
	}
}

// TestTokenIsPresented: the first one the client was given, in every connect from then on.
func TestTokenIsPresented(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	start(t, f.http.URL)
	for i, want := range []any{nil, "token-number-1", "token-number-1"} {
		p := wait(t, f.conns)
		connect := p.expect("connect")
		if connect["resume_token"] != want || !slices.Contains(connect["capabilities"].([]any), any("resume_token")) {
			t.Fatalf("connect: %v, want the token %v", connect, want)
		}
		p.send(map[string]any{
			"type": "session_start", "v": 1, "session_id": "given", "resume_token": fmt.Sprintf("token-number-%d", i+1),
		})
		p.expect("register_tools")
		p.close(1012, "server_restart")
	}
}

func TestRefusalEndsItAndOutagesDoNot(t *testing.T) {
	t.Parallel()
	var status atomic.Int64
	var requests atomic.Int64
	status.Store(http.StatusServiceUnavailable)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if requests.Add(1) == 3 {
			status.Store(http.StatusUnauthorized)
		}
		w.WriteHeader(int(status.Load()))
		_, _ = w.Write([]byte(`{"code":"unauthenticated","detail":"A valid bearer token is required."}`))
	}))
	defer srv.Close()
	_, done, _ := start(t, srv.URL)
	err := wait(t, done)
	var refused *client.RefusedError
	if !errors.Is(err, client.ErrRefused) || !errors.As(err, &refused) || refused.Status != 401 ||
		refused.Code != "unauthenticated" {
		t.Fatalf("Run returned %v", err)
	}
	if requests.Load() != 3 {
		t.Fatalf("%d requests", requests.Load())
	}
}

func TestSilentGatewayIsGivenUp(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	_, _, _ = start(t, f.http.URL, client.WithSilence(50*time.Millisecond))
	f.accept()
	f.accept() // it came back by itself
}

func TestRunEndsWithItsContext(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	stopped := make(chan struct{})
	entered := make(chan struct{})
	c, done, cancel := start(t, f.http.URL,
		client.WithTool(client.Tool{Name: "hangs"}, func(ctx context.Context, _ client.Call) (any, error) {
			close(entered)
			<-ctx.Done()
			close(stopped)
			return nil, ctx.Err()
		}))
	p := f.accept()
	p.call("1", "hangs", 60_000)
	wait(t, entered)
	if err := c.Run(context.Background()); err == nil {
		t.Fatal("two Runs at once")
	}
	cancel()
	if err := wait(t, done); !errors.Is(err, context.Canceled) {
		t.Fatalf("Run returned %v", err)
	}
	select {
	case <-stopped:
	default:
		t.Fatal("Run returned before its handler")
	}
}

func TestWrongConfiguration(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		address string
		option  client.Option
	}{
		"scheme":      {"ftp://host", nil},
		"no host":     {"ws:///ws/chat", nil},
		"tool name":   {"ws://host", client.WithTool(client.Tool{Name: "no spaces"}, nil)},
		"parameters":  {"ws://host", client.WithTool(client.Tool{Name: "a", Parameters: json.RawMessage(`{`)}, nil)},
		"parallelism": {"ws://host", client.WithParallelism(0)},
		"back-off":    {"ws://host", client.WithBackoff(time.Second, time.Millisecond)},
		"limits":      {"ws://host", client.WithFrameLimits(0, -1)},
	} {
		options := []client.Option{}
		if tc.option != nil {
			options = append(options, tc.option)
		}
		if _, err := client.New(tc.address, options...); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestToolNames(t *testing.T) {
	for name, valid := range map[string]bool{
		"a": true, strings.Repeat("ä", 64): true, "_a.b-c9": true,
		"": false, strings.Repeat("a", 65): false, ".a": false, "a b": false, "a\xff": false,
	} {
		_, err := client.New("http://127.0.0.1:1", client.WithTool(client.Tool{Name: name}, nil))
		if (err == nil) != valid {
			t.Errorf("%q: %v", name, err)
		}
	}
}
