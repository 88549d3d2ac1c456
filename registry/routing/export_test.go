package routing

import (
	"sync"
	"time"
)

// Replayable returns the configuration of a pod whose course does not depend on chance: jitter shortens its pauses, and
// gather waits until everybody has added their lines for the recorder at this instant.
func (cfg PodConfig) Replayable(jitter func(time.Duration) time.Duration, gather func()) PodConfig {
	cfg.jitter, cfg.gather = jitter, gather
	return cfg
}

// Leftovers counts what a pod holds of calls that have not ended. A pod without work holds nothing.
func (p *Pod) Leftovers() map[string]int {
	left := map[string]int{
		"pending calls": p.Router.pending.len(),
		"slots":         int(p.Calls.slots.Stats().Held),
		"tasks":         int(p.tasks.slots.Stats().Held + p.Hub.late.slots.Stats().Held),
	}
	p.Calls.active.Range(func(any, any) bool {
		left["active calls"]++
		return true
	})
	count := func(what string, mu *sync.Mutex, n func() int) {
		mu.Lock()
		defer mu.Unlock()
		left[what] = n()
	}
	h := p.Hub
	left["watchers"] = p.Calls.watchers.len()
	left["cancellers"] = p.Calls.endings.len()
	left["detached calls"] = h.detached.len()
	count("answers that are stored", &h.completing.mu, func() int { return len(h.completing.ids) })
	left["forwarded answers"] = h.verdicts.len()
	left["pings"] = h.pings.len()
	for _, l := range h.All() {
		left["calls in flight"] += l.InFlight()
	}
	return left
}

func (l *listeners[T]) len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.byID)
}

func (r *returns) len() int { return int(r.slots.Stats().Held) }
