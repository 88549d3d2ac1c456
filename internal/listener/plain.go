package listener

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"time"
)

// Plain is a listener for a TLS server whose clients may speak plain HTTP by mistake. Handler answers one request of
// each such connection, which then closes. http.Server.ServeTLS reads the first byte in the connection's own goroutine,
// within the handshake's time limit, and counts the connection as waiting for its first request meanwhile. So it has
// the same limits as all others.
type Plain struct {
	net.Listener
	Handler  http.Handler
	MaxBytes int // of a request's line and header
}

// Accept implements net.Listener.
func (p *Plain) Accept() (net.Conn, error) {
	conn, err := p.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &firstRead{Conn: conn, plain: p}, nil
}

// firstRead is a connection that looks at its first byte. The TLS handshake of its server reads it, alone.
type firstRead struct {
	net.Conn
	plain *Plain // nil after the first byte
}

// errPlain fails the handshake of a connection without TLS, after it was answered.
var errPlain = errors.New("the client speaks plain HTTP")

// Read implements net.Conn. A TLS record begins with a byte below 32, a request with a capital letter.
func (c *firstRead) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	plain := c.plain
	if plain == nil || n == 0 {
		return n, err
	}
	c.plain = nil
	if b[0] < 'A' || b[0] > 'Z' {
		return n, err
	}
	plain.answer(c.Conn, b[:n])
	return 0, errPlain
}

// A client may still be sending when its connection closes. Unread bytes would then reset the connection, and could
// destroy the answer before the client reads it. So up to lingerBytes are read, for at most linger.
const (
	linger      = 500 * time.Millisecond
	lingerBytes = 256 << 10
)

// answer reads the request that begins with begun and answers it.
func (p *Plain) answer(conn net.Conn, begun []byte) {
	whole := io.MultiReader(bytes.NewReader(begun), conn)
	request, err := http.ReadRequest(bufio.NewReader(io.LimitReader(whole, int64(p.MaxBytes))))
	if err != nil {
		return // closed like any connection whose handshake fails
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	request = request.WithContext(ctx)
	request.RemoteAddr, request.Body = conn.RemoteAddr().String(), http.NoBody
	w := plainWriter{header: make(http.Header), status: http.StatusOK}
	p.Handler.ServeHTTP(&w, request)
	w.header.Set("Date", time.Now().UTC().Format(http.TimeFormat))
	response := http.Response{
		StatusCode: w.status, ProtoMajor: 1, ProtoMinor: 1, Request: request, Header: w.header,
		ContentLength: int64(w.body.Len()), Body: io.NopCloser(&w.body), Close: true,
	}
	if response.Write(conn) != nil {
		return
	}
	if half, ok := conn.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
		_ = conn.SetReadDeadline(time.Now().Add(linger))
		_, _ = io.CopyN(io.Discard, conn, lingerBytes)
	}
}

// plainWriter keeps an answer, which is short.
type plainWriter struct {
	header http.Header
	status int
	wrote  bool
	body   bytes.Buffer
}

func (w *plainWriter) Header() http.Header { return w.header }

func (w *plainWriter) WriteHeader(status int) {
	if !w.wrote {
		w.status, w.wrote = status, true
	}
}

func (w *plainWriter) Write(b []byte) (int, error) {
	w.wrote = true
	return w.body.Write(b)
}
