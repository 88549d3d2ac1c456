package metrics

import (
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/farhand/farhand/api"
	"github.com/farhand/farhand/redisstore"
	"github.com/farhand/farhand/redisstore/bus"
	"github.com/farhand/farhand/registry"
)

// httpBuckets are in seconds.
var httpBuckets = []float64{.001, .005, .025, .1, .5, 2.5, 10, 60}

// statuses are the statuses of the API's answers.
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

// httpRoutes are the values of the route label: the routes of the API, and one for everything else.
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

// statusText returns the label value of a status.
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

// redisBuckets are in seconds.
var redisBuckets = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1}

// Redis measures round trips to Redis.
type Redis struct {
	durations map[redisstore.Kind]*timer // never changes
	failures  map[redisstore.Kind]tally  // never changes
}

var _ redisstore.Meter = (*Redis)(nil)

func newRedis(s *Set) *Redis {
	group := Label{"group", texts(redisstore.Kinds())}
	r := &Redis{durations: make(map[redisstore.Kind]*timer), failures: make(map[redisstore.Kind]tally)}
	durations := s.histograms("farhand_redis_round_trip_duration_seconds",
		"How long round trips to Redis took, by the kind of what was sent. "+
			"Reads that wait for news are not among them.",
		[]Label{group}, redisBuckets)
	s.counter("farhand_redis_errors_total",
		"Round trips to Redis that failed, by the kind of what was sent and of the failure.",
		source{[]Label{group, {"failure", texts(redisstore.Failures())}}, func(emit emitFunc) {
			for g, t := range r.failures {
				t.emit(emit, string(g))
			}
		}})
	for _, g := range redisstore.Kinds() {
		r.durations[g], r.failures[g] = newTimer(durations, string(g)), newTally(texts(redisstore.Failures()))
	}
	return r
}

// RoundTrip implements redisstore.Meter.
func (r *Redis) RoundTrip(g redisstore.Kind, took time.Duration, failed redisstore.Failure) {
	if r.durations[g] == nil {
		g = redisstore.KindOther
	}
	r.durations[g].observe(took)
	if failed != redisstore.FailureNone {
		r.failures[g].add(string(failed), 1)
	}
}

// redisPools exports the pools of connections; read is nil without Redis.
func (s *Set) redisPools(read func() map[string]redisstore.PoolStats) {
	each := func(of func(redisstore.PoolStats) float64) source {
		from := source{labels: []Label{{"pool", []string{redisstore.PoolCommands, redisstore.PoolSessions}}}}
		if read != nil {
			from.emit = func(emit emitFunc) {
				for name, p := range read() {
					emit(of(p), name)
				}
			}
		}
		return from
	}
	type pool = redisstore.PoolStats
	s.gauge("farhand_redis_connections", "Open connections to Redis, by pool.",
		each(func(p pool) float64 { return float64(p.Open) }))
	s.gauge("farhand_redis_idle_connections", "Idle connections to Redis, by pool.",
		each(func(p pool) float64 { return float64(p.Idle) }))
	s.counter("farhand_redis_pool_waits_total", "Times a command had to wait for a connection, by pool.",
		each(func(p pool) float64 { return float64(p.Waits) }))
	s.counter("farhand_redis_pool_wait_seconds_total", "How long commands waited for connections altogether, by pool.",
		each(func(p pool) float64 { return p.Waited.Seconds() }))
	s.counter("farhand_redis_pool_timeouts_total", "Times no connection became free in time, by pool.",
		each(func(p pool) float64 { return float64(p.Timeouts) }))
}

// bus exports what the bus sent, its queue lengths and its failures; read is nil without Redis.
func (s *Set) bus(read func() bus.Stats) {
	s.counter("farhand_bus_sent_messages_total", "Messages that were sent to other pods, by queue.",
		shares("queue", read, func(b bus.Stats) []share {
			return []share{{"envelopes", b.CallsSent}, {"replies", b.RepliesSent}}
		}))
	s.counter("farhand_bus_sent_packets_total",
		"Packets in which those messages travelled, by queue: messages that leave for one pod at the same moment "+
			"share a packet.",
		shares("queue", read, func(b bus.Stats) []share {
			return []share{{"envelopes", b.CallPackets}, {"replies", b.ReplyPackets}}
		}))
	s.gauge("farhand_bus_queued_messages", "Messages that wait to be sent to other pods, by queue.",
		shares("queue", read, func(b bus.Stats) []share {
			return []share{
				{"envelopes", b.CallsQueued}, {"replies", b.RepliesQueued}, {"retries", b.RepliesPutOff},
			}
		}))
	s.gauge("farhand_bus_queued_bytes", "Bytes of the messages that wait to be sent to other pods, by queue.",
		shares("queue", read, func(b bus.Stats) []share {
			return []share{
				{"envelopes", b.CallBytesQueued}, {"replies", b.ReplyBytesQueued}, {"retries", b.PutOffBytesQueued},
			}
		}))
	s.counter("farhand_bus_events_total", "What went wrong between pods, and was mended or not, by what it was.",
		shares("event", read, func(b bus.Stats) []share {
			return []share{
				{"envelope_refused", b.CallsRefused}, {"reply_refused", b.RepliesRefused},
				{"reply_published", b.RepliesPublished}, {"reply_retried", b.RepliesRetried},
				{"reply_lost", b.RepliesLost}, {"malformed", b.Malformed}, {"resubscribed", b.Resubscribed},
				{"panic", b.Panics},
			}
		}))
}
