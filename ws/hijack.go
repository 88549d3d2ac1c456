package ws

import (
	"bufio"
	"errors"
	"net"
	"net/http"
	"runtime/debug"
)

// serveUpgrade serves an upgrade in a goroutine of its own. It returns as soon as that goroutine has hijacked the
// socket from the HTTP server, or the upgrade was refused. A socket lives for hours. Served by its request's goroutine,
// it would keep the request, its headers, the router's context and the server's buffers alive all that time, which is
// half of what an idle device costs.
//
// The new goroutine also becomes the connection's reader, and its stack keeps the size of its deepest moment. So the
// deep calls run elsewhere: the socket is hijacked here, and opening the session and handling frames go to stackPool.
func (s *Server) serveUpgrade(w http.ResponseWriter, r *http.Request, begin opening) {
	c := s.newConn(begin)
	d := &hijackWriter{ResponseWriter: w, begin: begin,
		wanted: make(chan struct{}), hijacked: make(chan hijacked, 1), ended: make(chan struct{})}
	c.hijack = d
	go func() {
		defer c.endUpgrade()
		if err := s.melody.HandleRequest(d, r); err != nil {
			// The upgrader has answered through refuseHandshake, or the peer is gone.
			s.log.Debug("handshake failed", "error", err)
		}
	}()
	select {
	case <-d.wanted:
		var h hijacked
		if h.conn, h.rw, h.err = http.NewResponseController(w).Hijack(); h.err == nil {
			c.wire.Conn = h.conn
			h.conn = &c.wire
			d.ResponseWriter = nil
		}
		ended := d.ended
		d.hijacked <- h // from here on d belongs to the other goroutine
		if h.err != nil {
			<-ended // the refusal is still being written
		}
	case <-d.ended:
	}
}

// endUpgrade gives back what a connection or a refused upgrade has used. It is the last thing the reader does.
func (c *conn) endUpgrade() {
	if p := recover(); p != nil {
		c.server.log.Error("panic in an upgrade", "panic", p, "stack", string(debug.Stack()))
	}
	if c.hijack != nil && c.hijack.ended != nil {
		close(c.hijack.ended)
	}
	c.endOpening()
	c.socket.Release()
	c.server.intake.remove(c)
	c.server.budgets.release(c.budget)
	c.server.taskDone()
}

// hijackWriter is the response writer of an upgrade. Its Hijack leaves the work to the goroutine of the request.
type hijackWriter struct {
	http.ResponseWriter
	begin    opening
	wanted   chan struct{} // closed when the socket is wanted
	hijacked chan hijacked // capacity 1
	ended    chan struct{} // closed when the upgrade has ended without a connection
}

// hijacked is what http.Hijacker returns.
type hijacked struct {
	conn net.Conn
	rw   *bufio.ReadWriter
	err  error
}

// errTwice is for an upgrader that hijacks a socket twice, which none does.
var errTwice = errors.New("ws: the connection has been taken already")

// Hijack implements http.Hijacker.
func (d *hijackWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	if d.ResponseWriter == nil {
		return nil, nil, errTwice
	}
	close(d.wanted)
	h := <-d.hijacked
	if h.err == nil {
		d.wanted, d.hijacked, d.ended = nil, nil, nil
	}
	return h.conn, h.rw, h.err
}
