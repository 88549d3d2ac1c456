package ws

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/routing"
)

// introductionWait is how long it may take to decide who has a session, silence of the device included.
const introductionWait = 5 * time.Second

// Bounds of a resume token a device presents. Those made here have 26 characters.
const (
	minResumeToken = 16
	maxResumeToken = 128
)

// contest is the claim of a connection whose session another one has.
type contest struct {
	introductions chan registry.Introduction // capacity 1: what the device says of itself
	stop          context.CancelFunc
	done          chan struct{} // closed when it is decided, and the connection has its session or is being closed
}

// contend has it decided whether the connection gets a session that another one has. Meanwhile its reader reads what its device
// says first.
func (c *conn) startContest(s registry.Session, held *registry.Held) {
	ctx, stop := context.WithTimeout(context.Background(), introductionWait)
	f := &contest{introductions: make(chan registry.Introduction, 1), stop: stop, done: make(chan struct{})}
	c.contest = f
	c.server.addTask()
	go func() {
		defer c.server.taskDone()
		defer close(f.done)
		defer stop()
		defer c.recoverPanic()
		local, err := c.server.cfg.Pod.Hub.Obtain(ctx, s, c, held, f.introductions)
		if err != nil {
			c.failOpen(s, err)
			return
		}
		c.setLocal(local)
		c.log().Info("device connected", "resumed", true, "replaced", held.Holder.Pod)
	}()
}

// silence ends the contest of a connection that is gone, and waits for that.
func (c *conn) endContest() {
	if f := c.contest; f != nil {
		c.contest = nil
		f.stop()
		<-f.done
	}
}

// failOpen ends a connection that does not get its session.
func (c *conn) failOpen(s registry.Session, err error) {
	if errors.Is(err, registry.ErrHeldByAnother) {
		c.log().Info("session refused: another device has it, and answers", "session", s.Key.Session)
		_ = c.send(errorFrame(codeSessionOwnerMismatch, "Another device has the session "+s.Key.Session+
			" and is connected. Use another session_id; or present the resume_token of that session, if you are the same device."))
		c.end(CloseOwnerMismatch)
		return
	}
	if errors.Is(err, registry.CodeSessionNotFound) {
		_ = c.send(errorFrame(codeSessionOwnerMismatch, registry.AsError(err).Message))
		c.end(CloseOwnerMismatch)
		return
	}
	c.log().Warn("session not opened", "session", s.Key.Session, "error", err)
	if errors.Is(err, registry.CodeStoreUnavailable) || errors.Is(err, context.DeadlineExceeded) {
		c.end(CloseUnavailable)
	} else {
		c.end(CloseInternal)
	}
}

func (c *conn) setLocal(l *routing.LocalSession) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.local = l
}

// introduce takes what the first frame says about the device: whose calls it may answer, and which session it wants if the URL
// did not say. It reports false if the connection has no session, and is being closed.
func (c *conn) introduce(frame any) bool {
	if c.introduced {
		return true
	}
	c.introduced = true
	said, connect := registry.Introduction{}, (*connectFrame)(nil)
	if f, ok := frame.(*connectFrame); ok {
		connect = f
		set(&said.DeviceID, f.DeviceID)
		set(&said.Token, f.ResumeToken)
	}
	if f := c.contest; f != nil {
		c.contest = nil
		f.introductions <- said
		<-f.done
		if c.local == nil || c.ending() != closeNone {
			return false
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), introductionWait)
	defer cancel()
	if connect != nil && c.fresh && connect.SessionID != nil && *connect.SessionID != "" && !c.moveSession(ctx, *connect.SessionID, said) {
		return false
	}
	if c.local.Introduce(said) && connect == nil { // what connect says is stored anyway
		if err := c.local.Update(ctx, func(*registry.Session) {}); err != nil {
			c.fail(err)
		}
	}
	return true
}

// move gives the connection the session its connect names, in place of the one that was made for it.
func (c *conn) moveSession(ctx context.Context, id string, said registry.Introduction) bool {
	made := c.local.Session()
	s := registry.Session{
		Key: registry.Key{Tenant: made.Tenant, Session: id}, Name: made.Name, UserID: made.UserID, Proofs: made.Proofs,
	}
	if err := s.Validate(); err != nil {
		c.fail(err)
		return false
	}
	presence := c.server.cfg.Pod.Hub
	local, resumed, err := presence.Open(ctx, s, c)
	if held := (*registry.Held)(nil); errors.As(err, &held) {
		introductions := make(chan registry.Introduction, 1)
		introductions <- said
		resumed = true
		local, err = presence.Obtain(ctx, s, c, held, introductions)
	}
	if err != nil {
		c.failOpen(s, err)
		return false
	}
	former := c.local
	c.setLocal(local)
	former.Close(ctx)
	about := c.describe(s.Key)
	c.moved = &movedTo{SessionID: id, Resumed: resumed || about.Messages > 0, MessageCount: about.Messages, Name: nameFor(s, about)}
	return true
}

// newResumeToken makes a resume token, and what is kept of it.
func newResumeToken() (token, proof string) {
	token = rand.Text()
	return token, registry.Proof(token)
}
