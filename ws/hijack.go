package ws

import (
	"bufio"
	"errors"
	"net"
	"net/http"
	"runtime/debug"
)

// detach serves an upgrade in a goroutine of its own and returns as soon as the connection has been taken from the HTTP
// server, or the upgrade was refused. A socket lives for hours; held by its request, it would keep the request, its
// headers, the router's context and the server's buffers alive all that time, which is half of what an idle device costs.
//
// The new goroutine also reads from the device for all that time, and its stack keeps the size of its deepest moment. So
// what goes deep is left to goroutines that end: taking the connection is done here, the rest by conn.runOnOwnStack.
func (s *Server) serveUpgrade(w http.ResponseWriter, r *http.Request, begin opening) {
	c := s.newConn(begin)
	d := &hijackWriter{ResponseWriter: w, begin: begin,
		asked: make(chan struct{}), taken: make(chan hijacked, 1), ended: make(chan struct{})}
	c.hijack = d
	go func() {
		defer c.endUpgrade()
		if err := s.melody.HandleRequest(d, r); err != nil {
			s.noteFailure(err)
		}
	}()
	select {
	case <-d.asked:
		var h hijacked
		if h.conn, h.rw, h.err = http.NewResponseController(w).Hijack(); h.err == nil {
			c.wire.Conn = h.conn
			h.conn = &c.wire
			d.ResponseWriter = nil
		}
		ended := d.ended
		d.taken <- h // d is the other goroutine's from here on
		if h.err != nil {
			<-ended // the refusal is still being written
		}
	case <-d.ended:
	}
}

// noteFailure is told why there is no connection: the upgrader has answered through refuseHandshake, or the peer is gone.
func (s *Server) noteFailure(err error) { s.log.Debug("handshake failed", "error", err) }

func (c *conn) endUpgrade() {
	if p := recover(); p != nil {
		c.server.log.Error("panic in an upgrade", "panic", p, "stack", string(debug.Stack()))
	}
	if c.hijack != nil && c.hijack.ended != nil {
		close(c.hijack.ended)
	}
	c.releaseOpenSlot()
	c.server.intake.remove(c)
	c.server.allowances.release(c.allowance)
	c.server.taskDone()
}

// hijackWriter lets the goroutine of the request take the connection.
type hijackWriter struct {
	http.ResponseWriter
	begin opening
	asked chan struct{} // closed when the connection is wanted
	taken chan hijacked // capacity 1
	ended chan struct{} // closed when the upgrade has ended without a connection
}

type hijacked struct {
	conn net.Conn
	rw   *bufio.ReadWriter
	err  error
}

// errTwice is for an upgrader that takes a connection twice, which none does.
var errTwice = errors.New("ws: the connection has been taken already")

// Hijack implements http.Hijacker.
func (d *hijackWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	if d.ResponseWriter == nil {
		return nil, nil, errTwice
	}
	close(d.asked)
	h := <-d.taken
	if h.err == nil {
		d.asked, d.taken, d.ended = nil, nil, nil
	}
	return h.conn, h.rw, h.err
}
