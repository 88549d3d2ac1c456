package farhand

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"syscall"

	"github.com/farhand/farhand/internal/share"
)

// Listen opens a listener as Run does: for WithListener, where a program must know that the address is free, or which
// port was chosen, before it makes a gateway.
func Listen(ctx context.Context, addr string) (net.Listener, error) {
	config := net.ListenConfig{
		// Sockets are probed by WebSocket pings. TCP keep-alive on top of them would probe thousands of sockets that
		// were accepted together in one burst.
		KeepAlive: -1,
	}
	// A listener of Multipath TCP, Go's default, cannot be told to take no more connections (quiet). What a phone would
	// gain by it ends at the load balancer.
	config.SetMultipathTCP(false)
	l, err := config.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", addr, err)
	}
	return l, nil
}

// lasting is a listener that a connection which cannot be accepted does not end. Such errors of the connection, or of a
// system that has no memory for it, are those that accept(2) says to try again after; net/http takes them as the end of
// the listener unless they are temporary, and waits a little after those that are.
type lasting struct{ net.Listener }

// Accept implements net.Listener.
func (l lasting) Accept() (net.Conn, error) {
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

// passing is an error after which to try again. It implements net.Error.
type passing struct{ error }

func (e passing) Unwrap() error { return e.error }
func (passing) Timeout() bool   { return false }
func (passing) Temporary() bool { return true }

// idleConns bounds the connections of a server that wait for their client: for its first request, for the one after the
// last answer, or for the rest of a body. Often nobody is known by them, so none is refused: when there are too many,
// one is closed. It is the one that has waited longest of those that wait for the same thing as most do. So a herd of
// devices that connect at once takes no connection from a caller between two requests. Clients take that for the end of
// an idle connection, and connect again. It is safe for concurrent use.
type idleConns struct {
	most int

	mu     sync.Mutex
	waits  [awaited]*list.List // of net.Conn, first the one that has waited longest
	places map[net.Conn]idlePlace
	closed int64 // since the start
}

// awaits is what a connection waits for.
type awaits int

const (
	firstRequest awaits = iota
	nextRequest
	restOfBody
	awaited        // how many there are
	nothing awaits = -1
)

type idlePlace struct {
	awaits awaits
	at     *list.Element
}

func newIdleConns(most int) *idleConns {
	i := &idleConns{most: most, places: make(map[net.Conn]idlePlace)}
	for a := range i.waits {
		i.waits[a] = list.New()
	}
	return i
}

// note is for each change of a connection's state.
func (i *idleConns) note(conn net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		i.update(conn, firstRequest)
	case http.StateIdle:
		i.update(conn, nextRequest)
	default:
		i.update(conn, nothing)
	}
}

// connKey is the key of a request's connection in its context.
type connKey struct{}

// withConn is the ConnContext of the server.
func withConn(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, conn)
}

// handler has the connections of requests counted whose body has not come.
func (i *idleConns) handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if conn, ok := r.Context().Value(connKey{}).(net.Conn); ok && r.ContentLength != 0 {
			r.Body = &awaitedBody{r.Body, func(awaits awaits) { i.update(conn, awaits) }}
			i.update(conn, restOfBody)
		}
		next.ServeHTTP(w, r)
	})
}

// awaitedBody is a body that tells whenever some of it has come what is awaited now. If its handler does not read all
// of it, the server does, or closes the connection, and says so.
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

// update notes what a connection waits for from now on.
func (i *idleConns) update(conn net.Conn, awaits awaits) {
	if longest := i.place(conn, awaits); longest != nil {
		_ = longest.Close() // its server notices, and says so here
	}
}

// place is update, and returns the connection that is to be closed, if any is.
func (i *idleConns) place(conn net.Conn, awaits awaits) net.Conn {
	i.mu.Lock()
	defer i.mu.Unlock()
	if place, ok := i.places[conn]; ok {
		i.waits[place.awaits].Remove(place.at)
		delete(i.places, conn)
	}
	if awaits == nothing {
		return nil
	}
	i.places[conn] = idlePlace{awaits, i.waits[awaits].PushBack(conn)}
	if len(i.places) <= i.most {
		return nil
	}
	crowd := i.waits[awaits]
	for _, w := range i.waits {
		if w.Len() > crowd.Len() {
			crowd = w
		}
	}
	longest := crowd.Remove(crowd.Front()).(net.Conn)
	delete(i.places, longest)
	i.closed++
	return longest
}

// pool returns how many there are, and how many were closed, as a pool that all share.
func (i *idleConns) pool() map[string]share.Stats {
	i.mu.Lock()
	defer i.mu.Unlock()
	return map[string]share.Stats{"idle_connections": {
		Held: int64(len(i.places)), Refused: map[share.Bound]int64{share.Pod: i.closed},
	}}
}
