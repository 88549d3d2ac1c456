package ws

import (
	"context"
	"errors"
	"fmt"
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

const (
	// drainSpread is over how much time devices are sent away when a pod stops. It is at most half of the time there
	// is. Fewer devices than drainFew are no rush for the other pods, so they all go at once.
	drainSpread = 5 * time.Second
	drainFew    = 20

	// drainReserve is how long before the end of the time there is connections are closed whatever is under way. It is
	// at most a tenth of that time.
	drainReserve = time.Second

	// drainRefuse is how long before that connections begin to refuse new calls and messages: what is under way may
	// still end, and what comes now is refused before anything has run. It is at most a quarter of the time there is.
	drainRefuse = 5 * time.Second

	drainPoll      = 20 * time.Millisecond
	comebackJitter = 250 * time.Millisecond
)

// Close drains the server. It refuses upgrades and sends every device away with CloseRestart: each at its own time, and
// once no call to it is in flight and no turn of its conversation is under way. It returns when nothing of the
// connections remains.
//
// Shortly before ctx ends, connections are closed whatever is under way: turns are cancelled with the cause
// registry.ErrDraining, and have a short grace to tell the device how they ended. When ctx ends, the remaining
// sockets are closed, and the error says how many there were.
func (s *Server) Close(ctx context.Context) error {
	s.Drain()
	d := newDrain(ctx, s.snapshot(), time.Now())
	tick := time.NewTicker(drainPoll)
	defer tick.Stop()
	for {
		d.step(time.Now())
		select {
		case <-s.idle:
			err := s.closeMelody(nil)
			s.stacks.ended.Wait()
			return err
		case <-ctx.Done():
			return s.closeMelody(s.closeSockets(ctx.Err()))
		case <-tick.C:
		}
	}
}

// closeSockets cuts the remaining connections. It returns an error unless everything has ended meanwhile.
func (s *Server) closeSockets(why error) error {
	select {
	case <-s.idle:
		return nil
	default:
	}
	remaining := s.snapshot()
	for _, c := range remaining {
		c.closeSocket()
	}
	return fmt.Errorf("ws: %d connections did not end in time: %w", len(remaining), why)
}

func (s *Server) closeMelody(err error) error {
	s.stacks.close()
	if closeErr := s.melody.Close(); closeErr != nil && !errors.Is(closeErr, melody.ErrClosed) {
		err = errors.Join(err, closeErr)
	}
	return err
}

// drain is the plan by which connections end. Connections that come later end by themselves, because track reports that
// the server drains.
type drain struct {
	waiting          []departure
	refuseAt, cutoff time.Time     // zero without a deadline
	grace            time.Duration // how long turns that are cancelled at the cutoff may take to end
}

// departure is when a connection may end.
type departure struct {
	conn *conn
	at   time.Time
}

// newDrain makes the plan and announces it to the devices that declared the capability. The retry delay they are sent
// ends at their own departure, so they are not away for longer than it takes to connect.
func newDrain(ctx context.Context, conns []*conn, now time.Time) *drain {
	d, spread := &drain{}, drainSpread
	if deadline, ok := ctx.Deadline(); ok {
		remaining := max(deadline.Sub(now), 0)
		spread = min(spread, remaining/2)
		reserve := min(drainReserve, remaining/10)
		d.cutoff, d.grace = deadline.Add(-reserve), reserve/2
		d.refuseAt = d.cutoff.Add(-min(drainRefuse, remaining/4))
	}
	if len(conns) < drainFew {
		spread = 0
	}
	for i, c := range conns {
		delay := spread * time.Duration(i) / time.Duration(len(conns))
		c.announce(delay + rand.N(comebackJitter))
		d.waiting = append(d.waiting, departure{c, now.Add(delay)})
	}
	return d
}

// step ends the connections that may end now.
func (d *drain) step(now time.Time) {
	refuseNew := !d.refuseAt.IsZero() && !now.Before(d.refuseAt)
	cutoff := !d.cutoff.IsZero() && !now.Before(d.cutoff)
	busy := d.waiting[:0]
	for _, dep := range d.waiting {
		switch {
		case cutoff:
			dep.conn.endAfter(CloseRestart, d.grace)
		case now.Before(dep.at) || !dep.conn.endIdle(CloseRestart, refuseNew):
			busy = append(busy, dep)
		}
	}
	clear(d.waiting[len(busy):])
	d.waiting = busy
}

// announce tells the device, once, that this pod is stopping, if it declared the capability drain.
func (c *conn) announce(retryAfter time.Duration) {
	c.mu.Lock()
	due := c.wantsDrain && !c.announced
	c.announced = c.announced || due
	c.mu.Unlock()
	if due {
		_ = c.out.push(serverDrainingFrame(retryAfter)) // the close frame says the same
	}
}

// endIdle ends the connection unless something is under way, and reports whether it is ending. With refuseNew the
// connection refuses new calls and messages from now on, also if it does not end.
func (c *conn) endIdle(why Close, refuseNew bool) bool {
	c.startMu.Lock()
	defer c.startMu.Unlock()
	c.refusesNew = c.refusesNew || refuseNew
	if c.busy() {
		return false
	}
	c.end(why)
	return true
}

// busy reports whether something is under way: a call in flight, an answer that is not acknowledged, or a turn.
func (c *conn) busy() bool {
	c.mu.Lock()
	ending, local, turns := c.closing != closeNone, c.local, c.worker != nil
	c.mu.Unlock()
	if ending || local == nil {
		return false
	}
	if turns {
		return true
	}
	// In this order: an answer is counted as unacknowledged before its call stops being in flight.
	return local.InFlight() > 0 || c.unacknowledged.Load() > 0
}
