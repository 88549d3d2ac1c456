package metrics

import parts "github.com/farhand/farhand/internal/share"

// poolNames are the names of all pools that a pod may have.
var poolNames = []string{
	"answer_bytes", "argument_bytes", "body_bytes", "browsers", "catching_up", "checked_answer_bytes",
	"checked_answers", "checking_schemas", "commands", "compiling_schemas", "decoding", "decoding_large", "downloads",
	"errands", "exports", "hook_bytes", "hook_messages", "hook_questions", "idle_connections", "large_argument_bytes",
	"large_checked_answer_bytes", "late_answers", "mcp_calls", "message_bytes", "offered_bytes", "opening", "parsing",
	"reading", "registering", "requests", "returning_calls", "running_calls", "sockets", "streams", "tasks",
	"turn_bytes", "turns", "unsent_bytes", "uploads", "validating", "validating_answers", "waiting_requests",
}

// pools exports how full the pools are that tenants share.
func (s *Set) pools(reads []func() map[string]parts.Stats) {
	read := once(func() map[string]parts.Stats {
		all := make(map[string]parts.Stats)
		for _, read := range reads {
			for name, stats := range read() {
				all[name] = all[name].Plus(stats)
			}
		}
		return all
	})
	label := Label{"pool", poolNames}
	each := func(of func(parts.Stats) int64) source {
		return source{[]Label{label}, func(emit emitFunc) {
			for name, stats := range read() {
				emit(float64(of(stats)), name)
			}
		}}
	}
	s.gauge("farhand_pool_held",
		"What is held of each pool that tenants share, in its unit: bytes where its name says so, else how many.",
		each(func(p parts.Stats) int64 { return p.Held }))
	s.gauge("farhand_pool_waiting", "Requests that wait for a part of a pool.",
		each(func(p parts.Stats) int64 { return p.Waiting }))
	s.counter("farhand_pool_refused_total",
		"Requests that got no part of a pool, at once or after they had waited, by whose bound they met.",
		source{[]Label{label, {"bound", texts(parts.AllBounds())}}, func(emit emitFunc) {
			for name, stats := range read() {
				for bound, n := range stats.Refused {
					emit(float64(n), name, string(bound))
				}
			}
		}})
}
