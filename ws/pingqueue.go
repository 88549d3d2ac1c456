package ws

import "time"

const (
	// pingSlack is the part of an interval by which a device may be pinged early, so that many are pinged at a time.
	pingSlack = 64

	// pingBatch is how many devices are pinged at a time, and pingPause is the pause before the next batch. So the
	// frame of a call waits for one batch at most, even when a process that stood still finds all devices overdue.
	pingBatch = 64
	pingPause = time.Millisecond
)

// pingQueue lists the connections in the order in which they are to be pinged. All have the same interval, so a
// connection that was pinged goes to the end. The list is linked through the connections: that takes less memory than a
// map, and any of them can be removed at once.
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

// ping pings the devices that are due, and sets the timer for the next. The writers do the work. It runs in the timer's
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
		c.pingAt = now + every // not pingAt + every: so the queue stays in the order of the times
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
