package client_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand/ws/client"
)

type said struct {
	text string
	err  error
}

// say begins a turn. The channel gets how it ended.
func say(ctx context.Context, c *client.Client, content string, t client.Turn) <-chan said {
	ended := make(chan said, 1)
	go func() {
		text, err := c.Say(ctx, content, t)
		ended <- said{text, err}
	}()
	return ended
}

func TestTurns(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	c, _, _ := start(t, f.http.URL)
	if _, err := c.Say(t.Context(), "too early", client.Turn{}); !errors.Is(err, client.ErrTurnLost) {
		t.Errorf("without a connection: %v", err)
	}
	p := f.accept()
	wait(t, c.Ready())
	if _, err := c.Say(t.Context(), strings.Repeat("x", 2<<20), client.Turn{}); err == nil {
		t.Error("a message is larger than a frame")
	}

	events := make(chan client.TurnEvent, 8)
	turn := say(t.Context(), c, "Hello", client.Turn{Debug: true, OnEvent: func(e client.TurnEvent) { events <- e }})
	if m := p.expect("message"); m["content"] != "Hello" || m["debug"] != true {
		t.Errorf("sent %v", m)
	}
	if _, err := c.Regenerate(t.Context(), client.Turn{}); !errors.Is(err, client.ErrTurnRuns) {
		t.Errorf("beside a turn: %v", err)
	}
	p.send(map[string]any{"type": "chunk", "content": 7}) // malformed
	p.send(map[string]any{"type": "tool_result", "id": "1", "name": "echo", "output": "x", "status": "completed"})
	p.send(map[string]any{"type": "error", "code": "RATE_LIMITED", "message": "Of another frame."})
	p.send(map[string]any{"type": "done", "full_response": "Hi."})
	if e := wait(t, events); e.Type != "tool_result" || e.Output != "x" || e.Name != "echo" {
		t.Errorf("event %+v", e)
	}
	if end := wait(t, turn); end.err != nil || end.text != "Hi." {
		t.Errorf("ended with %+v", end)
	}

	ctx, cancel := context.WithCancel(t.Context())
	turn = say(ctx, c, "a", client.Turn{})
	p.expect("message")
	cancel()
	p.expect("abort")
	p.send(map[string]any{"type": "aborted"})
	if end := wait(t, turn); !errors.Is(end.err, client.ErrTurnAborted) {
		t.Errorf("ended with %+v", end)
	}

	turn = say(t.Context(), c, "b", client.Turn{})
	p.expect("message")
	p.send(map[string]any{"type": "error", "code": "SESSION_BUSY", "message": "Busy.", "retry_after_ms": 2000})
	end := wait(t, turn)
	if failed, ok := errors.AsType[*client.TurnError](end.err); !ok || failed.Code != "SESSION_BUSY" ||
		failed.RetryAfter != 2*time.Second || !strings.Contains(failed.Error(), "Busy.") {
		t.Errorf("ended with %+v", end)
	}

	turn = say(t.Context(), c, "c", client.Turn{})
	p.expect("message")
	p.close(1012, "server_restart")
	if end := wait(t, turn); !errors.Is(end.err, client.ErrTurnLost) {
		t.Errorf("ended with %+v", end)
	}
}

// A client with the journal of an earlier one has its session, sends its answers again, and does not run its calls.
func TestRestartWithJournal(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	journal := filepath.Join(t.TempDir(), "device.jsonl")
	ran := make(chan string, 8)
	handler := func(ctx context.Context, call client.Call) (any, error) {
		ran <- call.ID
		return "done " + call.ID, nil
	}
	options := []client.Option{
		client.WithJournal(journal), client.WithTool(client.Tool{Name: "t"}, handler),
	}
	_, done, cancel := start(t, f.http.URL, options...)
	p := f.accept()
	p.call("1", "t", 30_000)
	p.expect("tool_result") // and it is acknowledged
	p.call("2", "t", 30_000)
	if m := p.raw(); m["id"] != "2" {
		t.Fatalf("sent %v", m)
	}
	cancel()
	wait(t, done)

	c, _, _ := start(t, f.http.URL, options...)
	p = f.accept()
	if p.opening["resume_token"] != "the-first-token" || p.query["session_id"][0] != "given" {
		t.Errorf("connected with %v, %v", p.query, p.opening)
	}
	if m := p.expect("tool_result"); m["id"] != "2" || m["output"] != "done 2" {
		t.Errorf("repeated %v", m)
	}
	p.call("1", "t", 30_000)
	if m := p.expect("tool_error"); !strings.Contains(m["error"].(string), "answered before") {
		t.Errorf("of a call that was acknowledged: %v", m)
	}
	if wait(t, ran) != "1" || wait(t, ran) != "2" || len(ran) > 0 {
		t.Error("a call ran twice")
	}
	wait(t, c.Ready())
}

func TestUnusableJournal(t *testing.T) {
	t.Parallel()
	c, err := client.New("ws://127.0.0.1:1", client.WithJournal(t.TempDir())) // a folder
	must(t, err)
	if err := c.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "journal") {
		t.Errorf("Run returned %v", err)
	}
}
