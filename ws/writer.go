package ws

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"log/slog"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"
	"github.com/olahol/melody"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/ws/internal/fields"
)

// onSent ends melody's writer after the first frame; writerPool writes all other frames. A goroutine that waits for the
// next frame, with its stack and its ticker, is a third of what an idle device costs. Melody no longer needs it: its
// session gets nothing else to write, and Server.ping sends the pings.
func (s *Server) onSent(ms *melody.Session, first []byte) {
	s.counters.frameSent(first, false)
	connOf(ms).out.written()
	runtime.Goexit()
}

// wakeWriter implements outboxOwner.
func (c *conn) wakeWriter() { c.server.writers.add(c) }

// writeQueued writes the frames of the outbox. The outbox ensures that it runs once at a time.
func (c *conn) writeQueued() {
	defer c.recoverPanic()
	written := false
	defer func() {
		if !written { // after a panic
			c.out.abandon()
		}
	}()
	for {
		out, ok := c.out.next()
		if !ok {
			written = true
			return
		}
		if err := c.writeFrame(out); err != nil {
			c.log().Debug("frame not written", "error", err)
			c.out.discard()
			c.closeSocket()
		}
	}
}

func (c *conn) writeFrame(out outgoing) error {
	socket := c.session.WebsocketConnection()
	limit, now := c.server.cfg.WriteTimeout, c.server.now()
	if c.writeUntil-now < limit {
		c.writeUntil = now + limit + limit/deadlineSlack
	}
	_ = socket.SetWriteDeadline(c.server.started.Add(c.writeUntil)) // never fails
	joined := c.wire.corked.Swap(out.corked) || out.corked
	c.server.counters.frameSent(out.frame, joined)
	if out.frame == nil {
		c.notePing()
		_ = socket.WriteMessage(websocket.PingMessage, nil) // a dead peer is detected by its missing pongs
		return nil
	}
	return socket.WriteMessage(websocket.TextMessage, out.frame)
}

// deadlineSlack is the fraction of a write timeout by which a deadline may be later, so that it is not set for every
// frame.
const deadlineSlack = 8

// writerPool runs the goroutines that write to devices. There are none while there is nothing to write.
//
// A writer that starts while more connections wait first starts another writer, because its own device may be slow. If
// the device is fast, the first writer has done all the work before the second one runs. So a burst to many devices
// costs only the goroutines it needs, and a blocked device delays no other device. There is never more than one writer
// beyond the number of connections.
type writerPool struct {
	server *Server // counts the goroutines

	mu          sync.Mutex
	first, last *conn // connections that wait for a writer, each at most once, linked by conn.nextToWrite
	starting    bool  // a writer was started but does not run yet
}

// add queues the connection for a writer. It does not block.
func (p *writerPool) add(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.first == nil {
		p.first = c
	} else {
		p.last.nextToWrite = c
	}
	p.last = c
	p.startLocked()
}

// startLocked starts a writer if one is needed and none is starting.
func (p *writerPool) startLocked() {
	if p.first == nil || p.starting {
		return
	}
	p.starting = true
	// The waiting connection is still counted as a task: its teardown needs the lock of its outbox, which add's caller
	// holds.
	p.server.addTask()
	go p.writeWaiting()
}

// writeWaiting is one writer. It serves connections until none waits.
func (p *writerPool) writeWaiting() {
	defer p.server.taskDone()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.starting = false
	for p.first != nil {
		c := p.first
		p.first, c.nextToWrite = c.nextToWrite, nil
		p.startLocked()
		p.mu.Unlock()
		c.writeQueued()
		p.mu.Lock()
	}
}

// send queues a frame of the device protocol. It does nothing for a device that speaks another one. A device that does
// not read its frames is closed as slow.
func (c *conn) send(frame []byte) error {
	if c.mcp != nil || c.node != nil {
		return nil
	}
	return c.queue(frame, func() error { return c.out.push(frame) })
}

// How long an acknowledgement may wait for the next frame to the device. Writing two frames together saves one system
// call here, and one at the device. An acknowledgement lets the device free the answer, and keeps it from sending the
// answer again on its next connection. So without calls in flight it may be late: in a fleet where each device gets
// about one call a second, most acknowledgements go out with the next call. A device with other calls to answer gets it
// soon, because it may answer them one after another.
const (
	ackDelay     = 20 * time.Millisecond
	idleAckDelay = 800 * time.Millisecond
)

func (c *conn) acknowledge(id string, ignored bool) error {
	if c.mcp != nil {
		return nil // MCP has no acknowledgements: its servers do not repeat answers
	}
	delay := idleAckDelay
	if ignored || c.local.InFlight() > 0 {
		delay = ackDelay
	}
	var frame []byte
	if c.node == nil {
		frame = resultAcknowledgedFrame(id, ignored)
	} else if frame = c.node.Acknowledge(id, ignored); frame == nil {
		return nil
	}
	return c.queue(frame, func() error { return c.out.pushLazily(frame, delay) })
}

// sendError converts an error of the outbox into an error for the handler that sends.
func sendError(err error) error {
	switch {
	case errors.Is(err, errOutboxFull), errors.Is(err, errOutboxesFull):
		return CloseSlow
	case errors.Is(err, errFrameTooBig):
		return fields.NewError(codeInternalError, "The response is too large to send to a device.")
	default: // a closed outbox means that the connection is ending
		return nil
	}
}

// fail answers a handler's error with an error frame. If the error is a Close, it ends the connection instead.
func (c *conn) fail(err error) {
	var why Close
	var bad *fields.Error
	var refused *registry.Error
	switch {
	case errors.As(err, &why):
		c.note(slog.LevelInfo, "closing a device", "close", why.Code(), "reason", why.Reason())
		c.end(why)
		return
	case errors.Is(err, registry.ErrNotOwner):
		c.end(CloseReplaced)
		return
	case errors.As(err, &bad):
	case errors.As(err, &refused) && refused.Code == registry.CodeInvalidRequest:
		bad = fields.Invalid("%s", refused.Message)
	default:
		c.note(slog.LevelError, "frame not handled", "error", err)
		bad = fields.NewError(codeInternalError, registry.AsError(err).Message)
	}
	switch {
	case c.mcp != nil:
		err = c.sendMCP(c.mcp.Error(bad))
	case c.node != nil:
		err = c.sendNode(c.node.Error(bad))
	default:
		err = c.send(errorFrame(bad.Code, bad.Message))
	}
	if errors.As(err, &why) {
		c.end(why)
	}
}

// corkLimit is how many bytes of frames are held back for the next frame. Joining larger frames saves nothing.
const corkLimit = 16 << 10

// corkedConn joins frames that follow one another immediately into one write, as TCP_CORK and MSG_MORE do in the
// kernel. The WebSocket library writes every frame by itself, and a system call costs more than all other work for a
// small frame. The library also ensures that writes, and setting their deadline, are never concurrent. Reads pass
// through to be counted.
type corkedConn struct {
	net.Conn
	owner  *conn       // connection of the socket
	framed bool        // the handshake is done; set before the first frame
	silent bool        // the response to the upgrade is dropped, because the peer has it already
	unread []byte      // what the peer sent before
	corked atomic.Bool // another frame follows the one about to be written

	held      *bytes.Buffer // unwritten whole frames and the start of one; nil while there are none
	remaining int           // bytes of the frame being written still to come
	holding   bool          // the frame being written is held back for the next frame

	newDeadline bool      // the socket does not have the deadline yet
	deadline    time.Time // for writing
}

// Write implements net.Conn. Bytes that are held back count as written. If they cannot be written later, the later
// write fails and the connection ends.
func (w *corkedConn) Write(p []byte) (int, error) {
	if !w.framed && w.silent {
		return len(p), nil
	}
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

// holdBack adds p to the bytes held back. It returns false if that would exceed corkLimit.
func (w *corkedConn) holdBack(p []byte) bool {
	if len(p) > corkLimit || w.held != nil && w.held.Len()+len(p) > corkLimit {
		return false
	}
	if w.held == nil {
		w.held, _ = w.owner.server.corkBuffers.Get().(*bytes.Buffer)
	}
	if w.held == nil {
		w.held = new(bytes.Buffer)
	}
	w.held.Write(p)
	return true
}

// writeHeld writes the bytes held back, and p.
func (w *corkedConn) writeHeld(p []byte) (n int, err error) {
	before := w.held.Len()
	if w.holdBack(p) {
		n, err = w.Conn.Write(w.held.Bytes())
	} else {
		both := net.Buffers{w.held.Bytes(), p}
		var written int64
		written, err = both.WriteTo(w.Conn)
		n = int(written)
	}
	w.owner.server.counters.bytesOut.Add(int64(n))
	w.held.Reset()
	w.owner.server.corkBuffers.Put(w.held)
	w.held = nil // an idle connection keeps no buffer
	return max(n-before, 0), err
}

// SetWriteDeadline implements net.Conn. The library sets a deadline for every frame. The next write sets it at the
// socket, and only if it has changed.
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
// library writes a frame's whole header in one call, which TestTheLibraryWritesWholeHeaders checks.
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
	n, err := w.read(p)
	if n > 0 {
		if stop := w.owner.countInput(p[:n]); stop != nil {
			return 0, stop
		}
	}
	return n, err
}

func (w *corkedConn) read(p []byte) (int, error) {
	if len(w.unread) == 0 {
		return w.Conn.Read(p)
	}
	n := copy(p, w.unread)
	if w.unread = w.unread[n:]; len(w.unread) == 0 {
		w.unread = nil
	}
	return n, nil
}

// SetReadDeadline implements net.Conn. It does nothing once the reader was stopped, so that a pong does not restart it.
func (w *corkedConn) SetReadDeadline(t time.Time) error {
	w.owner.mu.Lock()
	defer w.owner.mu.Unlock()
	if w.owner.stopped {
		return nil
	}
	return w.Conn.SetReadDeadline(t)
}

// Close implements net.Conn. It never waits: closing a TLS connection would write an alert first, and wait up to 5 s for
// a peer that does not read. WebSocket has its own close frame.
func (w *corkedConn) Close() error {
	if encrypted, ok := w.Conn.(*tls.Conn); ok {
		return encrypted.NetConn().Close()
	}
	return w.Conn.Close()
}

// CloseWrite closes the sending half, if the socket supports it.
func (w *corkedConn) CloseWrite() error {
	if half, ok := w.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}
