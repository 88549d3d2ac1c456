package metrics

import (
	"time"

	"github.com/farhand/farhand/redisstore"
	"github.com/farhand/farhand/redisstore/bus"
)

// redisBuckets are seconds.
var redisBuckets = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1}

// Redis measures round trips to Redis.
type Redis struct {
	durations map[redisstore.Group]*timer // never changes
	failures  map[redisstore.Group]tally  // never changes
}

var _ redisstore.Meter = (*Redis)(nil)

func newRedis(s *Set) *Redis {
	group := Label{"group", texts(redisstore.Groups())}
	r := &Redis{durations: make(map[redisstore.Group]*timer), failures: make(map[redisstore.Group]tally)}
	durations := s.histograms("farhand_redis_round_trip_duration_seconds",
		"How long round trips to Redis took, by the kind of what was sent. "+
			"Reads that wait for news are not among them.",
		[]Label{group}, redisBuckets)
	s.counter("farhand_redis_errors_total",
		"Round trips to Redis that failed, by the kind of what was sent and of the failure.",
		[]Label{group, {"failure", texts(redisstore.Failures())}}, func(emit emitFunc) {
			for g, t := range r.failures {
				t.emit(emit, string(g))
			}
		})
	for _, g := range redisstore.Groups() {
		r.durations[g], r.failures[g] = newTimer(durations, string(g)), newTally(texts(redisstore.Failures()))
	}
	return r
}

// RoundTrip implements redisstore.Meter.
func (r *Redis) RoundTrip(g redisstore.Group, took time.Duration, failed redisstore.Failure) {
	if r.durations[g] == nil {
		g = redisstore.GroupOther
	}
	r.durations[g].observe(took)
	if failed != redisstore.FailureNone {
		r.failures[g].add(string(failed), 1)
	}
}

// redisPools exports the pools of connections; read is nil without Redis.
func (s *Set) redisPools(read func() map[string]redisstore.PoolStats) {
	label := []Label{{"pool", []string{redisstore.PoolCommands, redisstore.PoolSessions}}}
	export := func(value func(redisstore.PoolStats) float64) func(emitFunc) {
		if read == nil {
			return nil
		}
		return func(emit emitFunc) {
			for name, p := range read() {
				emit(value(p), name)
			}
		}
	}
	s.gauge("farhand_redis_connections", "Open connections to Redis, by pool.", label,
		export(func(p redisstore.PoolStats) float64 { return float64(p.Open) }))
	s.gauge("farhand_redis_idle_connections", "Open connections to Redis that nobody uses now, by pool.", label,
		export(func(p redisstore.PoolStats) float64 { return float64(p.Idle) }))
	s.counter("farhand_redis_pool_waits_total", "Times a command had to wait for a connection, by pool.", label,
		export(func(p redisstore.PoolStats) float64 { return float64(p.Waits) }))
	s.counter("farhand_redis_pool_wait_seconds_total",
		"How long commands waited for connections altogether, by pool.", label,
		export(func(p redisstore.PoolStats) float64 { return p.Waited.Seconds() }))
	s.counter("farhand_redis_pool_timeouts_total", "Times no connection became free in time, by pool.", label,
		export(func(p redisstore.PoolStats) float64 { return float64(p.Timeouts) }))
}

// bus exports what waits in the bus, and what it had to put up with; read is nil without Redis.
func (s *Set) bus(read func() bus.Stats) {
	queue := []Label{{"queue", []string{"envelopes", "replies", "retries"}}}
	event := []Label{{"event", []string{
		"envelope_refused", "reply_refused", "reply_published", "reply_retried", "reply_lost",
		"malformed", "resubscribed", "panic",
	}}}
	export := func(values func(bus.Stats, emitFunc)) func(emitFunc) {
		if read == nil {
			return nil
		}
		return func(emit emitFunc) { values(read(), emit) }
	}
	s.gauge("farhand_bus_queued_messages", "Messages that wait to be sent to other pods, by queue.", queue,
		export(func(b bus.Stats, emit emitFunc) {
			emit(float64(b.CallsQueued), "envelopes")
			emit(float64(b.RepliesQueued), "replies")
			emit(float64(b.RepliesPutOff), "retries")
		}))
	s.gauge("farhand_bus_queued_bytes", "Bytes of the messages that wait to be sent to other pods, by queue.", queue,
		export(func(b bus.Stats, emit emitFunc) {
			emit(float64(b.CallBytesQueued), "envelopes")
			emit(float64(b.ReplyBytesQueued), "replies")
			emit(float64(b.PutOffBytesQueued), "retries")
		}))
	s.counter("farhand_bus_events_total", "What went wrong between pods, and was mended or not, by what it was.", event,
		export(func(b bus.Stats, emit emitFunc) {
			emit(float64(b.CallsRefused), "envelope_refused")
			emit(float64(b.RepliesRefused), "reply_refused")
			emit(float64(b.RepliesPublished), "reply_published")
			emit(float64(b.RepliesRetried), "reply_retried")
			emit(float64(b.RepliesLost), "reply_lost")
			emit(float64(b.Malformed), "malformed")
			emit(float64(b.Resubscribed), "resubscribed")
			emit(float64(b.Panics), "panic")
		}))
}
