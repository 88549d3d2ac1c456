// Package registrytest is the conformance suite of registry.Store and registry.Bus. Every implementation runs the
// same suite; what it demands is what the rest of the program relies on.
package registrytest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/farhand/farhand/registry"
)

// Options are what a subtest needs of the store it is given. Zero is the store's default.
type Options struct {
	SessionTTL     time.Duration
	PodLease       time.Duration
	Retention      time.Duration
	IdempotencyTTL time.Duration
	ActivityCap    int
	ActivityBytes  int
	HistoryTTL     time.Duration
	HistoryCap     int
}

// Open returns a store, shared or not with other subtests, and a function that makes a new bus on it. It registers
// the cleaning up with t.
type Open func(t *testing.T, o Options) (registry.Store, func() registry.Bus)

// patience bounds every wait for something that must come true.
const patience = 10 * time.Second

var lasting = Options{SessionTTL: time.Minute, PodLease: time.Minute}

// Run runs the whole suite, or the groups that are named.
func Run(t *testing.T, open Open, only ...string) {
	for _, group := range []struct {
		name  string
		tests []subtest
	}{
		{"sessions", sessionTests}, {"listing", listingTests}, {"version", versionTests}, {"pods", podTests},
		{"bus", busTests}, {"routing", routingTests}, {"twice", twiceTests}, {"outcomes", outcomeTests}, {"calls", callTests}, {"activity", activityTests},
		{"conversations", conversationTests}, {"takeover", takeoverTests},
		{"continuations", continuationTests}, {"budgets", budgetTests},
	} {
		if len(only) > 0 && !slices.Contains(only, group.name) {
			continue
		}
		t.Run(group.name, func(t *testing.T) {
			for _, st := range group.tests {
				t.Run(st.name, func(t *testing.T) {
					t.Parallel()
					o := st.options
					if o == (Options{}) {
						o = lasting
					}
					store, newBus := open(t, o)
					st.run(newFixture(t, store, newBus))
				})
			}
		})
	}
}

type subtest struct {
	name    string
	options Options // zero: nothing expires during the test
	run     func(*fixture)
}

// fixture gives a subtest a tenant and pods of its own, so that stores may be shared.
type fixture struct {
	*testing.T
	store  registry.Store
	newBus func() registry.Bus
	ctx    context.Context
	tenant string
	id     string
}

func newFixture(t *testing.T, store registry.Store, newBus func() registry.Bus) *fixture {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	id := strings.ReplaceAll(uuid.NewString(), "-", "")[:12]
	return &fixture{T: t, store: store, newBus: newBus, ctx: ctx, tenant: "t" + id, id: id}
}

// pod returns the id of a pod of this subtest, alive from now on.
func (f *fixture) pod(name string) string {
	f.Helper()
	pod := name + "-" + f.id
	if _, err := f.store.Heartbeat(f.ctx, pod); err != nil {
		f.Fatalf("beat: %v", err)
	}
	return pod
}

func (f *fixture) key(session string) registry.Key {
	return registry.Key{Tenant: f.tenant, Session: session}
}

// claim claims a session for pod and returns it as stored.
func (f *fixture) claim(session, pod string, change ...func(*registry.Session)) registry.Session {
	f.Helper()
	s := registry.Session{Key: f.key(session), Pod: pod, Generation: registry.AnyHolder}
	for _, c := range change {
		c(&s)
	}
	claim, err := f.store.Claim(f.ctx, s)
	if err != nil {
		f.Fatalf("claim %s: %v", session, err)
	}
	return claim.Session
}

// putTools makes specs all tools of a claim.
func (f *fixture) putTools(s registry.Session, specs ...registry.ToolSpec) {
	f.Helper()
	if err := f.store.SetTools(f.ctx, s, specs); err != nil {
		f.Fatalf("set tools: %v", err)
	}
}

// list reads all pages, a few entries at a time.
func (f *fixture) list(q registry.Query) []registry.Entry {
	f.Helper()
	q.Tenant = f.tenant
	if q.Limit == 0 {
		q.Limit = 3
	}
	var all []registry.Entry
	for pages := 0; pages < 1000; pages++ {
		page, next, err := f.store.List(f.ctx, q)
		if err != nil {
			f.Fatalf("list: %v", err)
		}
		if len(page) > q.Limit {
			f.Fatalf("a page of %d entries, limit %d", len(page), q.Limit)
		}
		all = append(all, page...)
		if next == nil {
			return all
		}
		q.After = *next
	}
	f.Fatal("listing does not end")
	return nil
}

func (f *fixture) groups(q registry.GroupQuery) map[string]int {
	f.Helper()
	q.Tenant = f.tenant
	q.Limit = 2
	all := make(map[string]int)
	for pages := 0; pages < 1000; pages++ {
		page, next, err := f.store.Groups(f.ctx, q)
		if err != nil {
			f.Fatalf("groups: %v", err)
		}
		for _, g := range page {
			all[g.Spec.Name+" "+g.Spec.Description] += g.Sessions
		}
		if next == "" {
			return all
		}
		q.After = next
	}
	f.Fatal("groups do not end")
	return nil
}

// eventually polls until ok returns true.
func (f *fixture) eventually(what string, ok func() bool) {
	f.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline:
			f.Fatalf("did not come true within %v: %s", patience, what)
		case <-tick.C:
		}
	}
}

func (f *fixture) wantCode(err error, code registry.Code) {
	f.Helper()
	if !errors.Is(err, code) {
		f.Fatalf("error %v, want code %s", err, code)
	}
}

// tool makes a normalized spec; two tools with the same name and description are equal.
func tool(name, description string) registry.ToolSpec {
	spec, err := registry.ToolSpec{
		Name: name, Description: description,
		Parameters: json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"}}}`),
	}.Normalize()
	if err != nil {
		panic(fmt.Sprintf("registrytest: %v", err))
	}
	return spec
}

// names renders entries as "session(tool,tool)" for comparison.
func names(entries []registry.Entry) string {
	var parts []string
	for _, e := range entries {
		var tools []string
		for _, t := range e.Tools {
			tools = append(tools, t.Name)
		}
		parts = append(parts, e.Session.Key.Session+"("+strings.Join(tools, ",")+")")
	}
	return strings.Join(parts, " ")
}
