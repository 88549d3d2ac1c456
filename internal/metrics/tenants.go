package metrics

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/provider"
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
