package ws

import (
	"sync"
	"time"
)

// intake limits input that is not handled yet: the bytes on the whole pod, and the time for each message. If there are
// too many bytes, it closes connections of the tenant with the most bytes, starting with the oldest unfinished message.
// A device that sends as fast as it can never has an old one.
type intake struct {
	limit   int64 // bytes
	timeout time.Duration

	mu      sync.Mutex
	bytes   int64
	tenants map[string]*tenantIntake // tenants with bytes or unfinished messages
	expiry  *time.Timer              // for the oldest unfinished message; nil: none
}

// inTransit is how many times its limit a pod may hold, because complete messages cannot be dropped.
const inTransit = 2

// tenantIntake is the part of one tenant. The work of an eviction depends on the number of tenants, never on their
// number of connections.
type tenantIntake struct {
	bytes       int64
	first, last *conn // connections with an unfinished message, oldest first; linked by conn.intakePlace
}

// intakePlace is a connection's part in the intake, guarded by the intake's lock.
type intakePlace struct {
	prev, next *conn
	listed     bool
	since      time.Time // when the message began
	bytes      int64
}

// update records how many bytes of a connection are not handled. unfinished means that the connection is in the middle
// of a message; restart means that this is a new message.
func (in *intake) update(c *conn, bytes int64, unfinished, restart bool) {
	in.mu.Lock()
	p := &c.intake
	in.countLocked(c, bytes)
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

func (in *intake) held() int64 {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.bytes
}

func (in *intake) remove(c *conn) { in.update(c, 0, false, false) }

func (in *intake) countLocked(c *conn, bytes int64) {
	more := bytes - c.intake.bytes
	if more == 0 {
		return
	}
	c.intake.bytes = bytes
	in.bytes += more
	in.ofLocked(c).bytes += more
	in.settleLocked(c)
}

// ofLocked returns the part of a connection's tenant, and creates it if needed.
func (in *intake) ofLocked(c *conn) *tenantIntake {
	t := in.tenants[c.who.Tenant]
	if t == nil {
		if in.tenants == nil {
			in.tenants = make(map[string]*tenantIntake)
		}
		t = new(tenantIntake)
		in.tenants[c.who.Tenant] = t
	}
	return t
}

// settleLocked removes the tenant of a connection if it has no bytes and no unfinished messages.
func (in *intake) settleLocked(c *conn) {
	if t := in.tenants[c.who.Tenant]; t.bytes == 0 && t.first == nil {
		delete(in.tenants, c.who.Tenant)
	}
}

// makeRoomLocked drops unfinished messages until the rest is within the limit, and returns their connections.
func (in *intake) makeRoomLocked() (crowded []*conn) {
	for in.bytes > in.limit {
		c := in.heaviestLocked()
		if c == nil {
			break
		}
		in.removeLocked(c)
		in.countLocked(c, 0)
		crowded = append(crowded, c)
	}
	return crowded
}

// heaviestLocked returns the connection with the oldest unfinished message of the tenant with the most bytes. It
// considers only tenants with unfinished messages, and returns nil if there is none. It also returns nil if that tenant
// has less than the mean. Then other tenants have more, in complete messages that wait to be handled. The tenant need
// not make room for those until the pod holds twice its limit.
func (in *intake) heaviestLocked() *conn {
	var heaviest *tenantIntake
	var holders int64
	for _, t := range in.tenants {
		if t.bytes > 0 {
			holders++
		}
		switch {
		case t.first == nil:
		case heaviest == nil, t.bytes > heaviest.bytes,
			t.bytes == heaviest.bytes && t.first.intake.since.Before(heaviest.first.intake.since):
			heaviest = t
		}
	}
	if heaviest == nil || in.bytes-in.limit <= (inTransit-1)*in.limit && heaviest.bytes*holders < in.bytes {
		return nil
	}
	return heaviest.first
}

// oldestLocked returns the connection with the oldest unfinished message, or nil.
func (in *intake) oldestLocked() (oldest *conn) {
	for _, t := range in.tenants {
		if t.first != nil && (oldest == nil || t.first.intake.since.Before(oldest.intake.since)) {
			oldest = t.first
		}
	}
	return oldest
}

// expire stops the connections whose message has taken too long.
func (in *intake) expire() {
	in.mu.Lock()
	var late []*conn
	for _, t := range in.tenants {
		for c := t.first; c != nil && time.Since(c.intake.since) >= in.timeout; c = t.first {
			in.removeLocked(c)
			late = append(late, c)
		}
	}
	in.expiry = nil
	in.armLocked()
	in.mu.Unlock()
	for _, c := range late {
		c.stop(CloseMessageTimeout)
	}
}

func (in *intake) addLocked(c *conn) {
	t, p := in.ofLocked(c), &c.intake
	p.prev, p.next, p.listed, p.since = t.last, nil, true, time.Now()
	if t.last == nil {
		t.first = c
	} else {
		t.last.intake.next = c
	}
	t.last = c
	if in.expiry == nil {
		in.armLocked()
	}
}

func (in *intake) removeLocked(c *conn) {
	t, p := in.tenants[c.who.Tenant], &c.intake
	if p.prev == nil {
		t.first = p.next
	} else {
		p.prev.intake.next = p.next
	}
	if p.next == nil {
		t.last = p.prev
	} else {
		p.next.intake.prev = p.prev
	}
	p.prev, p.next, p.listed = nil, nil, false
	in.settleLocked(c)
}

// armLocked sets the timer for the oldest unfinished message, if there is one. If that message ends before the timer
// fires, expire only sets the timer again.
func (in *intake) armLocked() {
	if c := in.oldestLocked(); c != nil {
		in.expiry = time.AfterFunc(max(time.Until(c.intake.since.Add(in.timeout)), 0), in.expire)
	}
}

// frameScanner tracks the frames in the bytes that a device sends (RFC 6455, section 5.2). The WebSocket library
// reports only whole messages, and a message may have any number of empty fragments. The scanner ignores protocol
// violations; the library ends the connection for them.
type frameScanner struct {
	first   byte   // of the header
	header  uint8  // bytes of the header so far; zero between frames
	size    uint8  // bytes of the whole header, once the second byte is known
	lengths uint8  // bytes of the header up to the end of the length
	open    bool   // a message is incomplete
	length  uint64 // of the payload, as far as the header has been read
	rest    uint64 // bytes of the payload still to come
	held    int    // payload bytes of the incomplete message
}

const (
	finalBit   = 0x80    // of the first byte
	opcodeBits = 0x0f    // of the first byte; zero: a further fragment of a message
	maskBit    = 0x80    // of the second byte
	largePiece = 1 << 10 // bytes from which a fragment of a message does not count as a frame
)

func (s *frameScanner) busy() bool { return s.header > 0 || s.rest > 0 || s.open }

// scan processes p and returns how many frames began in it. Large fragments of a message do not count: their bytes
// count already, and some libraries split every message into fragments of 4 KiB. The number is negative if the header
// of such a fragment began before p. boundary reports whether p has a point where no frame and no message is
// incomplete.
func (s *frameScanner) scan(p []byte) (frames int, boundary bool) {
	for len(p) > 0 {
		if s.rest > 0 {
			n := min(s.rest, uint64(len(p)))
			p = p[n:]
			s.rest -= n
			if s.first&controlBit == 0 {
				s.held += int(n)
			}
		} else {
			if s.header == 0 {
				frames++
			}
			if s.readHeader(p[0]) && s.first&opcodeBits == 0 && s.length >= largePiece {
				frames--
			}
			p = p[1:]
		}
		if s.header == 0 && s.rest == 0 {
			boundary = s.endFrame() || boundary
		}
	}
	return frames, boundary
}

// readHeader processes one more byte of a header, and reports whether it was the last.
func (s *frameScanner) readHeader(b byte) (complete bool) {
	switch {
	case s.header == 0:
		s.first, s.length = b, 0
	case s.header == 1:
		s.lengths = 2
		switch n := b & lengthBits; n {
		case 126:
			s.lengths = 4
		case 127:
			s.lengths = 10
		default:
			s.length = uint64(n)
		}
		s.size = s.lengths
		if b&maskBit != 0 {
			s.size += 4
		}
	case s.header < s.lengths:
		s.length = s.length<<8 | uint64(b)
	}
	s.header++
	if s.header > 1 && s.header == s.size {
		s.header, s.rest = 0, s.length
		return true
	}
	return false
}

// endFrame records that a frame is complete, and reports whether no message is incomplete.
func (s *frameScanner) endFrame() bool {
	if s.first&controlBit == 0 {
		s.open = s.first&finalBit == 0
		if !s.open {
			s.held = 0
		}
	}
	return !s.open
}
