package ws_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/chat"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/ws"
)

// scripted is an agent that does what a test says, one turn after the other.
type scripted struct {
	chat.Agent // what a device has no use for
	asked      chan *asked
	over       <-chan struct{} // the test is over
	describe   atomic.Pointer[func(context.Context) (registry.ConversationInfo, error)]
}

// asked is a turn in the hands of a test.
type asked struct {
	chat.Ask
	t    *testing.T
	ctx  context.Context
	emit func(chat.Event)
	end  chan ending
}

type ending struct {
	reply chat.Reply
	err   error
}

// newTalkative is newGateway with an agent.
func newTalkative(t *testing.T, changes ...func(*ws.Config)) (*gateway, *scripted) {
	t.Helper()
	a := &scripted{asked: make(chan *asked, 64), over: t.Context().Done()}
	return newGateway(t, append(changes, func(c *ws.Config) { c.Agent, c.Conversations = a, a })...), a
}

func (s *scripted) Ask(ctx context.Context, a chat.Ask, emit func(chat.Event)) (chat.Reply, error) {
	turn := &asked{Ask: a, ctx: ctx, emit: emit, end: make(chan ending)}
	s.asked <- turn
	select {
	case e := <-turn.end:
		return e.reply, e.err
	case <-s.over:
		return chat.Reply{}, ctx.Err()
	}
}

// DescribeConversations implements ws.Conversations.
func (s *scripted) DescribeConversations(ctx context.Context,
	keys ...registry.Key) ([]registry.ConversationInfo, error) {
	if f := s.describe.Load(); f != nil {
		info, err := (*f)(ctx)
		return []registry.ConversationInfo{info}, err
	}
	return make([]registry.ConversationInfo, len(keys)), nil
}

// next returns the turn that was asked for next. It must be ended.
func (s *scripted) next(t *testing.T) *asked {
	t.Helper()
	turn := receive(t, s.asked)
	turn.t = t
	return turn
}

// idle checks that no turn was asked for.
func (s *scripted) idle(t *testing.T) {
	t.Helper()
	select {
	case turn := <-s.asked:
		t.Errorf("a turn was asked for: %+v", turn.Ask)
		close(turn.end)
	default:
	}
}

func (a *asked) say(events ...chat.Event) {
	for _, e := range events {
		a.emit(e)
	}
}

// finish ends the turn as an agent does.
func (a *asked) finish(text string) {
	a.t.Helper()
	a.say(chat.Event{Type: chat.EventChunkReset}, chat.Event{Type: chat.EventDone, FullResponse: text})
	a.leave(chat.Reply{FullResponse: text}, nil)
}

// leave returns from Ask.
func (a *asked) leave(reply chat.Reply, err error) {
	a.t.Helper()
	select {
	case a.end <- ending{reply, err}:
	case <-time.After(testTimeout):
		a.t.Fatal("nobody waits for the turn")
	}
}

// stopped waits until the turn is stopped and returns why. It ends the turn.
func (a *asked) stopped() error {
	a.t.Helper()
	receive(a.t, a.ctx.Done())
	why := context.Cause(a.ctx)
	a.say(chat.Event{Type: chat.EventAborted})
	a.leave(chat.Reply{}, chat.ErrAborted)
	return why
}

func piece(text string) chat.Event { return chat.Event{Type: chat.EventChunk, Content: text} }

func (d *device) ask(content string) {
	d.t.Helper()
	d.send(`{"type":"message","content":"` + content + `"}`)
}

func (d *device) abort() { d.send(`{"type":"abort"}`) }

func (d *device) expectAck(status string, dropped any) {
	d.t.Helper()
	if got := d.expect("abort_ack"); got["status"] != status || got["dropped"] != dropped {
		d.t.Fatalf("got %v, want status %s, dropped %v", got, status, dropped)
	}
}

func (d *device) expectDone(text string) {
	d.t.Helper()
	d.expect("chunk_reset")
	if got := d.expect("done"); got["full_response"] != text {
		d.t.Fatalf("got %v, want %q", got, text)
	}
}

// A user whose devices send long messages leaves room for those of others of its tenant.
func TestMessagesOfAUserAreBounded(t *testing.T) {
	t.Parallel()
	g, agent := newTalkative(t, func(c *ws.Config) {
		c.Auth, c.MaxUnfinished, c.MaxFrame = auth.AuthenticatorFunc(byTenantAndUser), 160<<10, 40<<10
	})
	dial := func(user, session string) *device {
		d := g.dialAs("t/"+user, query("session_id", session))
		d.expect("session_start")
		return d
	}
	said := strings.Repeat("x", 30<<10)
	first, second, ann := dial("eve", "first"), dial("eve", "second"), dial("ann", "third")
	first.ask(said)
	turn := agent.next(t)
	second.ask(said)
	second.expectError("SESSION_BUSY", "memory for messages")
	ann.ask(said)
	agent.next(t).finish("done")
	ann.expectDone("done")
	turn.finish("done")
}

// The bytes of messages whose turns run or wait are bounded, whatever number of devices they come from: a message may
// have a megabyte, and its turn ten minutes.
func TestMessagesOfATenantAreBounded(t *testing.T) {
	t.Parallel()
	g, agent := newTalkative(t, func(c *ws.Config) { c.MaxUnfinished, c.MaxFrame = 160<<10, 40<<10 })
	said := strings.Repeat("x", 30<<10)
	first, second, third := g.connect("first"), g.connect("second"), g.connect("third")
	first.ask(said)
	turn := agent.next(t)
	second.ask(said)
	other := agent.next(t)
	third.ask(said)
	third.expectError("SESSION_BUSY", "memory for messages")
	turn.finish("done")
	first.expectDone("done")
	eventually(t, "there is room", func() bool { return ws.HeldMessages(g.server) == int64(len(said)) })
	third.ask(said)
	agent.next(t).finish("done")
	third.expectDone("done")
	other.finish("done")
	second.ask("waits behind the one that runs")
	last := agent.next(t)
	second.ask(said)
	second.abort()
	if why := last.stopped(); !errors.Is(why, chat.ErrAborted) {
		t.Errorf("stopped: %v", why)
	}
	eventually(t, "nothing is held", func() bool { return ws.HeldMessages(g.server) == 0 })
}
