package api

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
)

// Meter counts requests. Its method must not block, and must be safe for concurrent use.
type Meter interface {
	// Requested counts a request that has ended. route is one of Routes, or empty. method is the client's own text.
	// code is empty unless the gateway reported a failure. A WebSocket's request ends when the socket is open.
	Requested(method, route string, status int, code registry.Code, took time.Duration)
}

// Route is one address of the API.
type Route struct{ Method, Path string }

// Routes returns all routes that any configuration can serve. GET routes also answer HEAD.
func Routes() []Route {
	h := &handler{Config: Config{Device: http.NotFoundHandler(), Metrics: http.NotFoundHandler()}}
	var all []Route
	for _, r := range h.routes() {
		all = append(all, Route{r.method, r.path})
	}
	return all
}

// Stats says how full the API of a pod is. Rejected requests are counted since the start.
type Stats struct {
	Streams, StreamsRefused int64 // open event streams and streamed turns
	Waiting, WaitingRefused int64 // requests that wait for the end of a call
	AnswersRefused          int64 // answers without enough bytes left
	BodiesRefused           int64 // request bodies without enough bytes left
}

// Stats returns how full the API is now.
func (h *Handler) Stats() Stats {
	var s Stats
	streams, waiting := h.h.streams.pool.Stats(), h.h.waiting.pool.Stats()
	s.Streams, s.StreamsRefused = streams.Held, streams.AllRefused()
	s.Waiting, s.WaitingRefused = waiting.Held, waiting.AllRefused()
	s.AnswersRefused, s.BodiesRefused = h.h.responses.refused.Load(), h.h.bodies.refused.Load()
	return s
}

// Pools returns how full each pool of the API is, by name.
func (h *Handler) Pools() map[string]share.Stats {
	p := h.h
	return map[string]share.Stats{
		"requests": p.served.pool.Stats(), "streams": p.streams.pool.Stats(),
		"waiting_requests": p.waiting.pool.Stats(), "exports": p.exports.pool.Stats(),
		"catching_up": p.catchingUp.pool.Stats(), "reading": p.reading.pool.Stats(),
		"answer_bytes": p.responses.pool.Stats(), "body_bytes": p.bodies.pool.Stats(),
		"uploads": p.uploads.files.pool.Stats(), "downloads": p.downloads.files.pool.Stats(),
	}
}

// metrics serves an operator's monitoring. It is for admins, because it shows the use of the gateway by all tenants.
func (h *handler) metrics(c *gin.Context, _ params) error {
	h.Metrics.ServeHTTP(c.Writer, c.Request)
	return nil
}

// slotRetry is when a client should retry after it met a bound of slots.
const slotRetry = 5 * time.Second

// Limits of requests that wait for the end of a call (wait_ms): in total, and for one identity. Each costs the pod
// about 75 KiB, mostly for its open connection.
const (
	maxWaiting       = 2000
	maxCallerWaiting = 500
)

// slots bounds the open requests of a kind on this pod: in total, per tenant, and per identity. It is safe for
// concurrent use.
type slots struct {
	what string // the kind, in the plural
	pool *share.Pool
}

func newSlots(what string, all, each int) *slots {
	return &slots{what, share.New(share.Bounds{Pod: int64(all), Identity: int64(each)})}
}

// enter counts one more request in, and returns a function that counts it out. It fails if a bound is met.
func (s *slots) enter(by share.Owner) (release func(), err error) {
	g, err := s.pool.Try(by, 1)
	if err != nil {
		return nil, s.full(err)
	}
	return g.Release, nil
}

// wait is enter, but waits for a free slot until ctx ends.
func (s *slots) wait(ctx context.Context, by share.Owner) (release func(), err error) {
	g, err := s.pool.Acquire(ctx, by, 1)
	if err != nil {
		return nil, s.full(err)
	}
	return g.Release, nil
}

// full returns the error for the bound that was met. For a request that waited, it is the bound of its share or of the
// pod.
func (s *slots) full(err error) error {
	message := "This pod holds as many " + s.what + " as it may. Retry after a moment."
	if full, ok := errors.AsType[*share.FullError](err); ok && full.Bound == share.Identity {
		message = "This identity has as many " + s.what + " as it may on this pod. Close some, or retry after a moment."
	} else if ok && full.Bound == share.Tenant {
		message = "This tenant has its share of this pod's " + s.what + ". Close some, or retry after a moment."
	}
	return tooMany(message)
}

func tooMany(message string) error {
	return &registry.Error{Code: registry.CodeBusy, Message: message, RetryAfter: slotRetry}
}

// reserveStream counts one more event stream in, and returns a function that counts it out. It fails if there are too
// many, or if the pod is draining.
func (h *handler) reserveStream(by share.Owner) (release func(), err error) {
	if h.isDraining() {
		return nil, draining()
	}
	return h.streams.enter(by)
}

// owner returns the owner for the shares that a request takes of this pod. Requests without an identity have no tenant,
// and each network that sends them counts as one identity.
func (h *handler) owner(c *gin.Context) share.Owner {
	if _, known := c.Get(keyCaller); known {
		return caller(c).Owner()
	}
	return share.Owner{Identity: h.Sources.Network(c.Request).String()}
}

// countServed counts a request with a credential from when its body has arrived until it ends. Until then, its
// connection counts as idle and can be evicted for others.
func (h *handler) countServed(c *gin.Context) error {
	_, known := c.Get(keyCaller)
	if _, counted := c.Get(keyServed); !known || counted { // without a body, it is counted before its handler reads it
		return nil
	}
	release, err := h.served.enter(h.owner(c))
	if err == nil {
		c.Set(keyServed, release)
	}
	return err
}

// maxReading is the maximum number of requests that read a large part of the store at a time: thousands of lines of the
// audit log, or rows of usage. Each costs bounded but considerable memory and CPU time.
const maxReading = 4
