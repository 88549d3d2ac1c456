package ws

import (
	"time"

	"github.com/gorilla/websocket"
	"github.com/olahol/melody"

	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/ws/node"
)

const (
	// aliveFor is how long a pong counts as a sign of life. Without it, repeated checks could make a device send more
	// frames than it may.
	aliveFor = 250 * time.Millisecond

	// maxAwaitingPong bounds the callbacks that wait for a pong. Further callbacks are called immediately: their
	// callers contest the session, and must not win it by their number.
	maxAwaitingPong = 256
)

// Ping implements routing.Conn. It calls answered when the device has shown a sign of life.
func (c *conn) Ping(answered func()) {
	c.mu.Lock()
	now := c.server.now()
	known := len(c.awaitingPong) >= maxAwaitingPong || c.pongAt != 0 && now-c.pongAt < aliveFor
	asked := len(c.awaitingPong) > 0 && now-c.pingedAt < aliveFor
	if !known {
		c.awaitingPong = append(c.awaitingPong, answered)
		if !asked {
			c.pingedAt = now
		}
	}
	c.mu.Unlock()
	switch {
	case known:
		answered()
	case !asked: // else a ping is on its way
		c.out.ping()
	}
}

// notePing records that a ping is being written. The next pong counts as the answer to the oldest unanswered ping.
func (c *conn) notePing() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.probedAt == 0 {
		c.probedAt = c.server.now()
	}
}

// Owner implements routing.Conn.
func (c *conn) Owner() share.Owner { return c.who.Owner() }

// Pulse implements routing.Conn.
func (c *conn) Pulse() registry.Pulse {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pongAt == 0 {
		return registry.Pulse{}
	}
	return registry.NewPulse(c.server.started.Add(c.pongAt), c.roundTrip)
}

// onPong records a pong, and calls the callbacks that wait for it. Melody has already moved the read deadline.
func (s *Server) onPong(ms *melody.Session) {
	c := connOf(ms)
	defer c.recoverPanic()
	s.counters.received[countedPong].Add(1)
	if c.who.Use != nil {
		c.who.Use.NoteUse()
	}
	c.mu.Lock()
	c.pongAt = s.now()
	if c.probedAt != 0 {
		c.roundTrip, c.probedAt = c.pongAt-c.probedAt, 0
	}
	callbacks := c.awaitingPong
	c.awaitingPong = nil
	c.mu.Unlock()
	for _, answered := range callbacks {
		answered()
	}
}

func (c *conn) onPing(data string) error {
	defer c.recoverPanic()
	c.server.counters.received[countedPing].Add(1)
	if c.ending() != closeNone {
		return nil
	}
	err := c.session.WebsocketConnection().WriteControl(
		websocket.PongMessage, []byte(data), time.Now().Add(closeFrameWait))
	if err != nil {
		c.log().Debug("pong not written", "error", err) // a dead peer is detected by its missing pongs
	}
	return nil
}

const (
	// pingSlack is the fraction of the interval by which a ping may be early, so that many devices are pinged together.
	pingSlack = 64

	// pingBatch is how many devices are pinged together, and pingPause is the pause between batches. So the frame of a
	// call waits for at most one batch, even if all devices are overdue after the process was suspended.
	pingBatch = 64
	pingPause = time.Millisecond
)

// ping pings the devices that are due, sends ticks to the nodes among them, and sets the timer for the next. The
// writers write the pings. It runs in the timer's goroutine, and has no effect on closed connections.
func (s *Server) ping() {
	var tick []byte // the same for all nodes
	for _, c := range s.takeDue() {
		c.out.ping()
		if c.node == nil {
			continue
		}
		if tick == nil {
			tick = node.Tick(time.Now())
		}
		_ = c.out.push(tick) // a full outbox shows life enough
	}
}

func (s *Server) takeDue() (due []*conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, every := s.now(), s.cfg.PingInterval
	horizon := now + every/pingSlack
	for first := s.conns.Front(); first != nil && len(due) < pingBatch; first = s.conns.Front() {
		c := first.Value.(*conn)
		if c.pingAt > horizon {
			break
		}
		due = append(due, c)
		c.pingAt = now + every // not pingAt + every, so that the list stays sorted by time
		s.conns.MoveToBack(first)
	}
	s.armLocked()
	return due
}

// armLocked sets the timer for the next ping, or stops it.
func (s *Server) armLocked() {
	first := s.conns.Front()
	if first == nil {
		s.pinger.Stop()
		return
	}
	in := max(first.Value.(*conn).pingAt-s.now(), pingPause)
	if s.pinger == nil {
		s.pinger = time.AfterFunc(in, s.ping)
	} else {
		s.pinger.Reset(in)
	}
}
