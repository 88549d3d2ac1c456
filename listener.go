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

// Listen opens a listener as Run does. Use it with WithListener if a program must know, before it makes a gateway, that
// the address is free or which port was chosen.
func Listen(ctx context.Context, addr string) (net.Listener, error) {
	config := net.ListenConfig{
		// WebSocket pings already probe sockets. TCP keep-alive would probe thousands of sockets that were accepted
		// together in one burst.
		KeepAlive: -1,
	}
	// A Multipath TCP listener, Go's default, cannot stop accepting connections (see quiet). Its benefit for phones
	// ends at the load balancer.
	config.SetMultipathTCP(false)
	l, err := config.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", addr, err)
	}
	return l, nil
}

// lasting is a listener that survives connections it cannot accept. accept(2) says to retry after errors of the
// connection, or when the system lacks memory for it. net/http stops serving after such an error unless it is
// temporary; after temporary errors it waits briefly and retries.
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

// passing is a temporary error. It implements net.Error.
type passing struct{ error }

func (e passing) Unwrap() error { return e.error }
func (passing) Timeout() bool   { return false }
func (passing) Temporary() bool { return true }

// idleConns bounds the connections of a server that wait for their client: for the first request, for the next request,
// or for the rest of a body. Often their callers are unknown, so none is rejected; beyond the limit one is closed. It
// is the longest waiting connection of the largest of the three groups. So a burst of devices that connect does not
// evict callers between two requests. Clients see the end of an idle connection, and reconnect. It is safe for
// concurrent use.
type idleConns struct {
	most int

	mu     sync.Mutex
	waits  [awaited]*list.List // of net.Conn, longest waiting first
	places map[net.Conn]idlePlace
	closed int64 // since start
}

// awaits is what a connection waits for.
type awaits int

const (
	firstRequest awaits = iota
	nextRequest
	restOfBody
	awaited        // number of them
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

// note records each change of a connection's state.
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

// handler counts the connections of requests whose body has not arrived.
func (i *idleConns) handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if conn, ok := r.Context().Value(connKey{}).(net.Conn); ok && r.ContentLength != 0 {
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
func (i *idleConns) update(conn net.Conn, awaits awaits) {
	if longest := i.place(conn, awaits); longest != nil {
		_ = longest.Close() // its server notices, and reports it to note
	}
}

// place does the work of update. It returns the connection to close, or nil.
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

// pool returns how many connections wait and how many were closed, as one shared pool.
func (i *idleConns) pool() map[string]share.Stats {
	i.mu.Lock()
	defer i.mu.Unlock()
	return map[string]share.Stats{"idle_connections": {
		Held: int64(len(i.places)), Refused: map[share.Bound]int64{share.Pod: i.closed},
	}}
}
