package ws

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/olahol/melody"
)

const (
	// drainSpread is over how much time devices are sent away when a pod stops, at most; half of the time there is, if
	// that is less. Fewer than drainFew are no rush for the other pods: they go at once.
	drainSpread = 5 * time.Second
	drainFew    = 20

	// drainReserve is how long before the end of the time there is connections are closed whatever is under way, at
	// most; a tenth, if that is less. drainRefuse is how long before that they take no more calls and messages: what is
	// under way may still end, and what comes is refused while nothing has run. At most; a quarter, if that is less.
	drainReserve = time.Second
	drainRefuse  = 5 * time.Second

	drainPoll      = 20 * time.Millisecond
	comebackJitter = 250 * time.Millisecond
)

// Close drains: upgrades are refused, and every device is sent away with CloseRestart, each when it is its time and once no
// call to it is in flight and no turn of its conversation is under way. It returns when nothing of the connections is
// left. Shortly before ctx ends, connections are closed with what is under way: turns are stopped with the cause
// registry.ErrDraining, and devices told how they ended if that does not take long. When ctx ends, what is left is cut, and the error says how many that were.
func (s *Server) Close(ctx context.Context) error {
	s.Drain()
	d := newDrain(ctx, s.snapshot(), time.Now())
	tick := time.NewTicker(drainPoll)
	defer tick.Stop()
	for {
		d.step(time.Now())
		select {
		case <-s.idle:
			return s.closeMelody(nil)
		case <-ctx.Done():
			return s.closeMelody(s.cutAll(ctx.Err()))
		case <-tick.C:
		}
	}
}

// cutAll cuts what is left.
func (s *Server) cutAll(why error) error {
	select {
	case <-s.idle:
		return nil
	default:
	}
	left := s.snapshot()
	for _, c := range left {
		c.cut()
	}
	return fmt.Errorf("ws: %d connections did not end in time: %w", len(left), why)
}

func (s *Server) closeMelody(err error) error {
	if closeErr := s.melody.Close(); closeErr != nil && !errors.Is(closeErr, melody.ErrClosed) {
		err = errors.Join(err, closeErr)
	}
	return err
}

// drain is the plan by which connections end. Those that come later end by themselves: track tells them.
type drain struct {
	waiting          []departure
	refuseAt, cutoff time.Time     // zero when there is no hurry
	grace            time.Duration // how long turns may take to end that are stopped at the cutoff
}

// departure is when a connection may end.
type departure struct {
	conn *conn
	at   time.Time
}

// newDrain makes the plan and tells the devices that want to know. What they are told to wait ends when their turn
// comes, so they are not away for longer than it takes to connect.
func newDrain(ctx context.Context, conns []*conn, now time.Time) *drain {
	d, spread := &drain{}, drainSpread
	if deadline, ok := ctx.Deadline(); ok {
		left := max(deadline.Sub(now), 0)
		spread = min(spread, left/2)
		reserve := min(drainReserve, left/10)
		d.cutoff, d.grace = deadline.Add(-reserve), reserve/2
		d.refuseAt = d.cutoff.Add(-min(drainRefuse, left/4))
	}
	if len(conns) < drainFew {
		spread = 0
	}
	for i, c := range conns {
		turn := spread * time.Duration(i) / time.Duration(len(conns))
		c.announce(turn + rand.N(comebackJitter))
		d.waiting = append(d.waiting, departure{c, now.Add(turn)})
	}
	return d
}

// step ends the connections whose turn it is.
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

// announce tells the device, once, that this pod is stopping, if it declared to understand that.
func (c *conn) announce(retryAfter time.Duration) {
	c.mu.Lock()
	tell := c.wantsDrain && !c.announced
	c.announced = c.announced || tell
	c.mu.Unlock()
	if tell {
		_ = c.out.push(serverDrainingFrame(retryAfter)) // the close frame says the same
	}
}

// endIdle ends the connection unless something is under way, and reports whether it is ending. With hush it takes no
// more calls and messages in any case.
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

// busy reports whether the device owes an answer, or is owed one: an acknowledgement, or the rest of a turn.
func (c *conn) busy() bool {
	c.mu.Lock()
	ending, local, talking := c.closing != closeNone, c.local, c.worker != nil
	c.mu.Unlock()
	if ending || local == nil {
		return false
	}
	if talking {
		return true
	}
	// In this order: an answer is counted before its call stops being in flight.
	return local.InFlight() > 0 || c.unacknowledged.Load() > 0
}
