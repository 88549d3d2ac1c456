package ws

import "time"

const (
	// pingSlack is the part of an interval by which a device may be pinged early, so that many can be pinged at a time.
	pingSlack = 64

	// pingBatch is how many are pinged at a time, and pingPause what passes before the next of them are: the frame of a call
	// that comes meanwhile waits for a batch at most, even when a process that stood still finds all devices overdue.
	pingBatch = 64
	pingPause = time.Millisecond
)

const (
	// aliveFor is how long a pong counts as a sign of life: who keeps asking must not have a device send more than its budget.
	aliveFor = 250 * time.Millisecond

	// maxAwaitingPong bounds who wait for a sign of life at a time. More are told that there is one: they must not win by their number.
	maxAwaitingPong = 256
)

// Ping implements routing.Conn.
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

// answered tells who asked that the device gave a sign of life.
func (c *conn) notifyAlive() {
	c.mu.Lock()
	c.pongAt = c.server.now()
	awaitingPong := c.awaitingPong
	c.awaitingPong = nil
	c.mu.Unlock()
	for _, answered := range awaitingPong {
		answered()
	}
}

// roll is the list of the connections, those to be pinged next first: all have the same interval, so who was pinged goes to
// the end. They are linked with one another, which takes less than a map, and takes any of them out at once.
type pingQueue struct {
	first, last *conn
	size        int
}

func (q *pingQueue) add(c *conn) {
	c.prev, c.next = q.last, nil
	if q.last == nil {
		q.first = c
	} else {
		q.last.next = c
	}
	q.last = c
	q.size++
}

func (q *pingQueue) remove(c *conn) {
	if c.prev == nil {
		q.first = c.next
	} else {
		c.prev.next = c.next
	}
	if c.next == nil {
		q.last = c.prev
	} else {
		c.next.prev = c.prev
	}
	c.prev, c.next = nil, nil
	q.size--
}

// ping pings the devices whose time it is, and sets the timer for the next. The writers do the work. It runs in the timer's
// goroutine, and does nothing to connections that are gone.
func (s *Server) ping() {
	for _, c := range s.takeDue() {
		c.out.ping()
	}
}

func (s *Server) takeDue() (due []*conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, every := s.now(), s.cfg.PingInterval
	horizon := now + every/pingSlack
	for c := s.conns.first; c != nil && c.pingAt <= horizon && len(due) < pingBatch; c = s.conns.first {
		due = append(due, c)
		c.pingAt = now + every // and not its own rhythm: so the order is always that of the times
		s.conns.remove(c)
		s.conns.add(c)
	}
	s.armLocked()
	return due
}

// armLocked sets the timer for the device to be pinged next.
func (s *Server) armLocked() {
	if s.conns.first == nil {
		return
	}
	in := max(s.conns.first.pingAt-s.now(), pingPause)
	if s.pinger == nil {
		s.pinger = time.AfterFunc(in, s.ping)
	} else {
		s.pinger.Reset(in)
	}
}
