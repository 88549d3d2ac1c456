package ws

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/http"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"
	"github.com/olahol/melody"
)

// serveUpgrade serves an upgrade in a new goroutine, which becomes the connection's reader. It returns when the socket
// is hijacked from the HTTP server, or when the upgrade was rejected. A socket lives for hours. If the request's
// goroutine served it, the request, its headers, the router's context and the server's buffers would stay in memory as
// long. They are half of what an idle device costs.
func (s *Server) serveUpgrade(w http.ResponseWriter, r *http.Request, begin opening) {
	c := s.newConn(begin)
	served := make(chan struct{})
	c.hijack = &hijackWriter{ResponseWriter: w, conn: c, begin: begin, serve: sync.OnceFunc(func() { close(served) })}
	go func() {
		defer c.endUpgrade()
		if err := s.libraryOf(begin).HandleRequest(c.hijack, r); err != nil {
			// The upgrader has answered through refuseHandshake, or the peer is gone.
			s.log.Debug("handshake failed", "error", err)
		}
	}()
	<-served
}

// endUpgrade releases the resources of a connection or a rejected upgrade. The reader calls it last.
func (c *conn) endUpgrade() {
	if p := recover(); p != nil {
		c.server.log.Error("panic in an upgrade", "panic", p, "stack", string(debug.Stack()))
	}
	if c.hijack != nil { // it did not become a connection
		c.hijack.serve()
		if c.hijack.begin.node != nil {
			_ = c.hijack.begin.node.socket.Close()
		}
	}
	if c.node != nil {
		c.node.catalogs.release()
	}
	c.endOpening()
	c.toolNames.Release()
	c.attributes.release()
	c.socket.Release()
	c.server.intake.remove(c)
	c.server.budgets.release(c.budget)
	c.server.taskDone()
}

type hijackWriter struct {
	http.ResponseWriter
	conn  *conn
	begin opening
	serve func() // lets the request's goroutine return, after which ResponseWriter must not be used
}

// Hijack implements http.Hijacker. The HTTP server needs more stack for it than a reader should keep.
func (d *hijackWriter) Hijack() (socket net.Conn, rw *bufio.ReadWriter, err error) {
	if d.begin.node != nil {
		return d.takeOver(d.begin.node.socket)
	}
	d.conn.server.stacks.run(func() {
		defer func() { // a writer that cannot be hijacked may panic
			if p := recover(); p != nil {
				err = fmt.Errorf("ws: the request cannot be hijacked: %v", p)
			}
		}()
		socket, rw, err = http.NewResponseController(d.ResponseWriter).Hijack()
	})
	if err != nil {
		return nil, nil, err
	}
	d.conn.wire.Conn, d.ResponseWriter = socket, nil
	d.serve()
	return &d.conn.wire, rw, nil
}

// takeOver is Hijack for a socket that was upgraded before, by a node's handshake. The upgrader answers the request
// again, but its response is not written. What the node sent after its first frame is read first.
func (d *hijackWriter) takeOver(socket *handshakeSocket) (net.Conn, *bufio.ReadWriter, error) {
	wire := &d.conn.wire
	wire.Conn, wire.silent, wire.unread = socket.Conn, true, socket.unread
	d.ResponseWriter = nil
	d.serve()
	none := bufio.NewReaderSize(strings.NewReader(""), 1) // the upgrader requires that nothing is buffered
	return wire, bufio.NewReadWriter(none, bufio.NewWriterSize(wire, 1)), nil
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
// needs more, and halves it only if a garbage collection finds less than a quarter in use. A reader's wait uses more
// than a quarter of the 8 KB that decoding a frame needs. With the pool an idle session takes 11.0 KB instead of 15.4.
// A frame costs half a microsecond more.
type stackPool struct {
	mu     sync.Mutex
	idle   []*pooledStack // last used, first reused
	closed bool
	ended  sync.WaitGroup
}

// maxIdleStacks is how many goroutines wait for the next function. Fewer run at a time, unless many devices connect at
// once.
const maxIdleStacks = 64

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
