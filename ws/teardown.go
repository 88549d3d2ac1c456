package ws

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/gorilla/websocket"
	"github.com/olahol/melody"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/routing"
)

const (
	// flushWait is how long a closing connection may take to write what was queued before.
	flushWait = time.Second

	// closeFrameWait is how long the close frame may take. A writer that is stuck in another frame uses it up.
	closeFrameWait = 500 * time.Millisecond

	// closeGrace is how long the peer may take to answer the close frame before the socket is closed.
	closeGrace = 2 * time.Second
)

// Close implements routing.Conn.
func (c *conn) Close(cause routing.CloseCause) { c.end(closeFor(cause)) }

// end starts to close the connection and returns at once. Only the first call counts. From here on frames of the device
// have no effect, nothing more is queued, and a turn that is under way is cancelled.
func (c *conn) end(why Close) { c.endAfter(why, 0) }

// endAfter ends the connection as end does, but a cancelled turn may take as long as grace to tell the device how it
// ended. It returns at once all the same.
func (c *conn) endAfter(why Close, grace time.Duration) {
	c.mu.Lock()
	if c.closing != closeNone {
		c.mu.Unlock()
		return
	}
	c.closing, c.gone = why, make(chan struct{})
	worker := c.worker
	c.server.addTask() // under mu: the teardown takes it too, and has not given the connection's own task back yet
	c.mu.Unlock()
	if why == CloseRestart {
		c.announce(rand.N(comebackJitter)) // unless the drain has done it
	}
	if worker == nil || grace <= 0 {
		c.out.seal()
	}
	c.cancelTurn(why)
	go func() {
		defer c.server.taskDone()
		if why == CloseEnded {
			c.releaseSession()
		}
		if worker != nil && grace > 0 {
			worker.wait(grace)
		}
		c.finish(why, c.out.seal())
	}()
}

// releaseSession takes the session, its tools and the calls in flight from a device that may not have it any more,
// however long the device takes to close its socket.
func (c *conn) releaseSession() {
	c.mu.Lock()
	local := c.local
	c.mu.Unlock()
	if local == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	local.End(ctx)
}

// finish writes what is queued, then the close frame, and cuts the socket if the peer does not end it in time. Melody's
// read loop, which is still reading, closes the socket itself.
func (c *conn) finish(why Close, flushed <-chan struct{}) {
	if why != CloseSlow { // a device that does not read will not read the rest either
		flush := time.NewTimer(flushWait)
		defer flush.Stop()
		select {
		case <-flushed:
		case <-flush.C:
		case <-c.gone:
			return
		}
	}
	c.out.discard()
	if err := c.writeClose(why); err != nil {
		c.closeSocket()
		return
	}
	grace := time.NewTimer(closeGrace)
	defer grace.Stop()
	select {
	case <-grace.C:
		c.closeSocket()
	case <-c.gone:
	}
}

func (c *conn) writeClose(why Close) error {
	deadline := time.Now().Add(closeFrameWait)
	return c.session.WebsocketConnection().WriteControl(websocket.CloseMessage, why.payload(), deadline)
}

// closeSocket closes the TCP connection under melody: its reader ends with an error, and the teardown follows.
func (c *conn) closeSocket() { _ = c.session.WebsocketConnection().NetConn().Close() }

// ending returns how the connection is being closed, closeNone while it is in use.
func (c *conn) ending() Close {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closing
}

// onDisconnect is the one teardown. Melody calls it once, whatever ended the connection, after the reader has lost the
// socket.
func (s *Server) onDisconnect(ms *melody.Session) {
	c := connOf(ms)
	defer s.untrack(c)
	defer c.recoverPanic()
	s.paired.remove(c)
	if c.unwatch != nil {
		c.unwatch()
	}
	c.mu.Lock()
	if c.closing == closeNone {
		c.closing = closeGone // from here on nobody can start to close it
	}
	why, worker, gone, back := c.closing, c.worker, c.gone, c.backLocked()
	c.mu.Unlock()
	s.counters.closed[why].Add(1)
	if gone != nil {
		close(gone)
	}
	c.out.discard()
	c.cancelTurn(why)
	c.endContest()
	if c.mcp != nil {
		c.mcp.stop()
	}
	if c.local == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	c.local.Leave(ctx, back)
	c.server.watchDetached(c.who, c.local.Detached())
	if worker != nil && !worker.wait(turnStopWait) {
		c.log().Warn("a turn goes on after its connection has ended")
	}
	c.log().Info("device disconnected", "close", why.Code(), "reason", why.Reason())
}

// watchDetached has calls that wait for a device to come back end with its credential, which its connection watches no
// longer. It says nothing of the connection, which need not be kept for it.
func (s *Server) watchDetached(who *auth.Identity, calls routing.Detached) {
	if s.cfg.Live == nil || !calls.Any() {
		return
	}
	holder := who.AsHolder()
	release := s.cfg.Live.Watch(&holder, func(error) {
		if !s.tryAddTask() { // the pod stops, and ends them
			return
		}
		go func() {
			defer s.taskDone()
			calls.End()
		}()
	})
	time.AfterFunc(registry.ResumeWait, release)
}

// backLocked returns for how long the device of a connection that has ended is expected to connect again, zero if it is
// not: it has closed the connection itself, or was told not to come back.
func (c *conn) backLocked() time.Duration {
	switch {
	case c.closing == CloseRestart, c.announced:
		return registry.ReturnWait
	case !c.closing.Reconnect(), c.closing == closeGone && c.left:
		return 0
	default:
		return registry.BreakWait
	}
}
