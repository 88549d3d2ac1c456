package ws

import (
	"bufio"
	"errors"
	"net"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	"github.com/gorilla/websocket"
	"github.com/olahol/melody"
)

// serveUpgrade serves an upgrade in a new goroutine. It returns when that goroutine has hijacked the socket from the
// HTTP server, or when the upgrade was rejected. A socket lives for hours. If the request's goroutine served it, the
// request, its headers, the router's context and the server's buffers would stay in memory as long. They are half of
// what an idle device costs.
//
// The new goroutine also becomes the connection's reader, and its stack keeps the size of its deepest call. So deep
// calls run elsewhere: the socket is hijacked here, and stackPool opens the session and handles frames.
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
		d.hijacked <- h // d now belongs to the other goroutine
		if h.err != nil {
			<-ended // the error response is still being written
		}
	case <-d.ended:
	}
}

// endUpgrade releases the resources of a connection or a rejected upgrade. The reader calls it last.
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

// hijackWriter is the response writer of an upgrade. Its Hijack lets the request's goroutine hijack the socket.
type hijackWriter struct {
	http.ResponseWriter
	begin    opening
	wanted   chan struct{} // closed when Hijack is called
	hijacked chan hijacked // capacity 1
	ended    chan struct{} // closed when the upgrade has ended without a connection
}

// hijacked holds the results of http.Hijacker.
type hijacked struct {
	conn net.Conn
	rw   *bufio.ReadWriter
	err  error
}

// errTwice means that an upgrader hijacks a socket twice. No upgrader does.
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

// Closing a socket with unread input resets it, and the reset could overtake the close frame. So after a device sent
// too much, the server keeps reading for lingerWait.
const (
	lingerWait   = time.Second
	lingerBuffer = 32 << 10
)

// onError receives the error that ended the reading or the write of the first frame. Melody may call it while it holds
// its own lock, so onError never calls melody.
func (s *Server) onError(ms *melody.Session, err error) {
	c := connOf(ms)
	defer c.recoverPanic()
	c.log().Debug("socket error", "error", err)
	if websocket.IsCloseError(err, websocket.CloseNormalClosure, websocket.CloseGoingAway,
		websocket.CloseNoStatusReceived) {
		c.mu.Lock()
		c.left = true
		c.mu.Unlock()
	}
	switch {
	case errors.Is(err, websocket.ErrReadLimit): // the WebSocket library has sent the close frame
		c.linger(CloseTooBig)
	case c.isStopped():
		why := c.ending()
		c.cancelTurn(why)
		_ = c.writeClose(why)
		c.linger(why)
	}
}

// linger lets a peer that may still be sending read the close frame. It runs in the reader, which then closes the
// socket.
func (c *conn) linger(why Close) {
	c.mu.Lock()
	if c.closing == closeNone {
		c.closing = why
	}
	c.mu.Unlock()
	c.out.discard() // a failing write would close the socket immediately
	_ = c.wire.CloseWrite()
	_ = c.wire.Conn.SetReadDeadline(time.Now().Add(lingerWait))
	c.discardInput()
}

// discardInput reads the remaining input, no faster than the device's budget permits, so that a flood does not use a
// core.
func (c *conn) discardInput() {
	buffer := make([]byte, lingerBuffer)
	for end := time.Now().Add(lingerWait); ; {
		n, err := c.wire.Conn.Read(buffer)
		if err != nil {
			return
		}
		pause := c.budget.spend(unitsPerRead + float64(n)/bytesPerUnit)
		if pause >= time.Until(end) {
			return
		}
		time.Sleep(pause)
	}
}

// stackPool runs functions on stacks that all connections share. The runtime doubles a goroutine's stack when a call
// needs more, and halves it only if a garbage collection finds less than a quarter in use. A reader lives as long as
// its device is connected. Its wait uses more than a quarter of 8 KB, so a stack of 8 KB never shrinks. Decoding a
// frame uses more than 4 KB. With the pool an idle session takes 11.0 KB instead of 15.4. A frame costs half a
// microsecond more.
type stackPool struct {
	mu     sync.Mutex
	idle   []*pooledStack // last used, first reused
	closed bool
	ended  sync.WaitGroup
}

// maxIdleStacks is how many goroutines wait for the next function. Fewer run at a time, unless many devices connect at
// once.
const maxIdleStacks = 64

// pooledStack is a goroutine that waits for functions.
type pooledStack struct {
	work chan func()
	done chan struct{}
}

// run calls f on a pooled stack and returns when f has returned.
func (p *stackPool) run(f func()) {
	s := p.get()
	s.work <- f
	<-s.done
	p.put(s)
}

func (p *stackPool) get() *pooledStack {
	p.mu.Lock()
	defer p.mu.Unlock()
	if last := len(p.idle) - 1; last >= 0 {
		s := p.idle[last]
		p.idle = p.idle[:last]
		return s
	}
	s := &pooledStack{work: make(chan func()), done: make(chan struct{})}
	p.ended.Go(func() {
		for f := range s.work {
			f()
			s.done <- struct{}{}
		}
	})
	return s
}

func (p *stackPool) put(s *pooledStack) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || len(p.idle) == maxIdleStacks {
		close(s.work)
		return
	}
	p.idle = append(p.idle, s)
}

// close ends the idle goroutines now, and each other goroutine when its function has returned.
func (p *stackPool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, s := range p.idle {
		close(s.work)
	}
	p.idle = nil
}
