package metrics

import (
	"github.com/farhand/farhand/redisstore"
	"github.com/farhand/farhand/redisstore/bus"
)

func redisPools(all map[string]redisstore.PoolStats) []current {
	each := func(of func(redisstore.PoolStats) float64) current {
		var pools []series
		for name, p := range all {
			pools = append(pools, series{of(p), []string{name}})
		}
		return labeled(pools, Label{Name: "pool", Values: []string{redisstore.PoolCommands, redisstore.PoolSessions}})
	}
	type pool = redisstore.PoolStats
	return []current{
		gauge("farhand_redis_connections", "Open connections to Redis, by pool.",
			each(func(p pool) float64 { return float64(p.Open) })),
		gauge("farhand_redis_idle_connections", "Idle connections to Redis, by pool.",
			each(func(p pool) float64 { return float64(p.Idle) })),
		counter("farhand_redis_pool_waits_total", "Commands that had to wait for a connection, by pool.",
			each(func(p pool) float64 { return float64(p.Waits) })),
		counter("farhand_redis_pool_wait_seconds_total",
			"Total time that commands waited for connections, by pool.",
			each(func(p pool) float64 { return p.Waited.Seconds() })),
		counter("farhand_redis_pool_timeouts_total", "Commands that got no connection in time, by pool.",
			each(func(p pool) float64 { return float64(p.Timeouts) })),
	}
}

// unreadable has the values that a newer release wrote.
func unreadable(n map[string]int64) []current {
	var kinds []part
	for _, kind := range redisstore.Forms() {
		kinds = append(kinds, part{kind, n[kind]})
	}
	return []current{counter("farhand_unreadable_total",
		"Stored values and messages of newer releases that this pod could not read, and left as they are, by kind.",
		by("kind", kinds...))}
}

// busMessages has what the bus sent, its queue lengths and its failures.
func busMessages(n bus.Stats) []current {
	return []current{
		counter("farhand_bus_sent_messages_total", "Messages sent to other pods, by queue.",
			by("queue", part{"envelopes", n.CallsSent}, part{"replies", n.RepliesSent})),
		counter("farhand_bus_sent_packets_total",
			"Packets sent to other pods, by queue. Messages sent to a pod at the same moment share a packet.",
			by("queue", part{"envelopes", n.CallPackets}, part{"replies", n.ReplyPackets})),
		gauge("farhand_bus_queued_messages", "Messages queued for other pods, by queue.",
			by("queue", part{"envelopes", n.CallsQueued}, part{"replies", n.RepliesQueued},
				part{"retries", n.RepliesPutOff})),
		gauge("farhand_bus_queued_bytes", "Bytes of messages queued for other pods, by queue.",
			by("queue", part{"envelopes", n.CallBytesQueued}, part{"replies", n.ReplyBytesQueued},
				part{"retries", n.PutOffBytesQueued})),
		counter("farhand_bus_events_total", "Failures between pods, recovered or not, by event.",
			by("event", part{"envelope_refused", n.CallsRefused}, part{"reply_refused", n.RepliesRefused},
				part{"reply_published", n.RepliesPublished}, part{"reply_retried", n.RepliesRetried},
				part{"reply_lost", n.RepliesLost}, part{"malformed", n.Malformed},
				part{"resubscribed", n.Resubscribed}, part{"panic", n.Panics})),
		counter("farhand_bus_rejected_messages_total",
			"Messages and changes in Redis that are not signed by the fleet, by reason. Alert on any.",
			by("reason", part{"unsigned", n.Rejected["unsigned"]}, part{"forged", n.Rejected["forged"]},
				part{"stale", n.Rejected["stale"]}, part{"repeated", n.Rejected["repeated"]})),
	}
}
