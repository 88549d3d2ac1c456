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

// Meter counts requests. Its method returns at once and is safe for concurrent use.
type Meter interface {
	// Requested counts a request that has ended. route is one of Routes, or empty; method is whatever the client
	// wrote. code is empty unless the request failed here. A socket's request ends when the socket is open.
	Requested(method, route string, status int, code registry.Code, took time.Duration)
}

// Route is one address that is served.
type Route struct{ Method, Path string }

// Routes returns everything that may be served, whatever is configured. GET routes answer HEAD too.
func Routes() []Route {
	h := &handler{Config: Config{Device: http.NotFoundHandler(), Metrics: http.NotFoundHandler()}}
	var all []Route
	for _, r := range h.routes() {
		all = append(all, Route{r.method, r.path})
	}
	return all
}

// Stats says how full the API of a pod is. Refused ones are counted since the start.
type Stats struct {
	Streams, StreamsRefused int64 // event streams and streamed turns that are open
	Waiting, WaitingRefused int64 // requests that wait for the end of a call
	AnswersRefused          int64 // there were no bytes left for an answer
	BodiesRefused           int64 // there were none for the body of a request
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

// Pools returns how full the pools of the API are, by name.
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

// metrics serves what an operator's monitoring reads. It is for admins: it shows how much everybody uses the gateway.
func (h *handler) metrics(c *gin.Context, _ params) error {
	h.Metrics.ServeHTTP(c.Writer, c.Request)
	return nil
}

// slotRetry is when a client that found too many requests open should try again.
const slotRetry = 5 * time.Second

// Limits of requests that wait for the end of a call (wait_ms): of all callers, and of one. Each costs the pod about
// 75 KiB, most of it for its open connection.
const (
	maxWaiting       = 2000
	maxCallerWaiting = 500
)

// slots bounds the requests of a kind that this pod holds open, those of a tenant, and those of an identity. It is safe
// for concurrent use.
type slots struct {
	what string // the kind, in the plural
	pool *share.Pool
}

func newSlots(what string, all, each int) *slots {
	return &slots{what, share.New(share.Bounds{Pod: int64(all), Identity: int64(each)})}
}

// enter counts one more request in, and returns how to count it out.
func (s *slots) enter(by share.Owner) (release func(), err error) {
	g, err := s.pool.Try(by, 1)
	if err != nil {
		return nil, s.full(err)
	}
	return g.Release, nil
}

// wait is enter, but the request waits for its turn until ctx ends.
func (s *slots) wait(ctx context.Context, by share.Owner) (release func(), err error) {
	g, err := s.pool.Acquire(ctx, by, 1)
	if err != nil {
		return nil, s.full(err)
	}
	return g.Release, nil
}

// full says which bound was met. A request that has waited met that of its share or of the pod.
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

// reserveStream counts one more event stream in, and returns how to count it out. It fails when there are too many, or
// when the pod is stopping.
func (h *handler) reserveStream(by share.Owner) (release func(), err error) {
	if h.isDraining() {
		return nil, draining()
	}
	return h.streams.enter(by)
}

// owner returns who sent a request, as what it takes of this pod is counted. Requests without an identity are of no
// tenant, and each network that sends some is an identity of its own.
func (h *handler) owner(c *gin.Context) share.Owner {
	if _, known := c.Get(keyCaller); known {
		return caller(c).Owner()
	}
	return share.Owner{Identity: h.Sources.Of(c.Request).String()}
}

// countServed counts a request with a credential in until it has ended, once its body has come: until then its
// connection waits for its client, and makes room for others.
func (h *handler) countServed(c *gin.Context) error {
	_, known := c.Get(keyCaller)
	if _, counted := c.Get(keyServed); !known || counted { // one without a body is counted before its handler reads it
		return nil
	}
	release, err := h.served.enter(h.owner(c))
	if err == nil {
		c.Set(keyServed, release)
	}
	return err
}

// maxReading is how many requests read much of the store at a time: thousands of lines of the audit log, or of rows of
// usage. Each takes memory and time of the processor that are bounded, but not small.
const maxReading = 4
