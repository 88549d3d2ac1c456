package metrics

import (
	"github.com/farhand/farhand/internal/share"
)

var poolNames = []string{
	"answer_bytes", "argument_bytes", "attribute_bytes", "body_bytes", "browsers", "catching_up",
	"checked_answer_bytes", "checked_answers", "checking_schemas", "commands", "compiling_schemas", "decoding",
	"decoding_large", "deliveries", "downloads", "erasures", "errands", "exports", "group_calls", "hook_bytes",
	"hook_messages", "hook_questions", "idle_connections", "large_argument_bytes",
	"large_checked_answer_bytes", "late_answers", "mcp_answer_bytes", "mcp_calls", "message_bytes",
	"node_handshakes", "offered_bytes", "opening", "parsing", "pushes", "reading", "registering", "requests",
	"returning_calls", "running_calls", "sockets", "streams", "tasks", "turn_bytes", "turns", "unsent_bytes",
	"uploads", "validating", "validating_answers", "waiting_requests", "wakes",
}

// pools has the usage of the pools that tenants share. A pool may have several parts.
func pools(parts []map[string]share.Stats) []current {
	var held, waiting, refused []series
	all := make(map[string]share.Stats)
	for _, part := range parts {
		for name, stats := range part {
			all[name] = all[name].Plus(stats)
		}
	}
	for name, stats := range all {
		held = append(held, series{float64(stats.Held), []string{name}})
		waiting = append(waiting, series{float64(stats.Waiting), []string{name}})
		for bound, n := range stats.Refused {
			refused = append(refused, series{float64(n), []string{name, string(bound)}})
		}
	}
	name := Label{Name: "pool", Values: poolNames}
	return []current{
		gauge("farhand_pool_held",
			"Usage of each pool that tenants share: in bytes if its name says so, otherwise a count.",
			labeled(held, name)),
		gauge("farhand_pool_waiting", "Requests that wait for capacity of a pool.", labeled(waiting, name)),
		counter("farhand_pool_refused_total",
			"Requests that got no capacity of a pool, immediately or after waiting, by whose limit was reached.",
			labeled(refused, name, Label{Name: "bound", Values: texts(share.AllBounds())})),
	}
}
