package ws

import (
	"encoding/binary"
	"net"
	"sync/atomic"
)

// gatherLimit is how many bytes of frames are kept back for the next one. Larger ones gain nothing by company.
const gatherLimit = 16 << 10

// gatherer is a connection that writes frames which follow one another at once together. The WebSocket library writes every
// frame by itself, and a system call costs more than everything else a small frame needs. Writes are never concurrent:
// the WebSocket library sees to that. Reads and everything else are the connection's own.
type gatherer struct {
	net.Conn
	owner  *conn       // whose connection it is
	framed bool        // frames are written now; set after the handshake, before the first of them
	more   atomic.Bool // the next frame follows the one that is about to be written

	kept []byte // whole frames, and the beginning of one, that wait for what follows
	left int    // bytes of the frame being written that are still to come
	hold bool   // it waits for the next frame
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
	if (g.left > 0 || g.hold) && len(g.kept)+len(p) <= gatherLimit {
		g.kept = append(g.kept, p...)
		return len(p), nil
	}
	if len(g.kept) == 0 {
		return g.Conn.Write(p)
	}
	kept := int64(len(g.kept))
	both := net.Buffers{g.kept, p}
	g.kept = nil // an idle connection keeps no buffer
	n, err := both.WriteTo(g.Conn)
	return max(int(n-kept), 0), err
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

// CloseWrite closes the sending half, where the connection can.
func (g *gatherer) CloseWrite() error {
	if half, ok := g.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}
