package ws_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/gorilla/websocket"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/chat"
	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/ws"
)

func TestTurnOnTheSocket(t *testing.T) {
	t.Parallel()
	g, agent := newTalkative(t)
	d := g.connect("talker")
	d.ask("how warm is it?")
	turn := agent.next(t)
	want := chat.Ask{
		Key:     registry.Key{Tenant: registry.DefaultTenant, Session: "talker"},
		Caller:  auth.Identity{Tenant: registry.DefaultTenant, Admin: true, Credential: auth.CredentialToken},
		Content: "how warm is it?", Format: chat.FormatPlain,
	}
	turn.Ask.Caller.Source = netip.Prefix{}
	if turn.Ask != want {
		t.Fatalf("asked %+v, want %+v", turn.Ask, want)
	}
	turn.say(
		chat.Event{Type: chat.EventThinking, Content: "a thermometer"}, piece("Let me "), piece("see.\n"),
		chat.Event{Type: chat.EventToolCall, ID: "c1", Name: "temperature", Args: json.RawMessage(`{"unit":"C"}`),
			Status: chat.StatusPending},
		chat.Event{Type: chat.EventToolCall, ID: "c1", Name: "temperature", Args: json.RawMessage(`{"unit":"C"}`),
			Status: chat.StatusExecuting},
		chat.Event{Type: chat.EventToolResult, ID: "c1", Name: "temperature", Output: "21",
			Status: chat.StatusCompleted},
		piece("21 °C."), chat.Event{Type: chat.EventTitle, Title: "Weather"},
	)
	turn.finish("Let me see.\n21 °C.")
	for _, want := range []map[string]any{
		{"type": "thinking", "content": "a thermometer"}, {"type": "chunk", "content": "Let me "}, {"type": "chunk",
			"content": "see.\n"},
		{"type": "tool_call", "id": "c1", "name": "temperature", "args": map[string]any{"unit": "C"},
			"status": "pending"},
		{"type": "tool_result", "id": "c1", "name": "temperature", "output": "21", "status": "completed"},
		{"type": "chunk", "content": "21 °C."}, {"type": "chunk_reset"}, {"type": "done",
			"full_response": "Let me see.\n21 °C."},
		{"type": "title_updated", "title": "Weather"}, // behind done, as ClawSeed's gateway sends it
	} {
		if got := d.next(); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("got %v, want %v", got, want)
		}
	}
	eventually(t, "no turn remains", func() bool { return ws.TurnWorkers(g.server) == 0 })
	d.ask("again")
	agent.next(t).finish("yes")
	d.expectDone("yes")
}

func TestStatusesForThoseWhoAsk(t *testing.T) {
	t.Parallel()
	g, agent := newTalkative(t)
	d := g.connect("curious")
	d.send(`{"type":"connect","capabilities":["call_status"]}`)
	d.expect("connected")
	d.ask("go")
	turn := agent.next(t)
	for _, s := range []chat.Status{chat.StatusPending, chat.StatusExecuting} {
		turn.say(chat.Event{Type: chat.EventToolCall, ID: "c1", Name: "x", Status: s})
		if got := d.expect("tool_call"); got["status"] != string(s) {
			t.Fatalf("got %v, want status %s", got, s)
		}
	}
	turn.finish("")
	d.expectDone("")
}

func TestWhatAMessageCarries(t *testing.T) {
	t.Parallel()
	g, agent := newTalkative(t, func(c *ws.Config) { c.Auth = userAuth{} })
	d := g.dialWith(websocket.DefaultDialer, query("session_id", "s", "results", "markdown"))
	d.expect("session_start")
	for frame, want := range map[string]chat.Ask{
		`{"type":"message","content":" hi ","debug":true}`: {Content: " hi ", Debug: true},
		`{"type":"message","content":"hi","debug":false}`:  {Content: "hi"},
		`{"type":"regenerate"}`:                            {Regenerate: true},
		`{"type":"regenerate","debug":true}`:               {Regenerate: true, Debug: true},
	} {
		d.send(frame)
		turn := agent.next(t)
		want.Key = registry.Key{Tenant: "acme", Session: "s"}
		want.Caller = auth.Identity{Tenant: "acme", User: "ada", Roles: auth.RoleDevice}
		want.Format = chat.FormatMarkdown
		want.Owner = registry.Owner{UserID: "ada"}
		turn.Ask.Caller.Source = netip.Prefix{}
		if turn.Ask != want {
			t.Errorf("%s asked %+v, want %+v", frame, turn.Ask, want)
		}
		turn.say(chat.Event{Type: chat.EventDebugPrompt, EstimatedTokens: 3,
			Messages: []provider.Message{{Role: provider.RoleUser, Content: "hi"}}})
		turn.finish("")
		if got := d.expect("debug_prompt"); got["estimated_tokens"] != 3.0 ||
			got["messages"] != `[{"role":"user","content":"hi"}]` {
			t.Errorf("debug_prompt: %v", got)
		}
		d.expectDone("")
	}
	d.send(`{"type":"message","content":" \t\n"}`)
	d.expectError("EMPTY_CONTENT", "content")
	agent.idle(t)
	status, problem, _ := g.refusal("results=html", http.Header{"Authorization": {"Bearer " + testToken}})
	if detail, _ := problem["detail"].(string); status != http.StatusBadRequest ||
		!strings.Contains(detail, "results") {
		t.Fatalf("refused with %d %v", status, problem)
	}
	g.dialWith(websocket.DefaultDialer, "results=markdown").expect("session_start")
}

func TestDebugCanBeSwitchedOff(t *testing.T) {
	t.Parallel()
	g, agent := newTalkative(t, func(c *ws.Config) { c.IgnoreDebug = true })
	d := g.connect("s")
	for _, frame := range []string{`{"type":"message","content":"hi","debug":true}`,
		`{"type":"regenerate","debug":true}`} {
		d.send(frame)
		turn := agent.next(t)
		if turn.Debug {
			t.Errorf("%s asked %+v", frame, turn.Ask)
		}
		turn.finish("")
		d.expectDone("")
	}
}

// userAuth knows one user.
type userAuth struct{}

func (userAuth) Authenticate(context.Context, *http.Request, string) (auth.Identity, error) {
	return auth.Identity{Tenant: "acme", User: "ada", Roles: auth.RoleDevice}, nil
}

// callHere calls a tool of the conversation's own session, as an agent does.
func (a *asked) callHere(g *gateway, tool string) (registry.Result, error) {
	route, err := g.pod.Router.Resolve(a.ctx, a.Key.Tenant, tool, registry.Target{SessionID: a.Key.Session},
		registry.SelectNone)
	if err != nil {
		return registry.Result{}, err
	}
	return g.pod.Router.Call(a.ctx, registry.Call{
		ID: registry.NewCallID(), Route: route, Args: registry.MustJSON(`{}`), Timeout: testTimeout,
	})
}

// startCall calls the tool echo in the background, and returns where the call's error will be.
func (a *asked) startCall(g *gateway) <-chan error {
	ended := make(chan error, 1)
	go func() {
		_, err := a.callHere(g, "echo")
		ended <- err
	}()
	return ended
}

func TestResultsArriveInMidTurn(t *testing.T) {
	t.Parallel()
	g, agent := newTalkative(t)
	d := g.connectWithTools("self", "first", "second")
	d.ask("use both")
	turn := agent.next(t)
	results := make(chan outcome, 2)
	for _, tool := range []string{"first", "second"} {
		go func() {
			r, err := turn.callHere(g, tool)
			results <- outcome{r, err}
		}()
	}
	first, second := d.expect("tool_call_request"), d.expect("tool_call_request")
	for _, call := range []map[string]any{second, first} {
		d.send(`{"type":"tool_result","id":"` + call["id"].(string) + `","output":"done"}`)
		d.expect("result_acknowledged")
	}
	for range 2 {
		if o := receive(t, results); o.err != nil || o.result.Output != "done" {
			t.Fatalf("outcome: %+v", o)
		}
	}
	d.alive()
	turn.finish("both")
	d.expectDone("both")
}

func TestMessagesWaitTheirTurn(t *testing.T) {
	t.Parallel()
	g, agent := newTalkative(t)
	d := g.connect("eager")
	d.ask("0")
	turn := agent.next(t)
	for _, content := range []string{"1", "2", "3", "4", "5"} {
		d.ask(content)
	}
	d.expectError("SESSION_BUSY", "4 messages")
	d.send(`{"type":"regenerate"}`)
	d.expectError("SESSION_BUSY", "4 messages")
	agent.idle(t)
	for _, content := range []string{"0", "1", "2", "3", "4"} {
		if turn.Content != content {
			t.Fatalf("asked %q, want %q", turn.Content, content)
		}
		turn.finish(content)
		d.expectDone(content)
		if content != "4" {
			turn = agent.next(t)
		}
	}
	eventually(t, "no turn remains", func() bool { return ws.TurnWorkers(g.server) == 0 })
	agent.idle(t)
}

// TestEveryTurnIsSeenToEnd: whatever an agent returns without a last event, the device does not wait for ever.
func TestEveryTurnIsSeenToEnd(t *testing.T) {
	t.Parallel()
	g, agent := newTalkative(t)
	d := g.connect("patient")
	for _, tc := range []struct {
		name  string
		reply chat.Reply
		err   error
		want  map[string]any
	}{
		{"a reply", chat.Reply{FullResponse: "x"}, nil, map[string]any{"type": "done", "full_response": "x"}},
		{"an abort", chat.Reply{}, fmt.Errorf("turn: %w", chat.ErrAborted), map[string]any{"type": "aborted"}},
		{"a failure", chat.Reply{}, &chat.Error{Code: chat.CodeAuth, Message: "key"},
			map[string]any{"type": "error", "code": "AUTH_ERROR", "message": "key"}},
		{"an error", chat.Reply{}, errors.New("secret"), map[string]any{"type": "error", "code": "AGENT_ERROR",
			"message": "The agent failed; see the gateway's log. Send the message again."}},
	} {
		d.ask(tc.name)
		agent.next(t).leave(tc.reply, tc.err)
		if got := d.next(); fmt.Sprint(got) != fmt.Sprint(tc.want) {
			t.Errorf("%s: got %v, want %v", tc.name, got, tc.want)
		}
	}
}

func TestPanicInATurnClosesItsConnection(t *testing.T) {
	t.Parallel()
	g := newGateway(t, func(c *ws.Config) { c.Agent = panicking{} })
	bystander := g.connect("bystander")
	d := g.connect("unlucky")
	d.ask("boom")
	d.expectClose(ws.CloseInternal)
	g.waitReleased()
	bystander.alive()
}

// panicking is an agent that panics in every turn.
type panicking struct{ chat.Agent }

func (panicking) Ask(context.Context, chat.Ask, func(chat.Event)) (chat.Reply, error) { panic("boom") }

func TestTextThatNeverFitsIsCut(t *testing.T) {
	t.Parallel()
	g, agent := newTalkative(t, func(c *ws.Config) { c.MaxOutbound = ws.MinOutbound })
	d := g.connect("small")
	d.ask("a lot")
	turn := agent.next(t)
	long := strings.Repeat("\x01", ws.MinOutbound) // six bytes of JSON each
	turn.say(chat.Event{Type: chat.EventToolResult, ID: "1", Name: "x", Output: long})
	if got := d.expect("tool_result"); len(got["output"].(string)) < 1000 ||
		!strings.HasSuffix(got["output"].(string), "…") {
		t.Fatalf("output of %d bytes", len(got["output"].(string)))
	}
	turn.say(chat.Event{Type: chat.EventDebugPrompt, Messages: []provider.Message{{Content: long}}, EstimatedTokens: 9})
	if got := d.expect("debug_prompt"); got["messages"] != "[]" || got["estimated_tokens"] != 9.0 {
		t.Fatalf("debug_prompt: %v", got)
	}
	turn.say(chat.Event{Type: chat.EventDone, FullResponse: long})
	d.expect("done")
	turn.leave(chat.Reply{}, nil)
	d.alive()
}

func TestMessageFloodCloses(t *testing.T) {
	t.Parallel()
	g, agent := newTalkative(t, func(c *ws.Config) { c.MaxFramesPerSecond, c.FrameBurst = 0.001, 8 })
	d := g.connect("flood")
	d.ask("hi")
	turn := agent.next(t)
	for range 8 {
		d.ask("hi")
	}
	d.expectClose(ws.CloseRate)
	if why := turn.stopped(); !errors.Is(why, ws.CloseRate) {
		t.Fatalf("stopped because of %v", why)
	}
	g.waitReleased()
	agent.idle(t)
}

func TestSlowReaderEndsItsTurn(t *testing.T) {
	t.Parallel()
	g, agent := newTalkative(t)
	g.deafDevice("slow").ask("everything")
	turn := agent.next(t)
	text := strings.Repeat("x", 64<<10)
	for sent := 0; turn.ctx.Err() == nil; sent++ {
		if sent == 4096 {
			t.Fatal("256 MB were taken for a device that does not read")
		}
		turn.say(piece(text))
	}
	if why := turn.stopped(); !errors.Is(why, ws.CloseSlow) {
		t.Fatalf("stopped because of %v", why)
	}
	g.waitReleased()
}
