package ws

import (
	"runtime"
	"time"

	"github.com/gorilla/websocket"
	"github.com/olahol/melody"

	"github.com/farhand/farhand/internal/share"
)

// onSent ends melody's writer once it has written the first frame; all other frames are written here. A goroutine that
// waits for the next frame, with its stack and its ticker, is a third of what an idle device costs. Melody has no more
// use for it: nothing else is ever given to its session to write, and pings are sent by pingQueue.
func (s *Server) onSent(ms *melody.Session, first []byte) {
	s.counters.frameSent(first, false)
	connOf(ms).out.written()
	runtime.Goexit()
}

// wakeWriter implements outboxOwner.
func (c *conn) wakeWriter() { c.server.writers.add(c) }

// holdUnsent implements outboxOwner.
func (c *conn) holdUnsent(n int) (*share.Grant, error) {
	return c.server.unsent.Try(c.unsentOwner(), int64(n))
}

// unsentOwner is who has the bytes that wait. Holders of the one token may be all devices of a fleet: they have what
// their tenant has.
func (c *conn) unsentOwner() share.Owner {
	owner := c.who.Owner()
	if c.who.Scope() == "" {
		owner.Most = c.server.cfg.MaxUnsent
	}
	return owner
}

// writeQueued writes what the outbox has. The outbox sees to it that it runs once at a time.
func (c *conn) writeQueued() {
	defer c.recoverPanic()
	written := false
	defer func() {
		if !written { // it panicked
			c.out.abandon()
		}
	}()
	for {
		out, ok := c.out.next()
		if !ok {
			written = true
			return
		}
		if err := c.writeFrame(out); err != nil {
			c.log().Debug("frame not written", "error", err)
			c.out.discard()
			c.closeSocket()
		}
	}
}

func (c *conn) writeFrame(out outgoing) error {
	socket := c.session.WebsocketConnection()
	_ = socket.SetWriteDeadline(c.writeDeadline()) // never fails
	joined := c.wire.corked.Swap(out.corked) || out.corked
	c.server.counters.frameSent(out.frame, joined)
	if out.frame == nil {
		c.notePing()
		_ = socket.WriteMessage(websocket.PingMessage, nil) // a dead peer shows by its silence
		return nil
	}
	return socket.WriteMessage(websocket.TextMessage, out.frame)
}

// deadlineSlack is the part of a write timeout by which a deadline may be later, so that it need not be set for every
// frame.
const deadlineSlack = 8

// writeDeadline returns until when the next frame must be written.
func (c *conn) writeDeadline() time.Time {
	limit := c.server.cfg.WriteTimeout
	now := c.server.now()
	if c.writeUntil-now < limit {
		c.writeUntil = now + limit + limit/deadlineSlack
	}
	return c.server.started.Add(c.writeUntil)
}
