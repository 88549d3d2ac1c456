package ws

import (
	"context"
	"errors"
	"time"

	"github.com/olahol/melody"

	"github.com/farhand/farhand/registry"
)

// describeTimeout is how long session_start waits to learn about the conversation.
const describeTimeout = time.Second

// onConnect claims the session and sends session_start. Melody calls it before it reads and before it writes: the first
// frame waits in melody's buffer, all others in the outbox.
func (s *Server) onConnect(ms *melody.Session) {
	c := connOf(ms)
	defer c.recoverPanic()
	c.session = ms
	ms.Request = nil // melody has no more use for it, and it would live as long as the socket
	c.wire.framed = true
	s.counters.opened.Add(1)
	begin := c.hijack.begin
	c.hijack = nil
	defer c.endOpening()
	if s.track(c) {
		c.end(CloseRestart)
		return
	}
	if s.cfg.Live != nil {
		c.unwatch = s.cfg.Live.Watch(c.who, c.endIdentity)
	}
	s.paired.add(c)
	ms.WebsocketConnection().SetPingHandler(c.onPing)
	if c.mcp != nil {
		s.stacks.run(func() { c.openMCP(begin) })
		return
	}
	s.stacks.run(func() { c.open(begin) })
}

// endIdentity ends a connection whose identity has ended.
func (c *conn) endIdentity(why error) {
	c.log().Info("device's credential has ended", "reason", registry.AsError(why).Message)
	c.end(CloseEnded)
}

// endOpening lets another session be opened. It runs in the reader.
func (c *conn) endOpening() {
	if c.turn != nil {
		c.turn.Release()
		c.turn = nil
	}
}

// open claims the session and greets the device. If another connection has the session, a contest decides later.
func (c *conn) open(begin opening) {
	defer c.recoverPanic()
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	token, proof := c.newResumeToken()
	begin.session.Proofs = []string{proof}
	c.fresh = begin.fresh
	local, resumed, err := c.server.cfg.Pod.Hub.Open(ctx, begin.session, c)
	if held := (*registry.Held)(nil); errors.As(err, &held) {
		c.greetClaimer(begin.session, token)
		c.startContest(begin.session, held)
		return
	}
	if err != nil {
		c.failOpen(begin.session, err)
		return
	}
	c.setLocal(local)
	messages := c.greet(begin.session, token, resumed)
	c.log().Info("device connected", "resumed", resumed, "messages", messages)
}

// greet sends session_start to a device that has its session. It returns how many messages the conversation has. A
// session whose id was made here is new, so its conversation is not looked up.
func (c *conn) greet(s registry.Session, token string, resumed bool) (messages int) {
	var about registry.ConversationInfo
	if !c.fresh {
		about = c.describe(s.Key)
	}
	c.sendFirst(sessionStartFrame(token, summarize(s, about, resumed), c.server.limits))
	return about.Messages
}

// greetClaimer sends session_start to a device whose session another connection has. It says nothing of the
// conversation, because the device may still be refused; connected does if it is not.
func (c *conn) greetClaimer(s registry.Session, token string) {
	summary := sessionSummary{SessionID: s.Key.Session, Resumed: true, Name: s.Name}
	c.sendFirst(sessionStartFrame(token, summary, c.server.limits))
}

// sendFirst writes the first frame, which opens the outbox.
func (c *conn) sendFirst(frame []byte) {
	if c.out.start(frame) {
		_ = c.session.Write(frame) // there is room for one, and the writer starts when onConnect returns
	}
}

// failOpen ends a connection that does not get its session.
func (c *conn) failOpen(s registry.Session, err error) {
	if errors.Is(err, registry.ErrHeldByAnother) {
		c.log().Info("session refused: another device has it, and answers", "session", s.Key.Session)
		c.refuseSession(codeSessionOwnerMismatch, "Another device has the session "+s.Key.Session+" and is connected. "+
			"Use another session_id; or present the resume_token of that session, if you are the same device.")
		return
	}
	if errors.Is(err, registry.CodeSessionNotFound) {
		c.refuseSession(codeSessionOwnerMismatch, registry.AsError(err).Message)
		return
	}
	c.log().Warn("session not opened", "session", s.Key.Session, "error", err)
	if errors.Is(err, registry.CodeStoreUnavailable) || errors.Is(err, context.DeadlineExceeded) {
		c.end(CloseUnavailable)
	} else {
		c.end(CloseInternal)
	}
}

// refuseSession ends a connection whose device may not have the session it asks for.
func (c *conn) refuseSession(code, why string) {
	_ = c.send(errorFrame(code, why))
	c.end(CloseOwnerMismatch)
}

// Conversations describes conversations without reading their messages.
type Conversations interface {
	DescribeConversations(ctx context.Context, keys ...registry.Key) ([]registry.ConversationInfo, error)
}

// describe returns what is known about the conversation of a session. A device must be able to connect without its
// history, so nothing is known about a conversation that cannot be looked up.
func (c *conn) describe(key registry.Key) registry.ConversationInfo {
	if c.server.cfg.Agent == nil || c.server.cfg.Conversations == nil {
		return registry.ConversationInfo{}
	}
	ctx, cancel := context.WithTimeout(context.Background(), describeTimeout)
	defer cancel()
	infos, err := c.server.cfg.Conversations.DescribeConversations(ctx, key)
	if err != nil || len(infos) != 1 {
		c.log().Warn("conversation not looked up", "error", err)
		return registry.ConversationInfo{}
	}
	return infos[0]
}

// summarize returns the summary of a session for the device that has it.
func summarize(s registry.Session, about registry.ConversationInfo, resumed bool) sessionSummary {
	return sessionSummary{
		SessionID: s.Key.Session, Resumed: resumed || about.Messages > 0,
		MessageCount: about.Messages, Name: nameFor(s, about),
	}
}

// nameFor returns what people call a session: the name a person gave its conversation, the name in the device's URL, or
// the title that was made for the conversation.
func nameFor(s registry.Session, about registry.ConversationInfo) string {
	if (about.Named || s.Name == "") && !about.Owner.Foreign(s.UserID) {
		return about.Title
	}
	return s.Name
}
