package client_test

import (
	"context"
	"math"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/farhand/farhand/ws/client"
)

func TestProgressAndChunks(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	long := strings.Repeat("ä", 50<<10) // 100 KiB
	_, _, _ = start(t, f.http.URL,
		client.WithTool(client.Tool{Name: "reports"}, func(_ context.Context, call client.Call) (any, error) {
			call.Progress(1, 4, "loading "+strings.Repeat("ü", 1<<10))
			call.Progress(2.5, 0, "")
			call.Progress(math.NaN(), 1, "never seen")
			call.Chunk("<first>")
			call.Chunk(long)
			call.Chunk("")
			return "done", nil
		}))
	p := f.accept()
	p.call("1", "reports", 10_000)
	got := p.expect("tool_progress")
	if message := got["message"].(string); got["id"] != "1" || got["progress"] != 1.0 || got["total"] != 4.0 ||
		!strings.HasPrefix(message, "loading ü") || len(message) > 1<<10 || !utf8.ValidString(message) {
		t.Fatalf("progress: %v", got)
	}
	got = p.expect("tool_progress")
	if _, known := got["total"]; known || got["progress"] != 2.5 || got["message"] != nil || got["chunk"] != nil {
		t.Fatalf("progress: %v", got)
	}
	if got = p.expect("tool_progress"); got["chunk"] != "<first>" || got["progress"] != nil {
		t.Fatalf("chunk: %v", got)
	}
	first, second := p.expect("tool_progress")["chunk"].(string), p.expect("tool_progress")["chunk"].(string)
	if first+second != long || len(first) > 64<<10 {
		t.Fatalf("chunks of %d and %d bytes", len(first), len(second))
	}
	if got := p.expect("tool_result"); got["output"] != "done" {
		t.Fatalf("answer: %v", got)
	}
	client.Call{}.Progress(1, 2, "of no client")
	client.Call{}.Chunk("of no client")
}

func TestSlowHandlersAreAnnounced(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	release := make(chan struct{})
	_, _, _ = start(t, f.http.URL,
		client.WithTool(client.Tool{Name: "slow"}, func(context.Context, client.Call) (any, error) {
			<-release
			return "late", nil
		}))
	p := f.accept()
	p.call("1", "slow", 10_000)
	if got := p.raw(); got["type"] != "tool_call_accepted" || got["id"] != "1" {
		t.Fatalf("got %v", got)
	}
	close(release)
	p.expect("tool_result")
}

func TestFloodOfProgressIsThinnedOut(t *testing.T) {
	t.Parallel()
	const reports = 5000
	f := newFake(t)
	_, _, _ = start(t, f.http.URL,
		client.WithTool(client.Tool{Name: "chatty"}, func(_ context.Context, call client.Call) (any, error) {
			for i := range reports {
				call.Progress(float64(i), reports, "")
			}
			return nil, nil
		}))
	p := f.accept()
	p.call("1", "chatty", 10_000)
	seen := 0
	for frame := p.next(); frame["type"] != "tool_result"; frame = p.next() {
		seen++
	}
	if seen == 0 || seen == reports { // how many depends on how fast this machine is
		t.Fatalf("%d reports were sent", seen)
	}
}

func TestUnacknowledgedAnswersAreSentAgain(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	_, _, _ = start(t, f.http.URL,
		client.WithTool(client.Tool{Name: "echo"}, func(_ context.Context, call client.Call) (any, error) {
			return call.ID, nil
		}))
	p := f.accept()
	for _, id := range []string{"1", "2"} {
		p.call(id, "echo", 10_000)
		if got := p.raw(); got["type"] != "tool_result" || got["id"] != id { // and says nothing
			t.Fatalf("answer: %v", got)
		}
	}
	must(t, p.conn.Close())
	p = f.accept()
	if first, second := p.expect("tool_result"), p.expect("tool_result"); first["output"] != "1" ||
		second["output"] != "2" {
		t.Fatalf("sent again: %v, %v", first, second)
	}
	p.call("sees", "the acknowledgements first", 10_000)
	p.expect("tool_error")
	must(t, p.conn.Close())
	p = f.accept()
	p.call("nothing", "comes before this", 10_000)
	// whose acknowledgement may be lost
	if got := p.expect("tool_error"); got["id"] != "nothing" && got["id"] != "sees" {
		t.Fatalf("answer: %v", got)
	}
}

func TestDrainLetsRunningCallsFinish(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	entered, release := make(chan struct{}), make(chan struct{})
	_, _, _ = start(t, f.http.URL,
		client.WithTool(client.Tool{Name: "slow"}, func(ctx context.Context, call client.Call) (any, error) {
			entered <- struct{}{}
			<-release
			return call.ID, ctx.Err()
		}))
	p := f.accept()
	p.call("old socket", "slow", 10_000)
	p.call("new socket", "slow", 10_000)
	wait(t, entered)
	wait(t, entered)
	p.send(map[string]any{"type": "server_draining", "retry_after_ms": 1})
	release <- struct{}{}
	got := p.expect("tool_result")
	p.close(1012, "server_restart")
	p = f.accept()
	release <- struct{}{}
	other := p.expect("tool_result")
	if got["output"] == other["output"] {
		other = p.expect("tool_result") // the acknowledgement of the first was lost
	}
	if got["output"] == other["output"] {
		t.Fatalf("answers: %v, %v", got, other)
	}
}
