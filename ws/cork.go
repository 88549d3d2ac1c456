package ws

import (
	"encoding/binary"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// corkLimit is how many bytes of frames are held back for the next frame. Larger frames gain nothing by being joined.
const corkLimit = 16 << 10

// corkedConn joins frames that follow one another at once into one write, as TCP_CORK and MSG_MORE do in the kernel.
// The WebSocket library writes every frame by itself, and a system call costs more than everything else that a small
// frame needs. The library also sees to it that writes, and setting their deadline, are never concurrent. Reads pass
// through to be counted.
type corkedConn struct {
	net.Conn
	owner  *conn       // the connection that the socket belongs to
	framed bool        // frames are written now; set after the handshake, before the first frame
	corked atomic.Bool // another frame follows the one that is about to be written

	held      *corkBuffer // whole frames, and the beginning of one, that are not written yet; nil while there are none
	remaining int         // bytes of the frame being written that are still to come
	holding   bool        // the frame being written is held back for the next frame

	newDeadline bool      // the socket does not have the deadline yet
	deadline    time.Time // for writing
}

// corkBuffer holds back the frames of one connection at a time.
type corkBuffer struct{ bytes []byte }

// corkBuffers keeps the buffers that no connection uses.
type corkBuffers struct{ pool sync.Pool }

func (b *corkBuffers) get() *corkBuffer {
	if buffer, ok := b.pool.Get().(*corkBuffer); ok {
		return buffer
	}
	return &corkBuffer{}
}

func (b *corkBuffers) put(buffer *corkBuffer) {
	buffer.bytes = buffer.bytes[:0]
	b.pool.Put(buffer)
}

// Write implements net.Conn. Bytes that are held back count as written. If they cannot be written later, the later
// write fails, and the connection ends all the same.
func (w *corkedConn) Write(p []byte) (int, error) {
	if !w.framed {
		return w.Conn.Write(p)
	}
	if w.remaining == 0 {
		w.remaining, w.holding = frameLength(p), w.corked.Load() && p[0]&controlBit == 0
	}
	w.remaining = max(w.remaining-len(p), 0)
	if (w.remaining > 0 || w.holding) && w.holdBack(p) {
		return len(p), nil
	}
	if w.newDeadline {
		if err := w.Conn.SetWriteDeadline(w.deadline); err != nil {
			return 0, err
		}
		w.newDeadline = false
	}
	if w.held == nil {
		n, err := w.Conn.Write(p)
		w.owner.server.counters.bytesOut.Add(int64(n))
		return n, err
	}
	return w.writeHeld(p)
}

// holdBack adds p to what is held back, and reports false if that would be too much.
func (w *corkedConn) holdBack(p []byte) bool {
	if w.held == nil {
		if len(p) > corkLimit {
			return false
		}
		w.held = w.owner.server.corkBuffers.get()
	} else if len(w.held.bytes)+len(p) > corkLimit {
		return false
	}
	w.held.bytes = append(w.held.bytes, p...)
	return true
}

// writeHeld writes what is held back, and p.
func (w *corkedConn) writeHeld(p []byte) (n int, err error) {
	before := len(w.held.bytes)
	if w.holdBack(p) {
		n, err = w.Conn.Write(w.held.bytes)
	} else {
		both := net.Buffers{w.held.bytes, p}
		var written int64
		written, err = both.WriteTo(w.Conn)
		n = int(written)
	}
	w.owner.server.counters.bytesOut.Add(int64(n))
	buffer := w.held
	w.held = nil // an idle connection keeps no buffer
	w.owner.server.corkBuffers.put(buffer)
	return max(n-before, 0), err
}

// SetWriteDeadline implements net.Conn. The library sets a deadline for every frame. The socket gets it with the next
// write, and only if it is a new one.
func (w *corkedConn) SetWriteDeadline(t time.Time) error {
	if !w.framed {
		return w.Conn.SetWriteDeadline(t)
	}
	w.newDeadline = w.newDeadline || t != w.deadline
	w.deadline = t
	return nil
}

// Bits of a frame's first bytes (RFC 6455, section 5.2).
const (
	controlBit = 0x08 // of the opcode, in the first byte
	lengthBits = 0x7f // of the second byte: the length, or where the length is
)

// frameLength returns the length of the frame that p begins with, as a server writes it: unmasked. The WebSocket
// library writes a frame's whole header in one call.
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

// Read implements net.Conn. All input is counted here, before the WebSocket library sees it.
func (w *corkedConn) Read(p []byte) (int, error) {
	if !w.framed {
		return w.Conn.Read(p)
	}
	w.owner.countHandled()
	n, err := w.Conn.Read(p)
	if n > 0 {
		if stop := w.owner.countInput(p[:n]); stop != nil {
			return 0, stop
		}
	}
	return n, err
}

// SetReadDeadline implements net.Conn. It does nothing once the reader was stopped: a pong must not set it going again.
func (w *corkedConn) SetReadDeadline(t time.Time) error {
	w.owner.mu.Lock()
	defer w.owner.mu.Unlock()
	if w.owner.stopped {
		return nil
	}
	return w.Conn.SetReadDeadline(t)
}

// CloseWrite closes the sending half, where the socket can.
func (w *corkedConn) CloseWrite() error {
	if half, ok := w.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}
