package api

import (
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
