package ws

import (
	"encoding/binary"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// corkLimit is how many bytes of frames are kept back for the next one. Larger ones gain nothing by company.
const corkLimit = 16 << 10

// corkedConn is a connection that writes frames which follow one another at once together. The WebSocket library writes every
// frame by itself, and a system call costs more than everything else a small frame needs. Writes, and setting the deadline for
// them, are never concurrent: the WebSocket library sees to that. Reads go through it, too, to be counted.
type corkedConn struct {
	net.Conn
	owner  *conn       // whose connection it is
	framed bool        // frames are written now; set after the handshake, before the first of them
	corked atomic.Bool // the next frame follows the one that is about to be written

	held      *corkBuffer // whole frames, and the beginning of one, that wait for what follows; nil while nothing waits
	remaining int         // bytes of the frame being written that are still to come
	holding   bool        // it waits for the next frame

	deadline, set time.Time // for writing: what was asked for, and what the connection has
}

// corkBuffer is a buffer that serves one connection after the other.
type corkBuffer struct{ bytes []byte }

// corkBuffers keeps the buffers that serve none.
type corkBuffers struct{ pool sync.Pool }

func (g *corkBuffers) get() *corkBuffer {
	if b, ok := g.pool.Get().(*corkBuffer); ok {
		return b
	}
	return &corkBuffer{}
}

func (g *corkBuffers) put(b *corkBuffer) {
	b.bytes = b.bytes[:0]
	g.pool.Put(b)
}

// Write implements net.Conn. What is kept back counts as written: if it cannot be written later, that write says so, and
// the connection ends all the same.
func (g *corkedConn) Write(p []byte) (int, error) {
	if !g.framed {
		return g.Conn.Write(p)
	}
	if g.remaining == 0 {
		g.remaining, g.holding = frameLength(p), g.corked.Load() && p[0]&controlBit == 0
	}
	g.remaining = max(g.remaining-len(p), 0)
	if (g.remaining > 0 || g.holding) && g.holdBack(p) {
		return len(p), nil
	}
	if g.deadline != g.set {
		if err := g.Conn.SetWriteDeadline(g.deadline); err != nil {
			return 0, err
		}
		g.set = g.deadline
	}
	if g.held == nil {
		n, err := g.Conn.Write(p)
		g.owner.server.counters.bytesOut.Add(int64(n))
		return n, err
	}
	return g.writeHeld(p)
}

// keep keeps p back, unless that would be too much.
func (g *corkedConn) holdBack(p []byte) bool {
	if g.held == nil {
		if len(p) > corkLimit {
			return false
		}
		g.held = g.owner.server.corkBuffers.get()
	} else if len(g.held.bytes)+len(p) > corkLimit {
		return false
	}
	g.held.bytes = append(g.held.bytes, p...)
	return true
}

// writeHeld writes what is kept back, and p.
func (g *corkedConn) writeHeld(p []byte) (n int, err error) {
	before := len(g.held.bytes)
	if g.holdBack(p) {
		n, err = g.Conn.Write(g.held.bytes)
	} else {
		both := net.Buffers{g.held.bytes, p}
		var written int64
		written, err = both.WriteTo(g.Conn)
		n = int(written)
	}
	g.owner.server.counters.bytesOut.Add(int64(n))
	kept := g.held
	g.held = nil // an idle connection keeps no buffer
	g.owner.server.corkBuffers.put(kept)
	return max(n-before, 0), err
}

// SetWriteDeadline implements net.Conn. The library sets one for every frame; the connection is told when it is written to,
// and only if it is another one.
func (g *corkedConn) SetWriteDeadline(t time.Time) error {
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
func (g *corkedConn) Read(p []byte) (int, error) {
	if !g.framed {
		return g.Conn.Read(p)
	}
	g.owner.countHandled()
	n, err := g.Conn.Read(p)
	if n > 0 {
		if stop := g.owner.countInput(p[:n]); stop != nil {
			return 0, stop
		}
	}
	return n, err
}

// SetReadDeadline implements net.Conn. A reader that was told to stop is not set going again by a pong.
func (g *corkedConn) SetReadDeadline(t time.Time) error {
	g.owner.mu.Lock()
	defer g.owner.mu.Unlock()
	if g.owner.stopped {
		return nil
	}
	return g.Conn.SetReadDeadline(t)
}

// CloseWrite closes the sending half, where the connection can.
func (g *corkedConn) CloseWrite() error {
	if half, ok := g.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}
