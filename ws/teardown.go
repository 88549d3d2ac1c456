package ws

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/gorilla/websocket"
	"github.com/olahol/melody"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/routing"
	"github.com/farhand/farhand/ws/node"
)

const (
	// flushWait is how long a closing connection may take to write the frames queued before.
	flushWait = time.Second

	// closeFrameWait is how long the close frame may take. A writer that is blocked in another frame uses this time up.
	closeFrameWait = 500 * time.Millisecond

	// closeGrace is how long the peer may take to answer the close frame before the server closes the socket.
	closeGrace = 2 * time.Second
)

// Close implements routing.Conn.
func (c *conn) Close(cause routing.CloseCause) { c.end(closeFor(cause)) }

// end starts to close the connection and does not block. Only the first call has an effect. From then on frames of the
// device have no effect, nothing more is queued, and the running turn is cancelled.
func (c *conn) end(why Close) { c.endAfter(why, 0) }

// endAfter ends the connection like end, but a cancelled turn has up to grace to send its last event. It does not
// block.
func (c *conn) endAfter(why Close, grace time.Duration) {
	c.mu.Lock()
	if c.closing != closeNone {
		c.mu.Unlock()
		return
	}
	c.closing, c.gone = why, make(chan struct{})
	worker := c.worker
	c.server.addTask() // under mu: the teardown also takes mu, and has not released the connection's own task yet
	c.mu.Unlock()
	if why == CloseRestart {
		c.announce(rand.N(comebackJitter)) // unless the drain already did
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

// releaseSession releases the session, its tools and the calls in flight of a device that may no longer have the
// session. It does not wait until the device closes its socket.
func (c *conn) releaseSession() {
	if local := c.claimed(); local != nil {
		ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
		defer cancel()
		local.End(ctx)
	}
}

// finish writes the queued frames, then the close frame. It closes the socket if the peer does not end it in time.
// Otherwise melody's read loop closes the socket itself.
func (c *conn) finish(why Close, flushed <-chan struct{}) {
	if why != CloseSlow { // a device that does not read will not read the rest
		select {
		case <-flushed:
		case <-time.After(flushWait):
		case <-c.gone:
			return
		}
	}
	c.out.discard()
	if err := c.writeClose(why); err != nil {
		c.closeSocket()
		return
	}
	select {
	case <-time.After(closeGrace):
		c.closeSocket()
	case <-c.gone:
	}
}

func (c *conn) writeClose(why Close) error {
	deadline := time.Now().Add(closeFrameWait)
	payload := why.payload()
	if c.node != nil {
		payload = nodeClosePayload(why)
	}
	return c.session.WebsocketConnection().WriteControl(websocket.CloseMessage, payload, deadline)
}

// closeSocket closes the TCP connection under melody. Melody's reader then ends with an error, and the teardown
// follows.
func (c *conn) closeSocket() { _ = c.session.WebsocketConnection().NetConn().Close() }

// ending returns why the connection is closing, closeNone while it is in use.
func (c *conn) ending() Close {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closing
}

// onDisconnect is the only teardown. Melody calls it once, however the connection ended, after the reader has lost the
// socket.
func (s *Server) onDisconnect(ms *melody.Session) {
	c := connOf(ms)
	defer s.untrack(c)
	defer c.recoverPanic()
	if c.unwatch != nil {
		c.unwatch()
	}
	c.mu.Lock()
	if c.closing == closeNone {
		c.closing = closeGone // end has no effect from here on
	}
	why, worker, gone, back := c.closing, c.worker, c.gone, c.returnWaitLocked()
	c.mu.Unlock()
	s.counters.closed[why].Add(1)
	if gone != nil {
		close(gone)
	}
	c.out.discard()
	s.holders.remove(c)
	c.cancelTurn(why)
	c.endContest()
	if c.mcp != nil {
		c.mcp.stopTimer(true)
	}
	if c.local == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	c.local.Leave(ctx, back)
	c.server.watchDetached(c.who, c.local.Detached())
	if worker != nil && !worker.wait(turnStopWait) {
		c.note(slog.LevelWarn, "a turn continues after its connection closed")
	}
	c.note(slog.LevelInfo, "device disconnected", "close", why.Code(), "reason", why.Reason())
}

// watchDetached ends calls that wait for a device to reconnect when the device's identity ends, because the connection
// no longer watches it. It does not use the connection, which can be freed.
func (s *Server) watchDetached(who *auth.Identity, calls routing.Detached) {
	if s.cfg.Live == nil || !calls.Any() {
		return
	}
	holder := who.AsHolder()
	release := s.cfg.Live.Watch(&holder, func(error) {
		s.goTask(calls.End) // unless the pod stops, which ends them
	})
	time.AfterFunc(registry.ResumeWait, release)
}

// returnWaitLocked returns how long to wait for the device of an ended connection to reconnect. It is zero if the
// device closed the connection itself, or must not reconnect.
func (c *conn) returnWaitLocked() time.Duration {
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
	// drainSpread is the period over which devices are disconnected when a pod stops. It is at most half of the
	// available time. If there are fewer than drainFew devices, all are disconnected immediately: the other pods can
	// take them.
	drainSpread = 5 * time.Second
	drainFew    = 20

	// drainReserve is how long before the deadline connections are closed regardless of work in flight. It is at most a
	// tenth of the available time.
	drainReserve = time.Second

	// drainRefuse is how long before that connections start to reject new calls and messages. Work in flight may still
	// end, and new work is rejected before anything has run. It is at most a quarter of the available time.
	drainRefuse = 5 * time.Second

	drainPoll      = 20 * time.Millisecond
	comebackJitter = 250 * time.Millisecond
)

// Close drains the server. It rejects upgrades and closes every connection with CloseRestart: each at its own time, and
// only when no call to the device is in flight and no turn of its conversation runs. It returns when all connections
// have ended.
//
// Shortly before ctx ends, it closes connections regardless of work in flight. It cancels turns with the cause
// registry.ErrDraining, and gives them a short grace to send their last event. When ctx ends, it closes the remaining
// sockets and returns an error with their number.
func (s *Server) Close(ctx context.Context) error {
	s.Drain()
	d := newDrain(ctx, s.snapshot(), time.Now())
	tick := time.NewTicker(drainPoll)
	defer tick.Stop()
	for {
		d.step(time.Now())
		select {
		case <-s.idle:
			s.closePools()
			s.stacks.ended.Wait()
			return nil
		case <-ctx.Done():
			defer s.closePools()
			return s.closeSockets(ctx.Err())
		case <-tick.C:
		}
	}
}

// closeSockets closes the remaining sockets. It returns an error unless all tasks have ended meanwhile.
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

func (s *Server) closePools() {
	s.stacks.close()
	_ = s.melody.Close() // fails only if it is closed already
	_ = s.nodes.Close()
}

// drain is the schedule by which connections end. Later connections are not in it: track reports that the server
// drains, and they end themselves.
type drain struct {
	waiting          []departure
	refuseAt, cutoff time.Time     // zero without a deadline
	grace            time.Duration // how long turns cancelled at the cutoff may take to end
}

type departure struct {
	conn *conn
	at   time.Time
}

// newDrain makes the schedule and announces it to the devices that declared the capability. Each device's retry delay
// ends at its own departure, so it is away only as long as it takes to connect.
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

// announce sends server_draining, once, to a device that declared the capability drain, and a node its event shutdown.
func (c *conn) announce(retryAfter time.Duration) {
	c.mu.Lock()
	due := (c.wantsDrain || c.node != nil) && !c.announced
	c.announced = c.announced || due
	c.mu.Unlock()
	switch {
	case due && c.node != nil:
		_ = c.out.push(node.Shutdown(retryAfter))
	case due:
		_ = c.out.push(serverDrainingFrame(retryAfter)) // the close frame says the same
	}
}

// endIdle ends the connection unless work is in flight, and reports whether it is ending. With refuseNew the connection
// rejects new calls and messages from now on, even if it does not end.
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

// busy reports whether work is in flight: a call, an answer that is not acknowledged, or a turn.
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
