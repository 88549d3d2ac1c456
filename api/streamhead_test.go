package api_test

import (
	"bufio"
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand/agent/chat"
	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/api"
)

// A stream has its head, and a comment, before the model says anything, and shows that it lives when a tool begins.
func TestStreamsBeginAtOnce(t *testing.T) {
	next := make(chan struct{})
	step := func(ctx context.Context, emit func(chat.Event), events ...chat.Event) {
		for _, e := range events {
			select {
			case <-next:
			case <-ctx.Done():
			}
			emit(e)
		}
	}
	events := []chat.Event{
		{Type: chat.EventToolCall, ID: "c1", Name: "locate", Status: chat.StatusExecuting},
		{Type: chat.EventToolResult, ID: "c1", Name: "locate", Status: chat.StatusCompleted},
		{Type: chat.EventDone},
	}
	a := &scripted{
		ask: func(ctx context.Context, _ chat.Ask, emit func(chat.Event)) (chat.Reply, error) {
			step(ctx, emit, events...)
			return chat.Reply{}, nil
		},
		complete: func(ctx context.Context, _ chat.Completion, emit func(chat.Event)) (chat.Reply,
			[]provider.ToolCall, error) {
			step(ctx, emit, events...)
			return chat.Reply{}, nil, nil
		},
	}
	f := newFleet(t, setup{change: func(c *api.Config) {
		a.join(c)
		c.StreamGrace = time.Millisecond
	}})
	f.connect(0, session("s1"), echo, tools("t")...)
	for path, body := range map[string]string{
		completionsPath: strings.TrimSuffix(hello, "}") + `,"stream":true}`,
		messagesOfS1:    `{"content":"hi","stream":true}`,
	} {
		req, err := http.NewRequest(http.MethodPost, f.pods[0].server.URL+path, strings.NewReader(body))
		f.must(err)
		req.Header.Set("Authorization", "Bearer "+token)
		resp, err := f.pods[0].server.Client().Do(req) // nothing has happened yet
		f.must(err)
		in := bufio.NewReader(resp.Body)
		if line, err := in.ReadString('\n'); err != nil || line != ":\n" ||
			resp.Header.Get("Content-Type") != "text/event-stream" {
			t.Fatalf("%s: begins with %q, %v", path, line, err)
		}
		next <- struct{}{} // a tool begins
		if path == completionsPath {
			if lines := readLines(t, in, 3); lines != "\n:\n\n" {
				t.Errorf("while a tool runs: %q", lines)
			}
		}
		next <- struct{}{}
		next <- struct{}{}
		resp.Body.Close()
	}
}

func readLines(t *testing.T, in *bufio.Reader, n int) string {
	t.Helper()
	all := ""
	for range n {
		line, err := in.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		all += line
	}
	return all
}
