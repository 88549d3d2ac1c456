// Package listener has what a pod does with its TCP listener and connections beyond net/http: it survives failed
// accepts, stops taking connections while the pod drains, and bounds the connections that are idle.
package listener

import (
	"bufio"
	"bytes"
	"container/list"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"

	"github.com/farhand/farhand/internal/share"
)

// Listen opens a TCP listener that Quiet can quiet.
func Listen(ctx context.Context, addr string) (net.Listener, error) {
	config := net.ListenConfig{
		// WebSocket pings already probe sockets. TCP keep-alive would probe thousands of sockets that were accepted
		// together in one burst.
		KeepAlive: -1,
	}
	// A Multipath TCP listener, Go's default, cannot stop accepting connections (see Quiet). Its benefit for phones
	// ends at the load balancer.
	config.SetMultipathTCP(false)
	l, err := config.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", addr, err)
	}
	return l, nil
}

// Lasting is a listener that survives connections it cannot accept. accept(2) says to retry after errors of the
// connection, or when the system lacks memory for it. net/http stops serving after such an error unless it is
// temporary; after temporary errors it waits briefly and retries.
type Lasting struct{ net.Listener }

// Accept implements net.Listener.
func (l Lasting) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if code, ok := errors.AsType[syscall.Errno](err); ok {
		switch code {
		case syscall.ENOBUFS, syscall.ENOMEM, syscall.EPERM, syscall.EPROTO, syscall.ENOPROTOOPT, syscall.EOPNOTSUPP,
			syscall.ENETDOWN, syscall.ENETUNREACH, syscall.EHOSTDOWN, syscall.EHOSTUNREACH:
			return nil, passing{err}
		}
	}
	return conn, err
}

// passing is a temporary error. It implements net.Error.
type passing struct{ error }

func (e passing) Unwrap() error { return e.error }
func (passing) Timeout() bool   { return false }
func (passing) Temporary() bool { return true }

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

// Idle bounds the connections of a server that wait for their client: for the first request, for the next request,
// or for the rest of a body. Beyond the limit, it closes the longest waiting connection of the largest of the three
// groups: a burst of devices that connect does not evict callers between two requests. HTTP/2 has many requests on one
// connection, so each one that waits for its body counts like a connection. It is safe for concurrent use.
type Idle struct {
	most int

	mu     sync.Mutex
	waits  [awaited]*list.List // of waiter, longest waiting first
	places map[waiter]idlePlace
	held   int   // waiters in waits
	closed int64 // since start
}

type awaits int

const (
	firstRequest awaits = iota
	nextRequest
	restOfBody
	awaited        // number of them
	nothing awaits = -1
)

// waiter is a net.Conn, or the *stream of an HTTP/2 request.
type waiter = io.Closer

// stream is an HTTP/2 request that waits for its body.
type stream struct{ control *http.ResponseController }

// Close ends the wait for the body.
func (s *stream) Close() error { return s.control.SetReadDeadline(time.Now()) }

type idlePlace struct {
	awaits awaits
	at     *list.Element // nil once closed: what had come before is still read, and does not make it wait again
}

// NewIdle returns a bound of most connections.
func NewIdle(most int) *Idle {
	i := &Idle{most: most, places: make(map[waiter]idlePlace)}
	for a := range i.waits {
		i.waits[a] = list.New()
	}
	return i
}

// Note records each change of a connection's state.
func (i *Idle) Note(conn net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		i.update(conn, firstRequest)
	case http.StateIdle:
		i.update(conn, nextRequest)
	default:
		i.update(conn, nothing)
	}
}

type connKey struct{}

// WithConn is the ConnContext of the server.
func WithConn(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, conn)
}

// Handler counts the connections of requests whose body has not arrived.
func (i *Idle) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, ok := r.Context().Value(connKey{}).(waiter)
		if ok && r.ContentLength != 0 {
			if r.ProtoMajor > 1 {
				conn = &stream{http.NewResponseController(w)}
				defer i.update(conn, nothing) // the server reports only the states of the connection
			}
			r.Body = &awaitedBody{r.Body, func(awaits awaits) { i.update(conn, awaits) }}
			i.update(conn, restOfBody)
		}
		next.ServeHTTP(w, r)
	})
}

// awaitedBody is a request body that reports what the connection waits for after each read. If the handler does not
// read it all, the server does, or closes the connection and reports that.
type awaitedBody struct {
	io.ReadCloser
	came func(awaits)
}

func (b *awaitedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.came(nothing)
	} else {
		b.came(restOfBody)
	}
	return n, err
}

// update records what a connection waits for from now on.
func (i *Idle) update(conn waiter, awaits awaits) {
	longest := i.place(conn, awaits)
	if encrypted, ok := longest.(*tls.Conn); ok {
		longest = encrypted.NetConn() // the other Close would write, and wait for a peer that does not read
	}
	if longest != nil {
		_ = longest.Close() // its server notices, and reports it to Note
	}
}

// place does the work of update. It returns the connection to close, or nil.
func (i *Idle) place(conn waiter, awaits awaits) waiter {
	i.mu.Lock()
	defer i.mu.Unlock()
	place, known := i.places[conn]
	if known && place.at != nil {
		i.waits[place.awaits].Remove(place.at)
		i.held--
	}
	if awaits == nothing {
		delete(i.places, conn)
		return nil
	}
	if known && place.at == nil {
		return nil
	}
	i.places[conn] = idlePlace{awaits, i.waits[awaits].PushBack(conn)}
	i.held++
	if i.held <= i.most {
		return nil
	}
	crowd := i.waits[awaits]
	for _, w := range i.waits {
		if w.Len() > crowd.Len() {
			crowd = w
		}
	}
	longest := crowd.Remove(crowd.Front()).(waiter)
	i.places[longest] = idlePlace{awaits: nothing}
	i.held--
	i.closed++
	return longest
}

// Pool returns how many connections wait and how many were closed, as one shared pool.
func (i *Idle) Pool() map[string]share.Stats {
	i.mu.Lock()
	defer i.mu.Unlock()
	return map[string]share.Stats{"idle_connections": {
		Held: int64(i.held), Refused: map[share.Bound]int64{share.Pod: i.closed},
	}}
}
