package ws

import (
	"bufio"
	"net"
	"net/http"
	"runtime/debug"
	"sync"
)

// detach serves an upgrade in a goroutine of its own and returns as soon as the connection has been taken from the HTTP
// server, or the upgrade was refused. A socket lives for hours; held by its request, it would keep the request, its
// headers, the router's context and the server's buffers alive all that time, which is half of what an idle device costs.
func (s *Server) detach(w http.ResponseWriter, serve func(http.ResponseWriter)) {
	d := &detachingWriter{ResponseWriter: w, taken: make(chan struct{})}
	go func() {
		defer s.leave()
		defer d.release()
		defer func() {
			if p := recover(); p != nil {
				s.log.Error("panic in an upgrade", "panic", p, "stack", string(debug.Stack()))
			}
		}()
		serve(d)
	}()
	<-d.taken
}

// detachingWriter tells when its connection was hijacked. After that nobody uses it any more.
type detachingWriter struct {
	http.ResponseWriter
	once  sync.Once
	taken chan struct{}
}

// Hijack implements http.Hijacker.
func (d *detachingWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(d.ResponseWriter).Hijack()
	if err == nil {
		d.release()
	}
	return conn, rw, err
}

func (d *detachingWriter) release() { d.once.Do(func() { close(d.taken) }) }
