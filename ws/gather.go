package ws

import (
	"encoding/binary"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// gatherLimit is how many bytes of frames are kept back for the next one. Larger ones gain nothing by company.
const gatherLimit = 16 << 10

// gatherer is a connection that writes frames which follow one another at once together. The WebSocket library writes every
// frame by itself, and a system call costs more than everything else a small frame needs. Writes, and setting the deadline for
// them, are never concurrent: the WebSocket library sees to that. Reads go through it, too, to be counted.
type gatherer struct {
	net.Conn
	owner  *conn       // whose connection it is
	framed bool        // frames are written now; set after the handshake, before the first of them
	more   atomic.Bool // the next frame follows the one that is about to be written

	kept *gathered // whole frames, and the beginning of one, that wait for what follows; nil while nothing waits
	left int       // bytes of the frame being written that are still to come
	hold bool      // it waits for the next frame

	deadline, set time.Time // for writing: what was asked for, and what the connection has
}

// gathered is a buffer that serves one connection after the other.
type gathered struct{ bytes []byte }

// gatherers keeps the buffers that serve none.
type gatherers struct{ pool sync.Pool }

func (g *gatherers) get() *gathered {
	if b, ok := g.pool.Get().(*gathered); ok {
		return b
	}
	return &gathered{}
}

func (g *gatherers) put(b *gathered) {
	b.bytes = b.bytes[:0]
	g.pool.Put(b)
}

// Write implements net.Conn. What is kept back counts as written: if it cannot be written later, that write says so, and
// the connection ends all the same.
func (g *gatherer) Write(p []byte) (int, error) {
	if !g.framed {
		return g.Conn.Write(p)
	}
	if g.left == 0 {
		g.left, g.hold = frameLength(p), g.more.Load() && p[0]&controlBit == 0
	}
	g.left = max(g.left-len(p), 0)
	if (g.left > 0 || g.hold) && g.keep(p) {
		return len(p), nil
	}
	if g.deadline != g.set {
		if err := g.Conn.SetWriteDeadline(g.deadline); err != nil {
			return 0, err
		}
		g.set = g.deadline
	}
	if g.kept == nil {
		n, err := g.Conn.Write(p)
		g.owner.server.counters.bytesOut.Add(int64(n))
		return n, err
	}
	return g.writeKept(p)
}

// keep keeps p back, unless that would be too much.
func (g *gatherer) keep(p []byte) bool {
	if g.kept == nil {
		if len(p) > gatherLimit {
			return false
		}
		g.kept = g.owner.server.gatherers.get()
	} else if len(g.kept.bytes)+len(p) > gatherLimit {
		return false
	}
	g.kept.bytes = append(g.kept.bytes, p...)
	return true
}

// writeKept writes what is kept back, and p.
func (g *gatherer) writeKept(p []byte) (n int, err error) {
	before := len(g.kept.bytes)
	if g.keep(p) {
		n, err = g.Conn.Write(g.kept.bytes)
	} else {
		both := net.Buffers{g.kept.bytes, p}
		var written int64
		written, err = both.WriteTo(g.Conn)
		n = int(written)
	}
	g.owner.server.counters.bytesOut.Add(int64(n))
	kept := g.kept
	g.kept = nil // an idle connection keeps no buffer
	g.owner.server.gatherers.put(kept)
	return max(n-before, 0), err
}

// SetWriteDeadline implements net.Conn. The library sets one for every frame; the connection is told when it is written to,
// and only if it is another one.
func (g *gatherer) SetWriteDeadline(t time.Time) error {
	if !g.framed {
		return g.Conn.SetWriteDeadline(t)
	}
	g.deadline = t
	return nil
}

// Bits of a frame's first bytes (RFC 6455, section 5.2).
const (
	controlBit = 0x08 // of the opcode, in the first byte
	lengthBits = 0x7f // of the second byte: the length, or where it stands
)

// frameLength returns the length of the frame that p begins with, as a server writes it: unmasked. The WebSocket library
// writes a frame's header at once.
func frameLength(p []byte) int {
	if len(p) < 2 {
		return len(p)
	}
	switch n := int(p[1] & lengthBits); {
	case n == 126 && len(p) >= 4:
		return 4 + int(binary.BigEndian.Uint16(p[2:]))
	case n == 127 && len(p) >= 10:
		return 10 + int(binary.BigEndian.Uint64(p[2:]))
	default:
		return 2 + n
	}
}

// Read implements net.Conn. Everything that is read is counted on its way.
func (g *gatherer) Read(p []byte) (int, error) {
	if !g.framed {
		return g.Conn.Read(p)
	}
	g.owner.handled()
	n, err := g.Conn.Read(p)
	if n > 0 {
		if stop := g.owner.received(p[:n]); stop != nil {
			return 0, stop
		}
	}
	return n, err
}

// SetReadDeadline implements net.Conn. A reader that was told to stop is not set going again by a pong.
func (g *gatherer) SetReadDeadline(t time.Time) error {
	g.owner.mu.Lock()
	defer g.owner.mu.Unlock()
	if g.owner.stopped {
		return nil
	}
	return g.Conn.SetReadDeadline(t)
}

// CloseWrite closes the sending half, where the connection can.
func (g *gatherer) CloseWrite() error {
	if half, ok := g.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}
