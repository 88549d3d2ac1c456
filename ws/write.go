package ws

import (
	"runtime"
	"sync"
	"time"

	"github.com/gorilla/websocket"
	"github.com/olahol/melody"
)

// onSent ends melody's writer once it has written the first frame; all others are written here. A goroutine that waits for the
// next frame, with its stack, its ticker and what it waits with, is a third of what an idle device costs. Melody has no
// more use for it: nothing else is ever given to its session to write, and pings are sent by ping.
func (s *Server) onSent(ms *melody.Session, first []byte) {
	s.counters.frameSent(first)
	connOf(ms).out.written()
	runtime.Goexit()
}

// wakeWriter implements waker.
func (c *conn) wakeWriter() { c.server.writers.add(c) }

// drain writes what the outbox has. The outbox sees to it that it runs once at a time.
func (c *conn) writeQueued() {
	defer c.recoverPanic()
	for {
		out, ok := c.out.next()
		if !ok {
			return
		}
		if err := c.write(out); err != nil {
			c.log().Debug("frame not written", "error", err)
			c.out.discard()
			c.cut()
		}
	}
}

func (c *conn) write(out outgoing) error {
	socket := c.session.WebsocketConnection()
	_ = socket.SetWriteDeadline(c.writeDeadline()) // never fails
	c.wire.corked.Store(out.corked)
	c.server.counters.frameSent(out.frame)
	if out.frame == nil {
		_ = socket.WriteMessage(websocket.PingMessage, nil) // a dead peer shows by its silence
		return nil
	}
	return socket.WriteMessage(websocket.TextMessage, out.frame)
}

// deadlineSlack is the part of a write timeout by which a deadline may be later, so that it need not be set for every frame.
const deadlineSlack = 8

// writeDeadline returns until when the next frame must be written.
func (c *conn) writeDeadline() time.Time {
	limit := c.server.cfg.WriteTimeout
	now := time.Now()
	if c.writeUntil.Sub(now) < limit {
		c.writeUntil = now.Add(limit + limit/deadlineSlack)
	}
	return c.writeUntil
}

// writers lends goroutines to connections that have something to write. There is none while there is nothing to write. A
// writer that gets to work when more connections wait calls another one before it begins, because its own device may be
// slow; if it is not, the first has done all the work by the time the second looks. So a burst to many devices costs the
// goroutines it needs, and a stuck device holds up nobody else. There are never more writers than connections, and one.
type writerPool struct {
	server *Server // counts the goroutines

	mu          sync.Mutex
	first, last *conn // that wait for a writer; each at most once, linked by conn.nextToWrite
	starting    bool  // a writer has been called that did not come yet
}

// add has what the connection has to write written. It returns at once.
func (w *writerPool) add(c *conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.first == nil {
		w.first = c
	} else {
		w.last.nextToWrite = c
	}
	w.last = c
	w.startLocked()
}

// startLocked calls a writer if one is needed and none is on its way.
func (w *writerPool) startLocked() {
	if w.first == nil || w.starting {
		return
	}
	w.starting = true
	w.server.addTask() // the connection that waits is counted: its teardown needs the lock of its outbox, which add's caller holds
	go w.writeWaiting()
}

// run is one writer.
func (w *writerPool) writeWaiting() {
	defer w.server.taskDone()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.starting = false
	for w.first != nil {
		c := w.first
		w.first, c.nextToWrite = c.nextToWrite, nil
		w.startLocked()
		w.mu.Unlock()
		c.writeQueued()
		w.mu.Lock()
	}
}
