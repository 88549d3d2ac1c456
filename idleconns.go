package farhand

import (
	"container/list"
	"context"
	"io"
	"net"
	"net/http"
	"sync"

	"github.com/farhand/farhand/internal/share"
)

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
