package metrics

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/internal/share"
)

// maxTenants is how many tenants have series of their own on a pod. More lines make a graph unreadable, and the series
// of 20 tenants are a thirtieth of a pod's. The others count as other.
const maxTenants = 20

// reviewEvery is the number of calls and turns between two comparisons of named and other tenants. On average, a named
// tenant has 50 of them, so chance does not decide.
const reviewEvery = 50 * maxTenants

// tenants counts by tenant, for the busiest ones. The first tenants get a name. A busier one takes the name of the
// least busy one, whose series ends and may begin again at 0. Nothing moves between series, so all remain counters. It
// keeps at most twice maxTenants names, and is safe for concurrent use.
type tenants struct {
	mu     sync.Mutex
	named  map[string]*tenantCounts
	rest   tenantCounts
	rivals map[string]int64 // calls and turns of tenants without a name, too low by at most reviewEvery/maxTenants
	events int64            // since the last review
}

type tenantCounts struct {
	ok, failed    int64 // calls
	input, output int64 // tokens
	events        int64 // since the last review
}

func newTenants() *tenants {
	return &tenants{named: make(map[string]*tenantCounts), rivals: make(map[string]int64)}
}

func (t *tenants) call(end agent.CallEnd) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch c := t.of(end.Tenant); end.Outcome {
	case agent.OutcomeSucceeded, agent.OutcomeReplayed:
		c.ok++
	default:
		c.failed++
	}
}

func (t *tenants) turn(tenant string, u provider.Usage) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.of(tenant)
	c.input += int64(max(u.Input, 0))
	c.output += int64(max(u.Output, 0))
}

// of returns the counts of a tenant for one more event. The caller holds the lock.
func (t *tenants) of(tenant string) *tenantCounts {
	if t.events++; t.events > reviewEvery {
		t.review()
	}
	c := t.named[tenant]
	switch {
	case c != nil:
	case tenant == other:
		return &t.rest
	case len(t.named) < maxTenants:
		c = new(tenantCounts)
		t.named[tenant] = c
	default:
		t.compete(tenant)
		return &t.rest
	}
	c.events++
	return c
}

// compete counts an event of a tenant without a name. If there are too many such tenants, all lose one event: frequent
// ones remain (Misra and Gries).
func (t *tenants) compete(tenant string) {
	if _, ok := t.rivals[tenant]; ok || len(t.rivals) < maxTenants {
		t.rivals[tenant]++
		return
	}
	for name := range t.rivals {
		if t.rivals[name]--; t.rivals[name] == 0 {
			delete(t.rivals, name)
		}
	}
}

// review gives the names of little used tenants to those with more than twice as many events.
func (t *tenants) review() {
	rivals := slices.SortedFunc(maps.Keys(t.rivals), func(a, b string) int {
		return cmp.Compare(t.rivals[b], t.rivals[a])
	})
	least := slices.SortedFunc(maps.Keys(t.named), func(a, b string) int {
		return cmp.Compare(t.named[a].events, t.named[b].events)
	})
	for i := range min(len(rivals), len(least)) {
		if t.rivals[rivals[i]] <= 2*t.named[least[i]].events {
			break
		}
		delete(t.named, least[i])
		t.named[rivals[i]] = new(tenantCounts)
	}
	for _, c := range t.named {
		c.events = 0
	}
	t.events = 0
	clear(t.rivals)
}

// read returns the counts by tenant, with those of the others as other.
func (t *tenants) read() map[string]tenantCounts {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := map[string]tenantCounts{other: t.rest}
	for name, c := range t.named {
		all[name] = *c
	}
	return all
}

// tenantLabel is the label of the tenants with series of their own.
func tenantLabel() Label { return Label{Name: "tenant", Values: []string{other}, More: maxTenants} }

func tenantCalls(all map[string]tenantCounts) []current {
	var calls, tokens []series
	for tenant, c := range all {
		calls = append(calls, series{float64(c.ok), []string{tenant, "ok"}},
			series{float64(c.failed), []string{tenant, "failed"}})
		tokens = append(tokens, series{float64(c.input), []string{tenant, "input"}},
			series{float64(c.output), []string{tenant, "output"}})
	}
	return []current{
		counter("farhand_tenant_calls_total",
			"Finished calls of the tenants with most calls and turns here, by result. Failed calls include rejected "+
				"ones. When a busier tenant replaces one, that one's calls continue in other.",
			labeled(calls, tenantLabel(), Label{Name: "result", Values: []string{"ok", "failed"}})),
		counter("farhand_tenant_model_tokens_total",
			"Tokens that models read (input) and wrote (output) for the same tenants.",
			labeled(tokens, tenantLabel(), Label{Name: "direction", Values: []string{"input", "output"}})),
	}
}

// tenantConnections has the tenants with most connections, which may differ from those with most calls.
func tenantConnections(held map[string]int64) []current {
	names := slices.SortedFunc(maps.Keys(held), func(a, b string) int {
		return cmp.Or(cmp.Compare(held[b], held[a]), cmp.Compare(a, b))
	})
	names = slices.DeleteFunc(names, func(name string) bool { return name == other })
	rest := held[other]
	for _, name := range names[min(len(names), maxTenants):] {
		rest += held[name]
	}
	all := []series{{float64(rest), []string{other}}}
	for _, name := range names[:min(len(names), maxTenants)] {
		all = append(all, series{float64(held[name]), []string{name}})
	}
	return []current{gauge("farhand_tenant_connections",
		"Open connections of devices, of the tenants with most.", labeled(all, tenantLabel()))}
}

var poolNames = []string{
	"answer_bytes", "argument_bytes", "attribute_bytes", "body_bytes", "browsers", "catching_up",
	"checked_answer_bytes", "checked_answers", "checking_schemas", "commands", "compiling_schemas", "decoding",
	"decoding_large", "deliveries", "downloads", "erasures", "errands", "exports", "group_calls", "hook_bytes",
	"hook_messages", "hook_questions", "idle_connections", "large_argument_bytes", "large_checked_answer_bytes",
	"late_answers", "mcp_answer_bytes", "mcp_calls", "message_bytes", "node_handshakes", "offered_bytes", "opening",
	"page_bytes", "parsing", "pushes", "reading", "registering", "requests", "returning_calls", "running_calls",
	"sockets", "streams", "tasks", "turn_bytes", "turns", "unsent_bytes", "uploads", "validating",
	"validating_answers", "waiting_requests", "wakes",
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
