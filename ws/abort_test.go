package ws_test

import (
	"errors"
	"testing"

	"github.com/farhand/farhand/agent/chat"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/ws"
)

func TestAbort(t *testing.T) {
	t.Parallel()
	g, agent := newTalkative(t)
	d := g.connect("fickle")
	d.abort()
	d.expectAck("no_active_response", nil)

	d.ask("tell me everything")
	turn := agent.next(t)
	turn.say(piece("In the beginning "))
	d.expect("chunk")
	d.abort()
	d.expectAck("aborted", nil)
	receive(t, turn.ctx.Done())
	d.abort() // impatient
	d.expectAck("aborted", nil)
	if why := turn.stopped(); !errors.Is(why, chat.ErrAborted) {
		t.Fatalf("stopped because of %v", why)
	}
	d.expect("aborted")

	d.ask("1")
	turn = agent.next(t)
	d.ask("2")
	d.ask("3")
	d.abort()
	d.expectAck("aborted", 2.0)
	turn.stopped()
	d.expect("aborted")
	eventually(t, "no turn remains", func() bool { return ws.TurnWorkers(g.server) == 0 })
	agent.idle(t)
	d.abort()
	d.expectAck("no_active_response", nil)
	d.ask("4")
	agent.next(t).finish("fine")
	d.expectDone("fine")
}

func TestAbortAfterTheLastWordFindsNothing(t *testing.T) {
	t.Parallel()
	g, agent := newTalkative(t)
	d := g.connect("late")
	d.ask("quick")
	turn := agent.next(t)
	turn.say(chat.Event{Type: chat.EventDone, FullResponse: "done"})
	d.expect("done")
	d.abort() // the agent still tidies up
	d.expectAck("no_active_response", nil)
	d.ask("next")
	d.abort()
	d.expectAck("aborted", 1.0)
	if turn.ctx.Err() != nil {
		t.Fatal("a turn that was over has been stopped")
	}
	turn.leave(chat.Reply{}, nil)
	d.alive()
	agent.idle(t)
}

func TestAbortCancelsTheCallUnderWay(t *testing.T) {
	t.Parallel()
	g, agent := newTalkative(t)
	d := g.declare("stuck", `"cancel"`)
	d.ask("wait for ever")
	turn := agent.next(t)
	called := turn.startCall(g)
	id := d.expect("tool_call_request")["id"]
	d.abort()
	d.expectAck("aborted", nil)
	if got := d.expect("tool_call_cancel"); got["id"] != id {
		t.Fatalf("cancelled: %v", got)
	}
	if err := receive(t, called); !errors.Is(err, registry.CodeCancelled) {
		t.Fatalf("the call ended with %v", err)
	}
	turn.stopped()
	d.expect("aborted")
}
