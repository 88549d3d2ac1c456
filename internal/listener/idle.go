package listener

import (
	"container/list"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/farhand/farhand/internal/share"
)

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
