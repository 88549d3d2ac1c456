package metrics

import (
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/farhand/farhand/api"
	"github.com/farhand/farhand/registry"
)

// httpBuckets are seconds.
var httpBuckets = []float64{.001, .005, .025, .1, .5, 2.5, 10, 60}

// statuses are those that the API answers with.
var statuses = []int{
	200, 202, 204, 304, 400, 401, 403, 404, 405, 406, 409, 410, 413, 415, 422, 429, 499, 500, 501, 502, 503, 504,
}

// HTTP counts requests.
type HTTP struct {
	routes map[api.Route]*routeCounters // never changes
	other  *routeCounters
	codes  tally
}

type routeCounters struct {
	statuses tally
	duration *timer
}

var _ api.Meter = (*HTTP)(nil)

// httpRoutes are the routes as they are written in labels: those of the API, and one for everything else.
func httpRoutes() []string {
	names := []string{other}
	for _, r := range api.Routes() {
		names = append(names, r.Method+" "+r.Path)
	}
	return names
}

func httpStatuses() []string {
	names := []string{other}
	for _, status := range statuses {
		names = append(names, strconv.Itoa(status))
	}
	return names
}

func newHTTP(s *Set) *HTTP {
	route := Label{"route", httpRoutes()}
	h := &HTTP{routes: make(map[api.Route]*routeCounters), codes: newTally(append(texts(registry.Codes()), other))}
	s.counter("farhand_http_requests_total", "HTTP requests that ended, by route and status.",
		source{[]Label{route, {"status", httpStatuses()}}, func(emit emitFunc) {
			h.other.statuses.emit(emit, other)
			for r, c := range h.routes {
				c.statuses.emit(emit, r.Method+" "+r.Path)
			}
		}})
	s.counter("farhand_http_errors_total", "HTTP requests that failed, by the code of the error.",
		source{[]Label{{"code", append(texts(registry.Codes()), other)}}, func(emit emitFunc) { h.codes.emit(emit) }})
	durations := s.histograms("farhand_http_request_duration_seconds",
		"How long HTTP requests took until they were answered. Streams take as long as their clients listen.",
		[]Label{route}, httpBuckets)
	counters := func(name string) *routeCounters {
		return &routeCounters{newTally(httpStatuses()), newTimer(durations, name)}
	}
	h.other = counters(other)
	for _, r := range api.Routes() {
		h.routes[r] = counters(r.Method + " " + r.Path)
	}
	return h
}

// Requested implements api.Meter.
func (h *HTTP) Requested(method, route string, status int, code registry.Code, took time.Duration) {
	if method == http.MethodHead {
		method = http.MethodGet
	}
	c := h.routes[api.Route{Method: method, Path: route}]
	if c == nil {
		c = h.other
	}
	c.statuses.add(statusText(status), 1)
	c.duration.observe(took)
	if code != "" {
		h.codes.add(string(code), 1)
	}
}

// statusText returns a status as it is written in labels.
func statusText(status int) string {
	switch {
	case status == http.StatusOK: // of most requests
		return "200"
	case slices.Contains(statuses, status):
		return strconv.Itoa(status)
	default:
		return other
	}
}
