package ws

import (
	"sync"
	"time"
)

// intake bounds what devices have sent and is not handled yet: the bytes on the whole pod, and the time for each
// message. When there are too many bytes, the connections with the oldest unfinished messages are closed: a device that
// sends as fast as it can never has an old one.
type intake struct {
	limit   int64 // bytes
	timeout time.Duration

	mu          sync.Mutex
	bytes       int64
	first, last *conn // in the middle of a message, oldest first; linked by conn.intakePlace
	expiry      *time.Timer
}

// intakePlace is a connection's part in the intake, guarded by the intake's lock.
type intakePlace struct {
	prev, next *conn
	listed     bool
	since      time.Time // when the message began
	bytes      int64
}

// update notes how many bytes of a connection are not handled. With unfinished, the connection is in the middle of a
// message; with restart, that message is another one than before.
func (in *intake) update(c *conn, bytes int64, unfinished, restart bool) {
	in.mu.Lock()
	p := &c.intake
	in.bytes += bytes - p.bytes
	p.bytes = bytes
	if p.listed && (restart || !unfinished) {
		in.removeLocked(c)
	}
	if unfinished && !p.listed {
		in.addLocked(c)
	}
	crowded := in.makeRoomLocked()
	in.mu.Unlock()
	for _, c := range crowded {
		c.stop(CloseCrowded)
	}
}

// held returns how many bytes are not handled.
func (in *intake) held() int64 {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.bytes
}

// remove forgets a connection that has ended.
func (in *intake) remove(c *conn) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.bytes -= c.intake.bytes
	c.intake.bytes = 0
	if c.intake.listed {
		in.removeLocked(c)
	}
}

// makeRoomLocked gives up the oldest messages until the others are within the limit, and returns their connections.
func (in *intake) makeRoomLocked() (crowded []*conn) {
	for c := in.first; c != nil && in.bytes > in.limit; c = in.first {
		in.removeLocked(c)
		in.bytes -= c.intake.bytes
		c.intake.bytes = 0
		crowded = append(crowded, c)
	}
	return crowded
}

// expire ends the connections whose message has taken too long.
func (in *intake) expire() {
	in.mu.Lock()
	var late []*conn
	for c := in.first; c != nil && time.Since(c.intake.since) >= in.timeout; c = in.first {
		in.removeLocked(c)
		late = append(late, c)
	}
	in.armLocked()
	in.mu.Unlock()
	for _, c := range late {
		c.stop(CloseMessageTimeout)
	}
}

func (in *intake) addLocked(c *conn) {
	p := &c.intake
	p.prev, p.next, p.listed, p.since = in.last, nil, true, time.Now()
	if in.last == nil {
		in.first = c
		in.armLocked()
	} else {
		in.last.intake.next = c
	}
	in.last = c
}

func (in *intake) removeLocked(c *conn) {
	p := &c.intake
	if p.prev == nil {
		in.first = p.next
	} else {
		p.prev.intake.next = p.next
	}
	if p.next == nil {
		in.last = p.prev
	} else {
		p.next.intake.prev = p.prev
	}
	p.prev, p.next, p.listed = nil, nil, false
}

// armLocked sets the timer for the oldest message. It may fire for one that has ended, and then does nothing but this.
func (in *intake) armLocked() {
	if in.first == nil {
		return
	}
	remaining := max(time.Until(in.first.intake.since.Add(in.timeout)), 0)
	if in.expiry == nil {
		in.expiry = time.AfterFunc(remaining, in.expire)
	} else {
		in.expiry.Reset(remaining)
	}
}
