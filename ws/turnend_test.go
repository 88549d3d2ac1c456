package ws_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/farhand/farhand/agent/chat"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/ws"
)

func TestDisconnectEndsTheTurn(t *testing.T) {
	t.Parallel()
	g, agent := newTalkative(t)
	d := g.connectWithTools("gone", "echo")
	d.ask("1")
	turn := agent.next(t)
	d.ask("2")
	d.alive()
	called := turn.startCall(g)
	d.expect("tool_call_request")
	must(t, d.conn.NetConn().Close())
	receive(t, turn.ctx.Done())
	if err := receive(t, called); !errors.Is(err, registry.CodeCancelled) &&
		!errors.Is(err, registry.CodeConnectionLost) {
		t.Fatalf("the call ended with %v", err)
	}
	g.waitReleased()
	if g.server.Len() != 1 {
		t.Fatal("the teardown did not wait for the turn")
	}
	if why := turn.stopped(); errors.Is(why, chat.ErrAborted) || errors.Is(why, registry.ErrDraining) {
		t.Fatalf("stopped because of %v", why)
	}
	eventually(t, "the connection is gone", func() bool { return g.server.Len() == 0 })
	agent.idle(t)
}

// TestSuccessorTalksWhileTheFormerTurnEnds: a turn that is slow to stop holds up neither the device's next connection
// nor the turns of that one.
func TestSuccessorTalksWhileTheFormerTurnEnds(t *testing.T) {
	t.Parallel()
	g, agent := newTalkative(t)
	old := g.connect("same")
	old.ask("old")
	slow := agent.next(t)
	successor := g.connect("same")
	receive(t, slow.ctx.Done())
	old.expectClose(ws.CloseReplaced)
	successor.ask("new")
	turn := agent.next(t)
	turn.say(piece("x"))
	successor.expect("chunk")
	if why := slow.stopped(); !errors.Is(why, ws.CloseReplaced) {
		t.Fatalf("stopped because of %v", why)
	}
	turn.finish("x")
	successor.expectDone("x")
}

func TestDrainLetsATurnFinish(t *testing.T) {
	t.Parallel()
	g, agent := newTalkative(t)
	idle := g.connect("idle")
	d := g.connectWithTools("talking", "echo")
	d.ask("1")
	turn := agent.next(t)
	d.ask("2")
	d.alive()
	closed := g.drain(drainTime)
	idle.expectClose(ws.CloseRestart)
	called := turn.startCall(g) // to the very socket that will close
	id := d.expect("tool_call_request")["id"].(string)
	d.send(`{"type":"tool_result","id":"` + id + `","output":"done"}`)
	d.expect("result_acknowledged")
	must(t, receive(t, called))
	d.alive()
	turn.finish("1")
	d.expectDone("1")
	agent.next(t).finish("2") // it was asked for while there was time
	d.expectDone("2")
	d.expectClose(ws.CloseRestart)
	must(t, receive(t, closed))
}

func TestDrainCutsATurnOff(t *testing.T) {
	t.Parallel()
	g, agent := newTalkative(t)
	d := g.connectWithTools("endless", "echo")
	d.ask("1")
	turn := agent.next(t)
	d.ask("2")
	d.ask("3")
	d.alive()
	called := turn.startCall(g) // and the device never answers
	d.expect("tool_call_request")
	closed := g.drain(drainTime)
	if why := turn.stopped(); !errors.Is(why, registry.ErrDraining) {
		t.Fatalf("stopped because of %v", why)
	}
	if receive(t, called) == nil {
		t.Fatal("a call nobody answered succeeded")
	}
	d.expectClose(ws.CloseRestart)
	must(t, receive(t, closed))
	agent.idle(t)
}

// TestDeviceHearsHowATurnEndedThatWasCutOff: the turn is stopped, and what it says of that comes before the close
// frame.
func TestDeviceHearsHowATurnEndedThatWasCutOff(t *testing.T) {
	t.Parallel()
	g, agent := newTalkative(t)
	talking, idle := g.connectWithTools("talking", "echo"), g.connect("idle")
	talking.ask("1")
	turn := agent.next(t)
	ws.EndAllAfter(g.server, drainTime)
	receive(t, turn.ctx.Done())
	idle.expectClose(ws.CloseRestart)                                       // it does not wait for others
	brief, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond) // else it waits for the device to come back
	defer cancel()
	another := asked{Ask: turn.Ask, ctx: brief}
	if _, err := another.callHere(g, "echo"); !errors.Is(err, registry.CodeNotConnected) {
		t.Errorf("a call to a device that is going: %v", err)
	}
	talking.ask("2") // has no effect any more
	turn.say(chat.Event{Type: chat.EventError, Code: chat.CodeAgent, Message: "this pod is stopping"})
	turn.leave(chat.Reply{}, registry.ErrDraining)
	talking.expectError("AGENT_ERROR", "stopping")
	talking.expectClose(ws.CloseRestart)
	agent.idle(t)
}

// TestTowardsTheEndOfADrainNoTurnBegins: what waits then, and what comes, is refused while the device is still there.
func TestTowardsTheEndOfADrainNoTurnBegins(t *testing.T) {
	t.Parallel()
	g, agent := newTalkative(t)
	d := g.connect("late")
	d.ask("1")
	turn := agent.next(t)
	for range 4 {
		d.ask("2")
	}
	closed := g.drain(5 * time.Second)
	stopping := func() bool {
		d.ask("3")
		return strings.Contains(d.expectBusy(), "pod is stopping")
	}
	if stopping() {
		t.Fatal("the pod is in too much of a hurry")
	}
	eventually(t, "messages are refused because the pod is stopping", stopping)
	turn.finish("1")
	d.expectDone("1")
	for range 4 {
		if why := d.expectBusy(); !strings.Contains(why, "pod is stopping") {
			t.Fatalf("refused with %q", why)
		}
	}
	d.expectClose(ws.CloseRestart)
	must(t, receive(t, closed))
	agent.idle(t)
}

// expectBusy reads a refusal and returns its message.
func (d *device) expectBusy() string {
	d.t.Helper()
	got := d.expect("error")
	if got["code"] != "SESSION_BUSY" {
		d.t.Fatalf("got %v, want SESSION_BUSY", got)
	}
	return got["message"].(string)
}

func TestCloseReportsATurnThatDoesNotStop(t *testing.T) {
	t.Parallel()
	g, agent := newTalkative(t)
	d := g.connect("stubborn")
	d.ask("1")
	turn := agent.next(t)
	ws.EndAllAfter(g.server, time.Millisecond)
	d.expectClose(ws.CloseRestart) // the socket is not what Close waits for
	brief, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := g.server.Close(brief); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("close: %v", err)
	}
	turn.stopped()
	must(t, g.server.Close(t.Context()))
}

func TestSessionStartTellsOfTheHistory(t *testing.T) {
	t.Parallel()
	g, agent := newTalkative(t)
	type info = registry.ConversationInfo
	has := func(i info) func(context.Context) (info, error) {
		return func(context.Context) (info, error) { return i, nil }
	}
	for _, tc := range []struct {
		name     string // also what the URL names the session
		describe func(context.Context) (info, error)
		resumed  bool
		messages float64
		named    any
	}{
		{"none", has(info{}), false, 0, "none"},
		{"", has(info{}), false, 0, nil},
		{"some", has(info{Messages: 7, Title: "Lamps"}), true, 7, "some"},
		{"", has(info{Messages: 7, Title: "Lamps"}), true, 7, "Lamps"},
		{"renamed", has(info{Messages: 7, Title: "My lamps", Named: true}), true, 7, "My lamps"},
		{"failure", func(context.Context) (info, error) { return info{Messages: 3}, errors.New("down") }, false, 0,
			"failure"},
		{"slow", func(ctx context.Context) (info, error) { <-ctx.Done(); return info{}, ctx.Err() }, false, 0, "slow"},
	} {
		agent.describe.Store(&tc.describe)
		d := g.dialWith(websocket.DefaultDialer, query("session_id", "one", "name", tc.name))
		got := d.expect("session_start")
		if got["resumed"] != tc.resumed || got["message_count"] != tc.messages || got["name"] != tc.named {
			t.Errorf("%s: %v", tc.name, got)
		}
		must(t, d.conn.Close())
		g.waitReleased()
	}
	never := func(context.Context) (info, error) {
		t.Error("a session that is new was looked up")
		return info{}, nil
	}
	agent.describe.Store(&never)
	if got := g.dial("").expect("session_start"); got["resumed"] != false {
		t.Fatalf("session_start: %v", got)
	}
}

// TestClaimerIsNotToldOfTheHistory: a device that may still be refused learns nothing of the conversation. A device
// that gets the session learns from connected what session_start kept back.
func TestClaimerIsNotToldOfTheHistory(t *testing.T) {
	t.Parallel()
	g, agent := newTalkative(t)
	describe := func(context.Context) (registry.ConversationInfo, error) {
		return registry.ConversationInfo{Messages: 7, Title: "Lamps"}, nil
	}
	agent.describe.Store(&describe)
	const keeps = `"device_id":"d1","capabilities":["resume","resume_token"]`
	_, token := g.held("one", `{"type":"connect",`+keeps+`}`)

	stranger := g.present("one", `{"type":"connect","device_id":"d2"}`)
	if got := stranger.await("session_start"); got["message_count"] != 0.0 || got["name"] != nil {
		t.Errorf("a claimer learned: %v", got)
	}
	stranger.closedWith(ws.CloseOwnerMismatch)

	owner := g.present("one", `{"type":"connect",`+keeps+`,"resume_token":"`+token+`"}`)
	if got := owner.await("session_start"); got["message_count"] != 0.0 {
		t.Errorf("a claimer learned: %v", got)
	}
	got := owner.await("connected")
	if got["session_id"] != "one" || got["resumed"] != true || got["message_count"] != 7.0 || got["name"] != "Lamps" {
		t.Errorf("connected: %v", got)
	}
}
