// Package registrytest is the conformance suite of registry.Store and registry.Bus. Every implementation runs the same
// suite. The rest of the program relies on what it checks.
package registrytest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/registry"
)

// Open returns a store, shared or not with other subtests, and a function that creates a new bus on it. It registers
// the cleanup with t.
type Open func(t *testing.T, l registry.Limits) (registry.Store, func() registry.Bus)

// testTimeout limits every wait for a condition.
const testTimeout = testkit.Limit

// lasting are limits under which nothing expires during a test.
var lasting = registry.Limits{SessionTTL: time.Minute, PodLease: time.Minute}

// Run runs the whole suite, or only the named groups.
func Run(t *testing.T, open Open, only ...string) {
	for _, group := range []struct {
		name  string
		tests []subtest
	}{
		{"sessions", sessionTests}, {"listing", listingTests}, {"pulses", pulseTests}, {"version", versionTests},
		{"awaited", awaitedTests}, {"pods", podTests}, {"documents", documentTests},
		{"bus", busTests}, {"routing", routingTests}, {"twice", twiceTests}, {"outcomes", outcomeTests},
		{"calls", callTests}, {"activity", activityTests}, {"conversations", conversationTests},
		{"takeover", takeoverTests}, {"owners", ownerTests},
		{"continuations", continuationTests}, {"budgets", budgetTests}, {"blobs", blobTests},
		{"toolmemory", toolMemoryTests}, {"defaults", defaultTests}, {"erasures", eraseTests},
		{"credentials", credentialTests}, {"rotations", rotationTests}, {"paired", pairedTests},
		{"revocations", revocationTests},
		{"pairings", pairingTests}, {"pairings of nodes", nodePairingTests}, {"wakes", wakeTests},
		{"approvals", approvalTests}, {"grants", grantTests},
		{"audit", auditTests}, {"limits", limitTests}, {"usage", usageTests}, {"spent", spentTests},
		{"tenants", tenantTests}, {"held", heldTests}, {"queues", queueTests}, {"sleeping", sleepingTests},
		{"places", placeTests},
	} {
		if len(only) > 0 && !slices.Contains(only, group.name) {
			continue
		}
		t.Run(group.name, func(t *testing.T) {
			for _, st := range group.tests {
				t.Run(st.name, func(t *testing.T) {
					t.Parallel()
					limits := st.limits
					if limits == (registry.Limits{}) {
						limits = lasting
					}
					store, newBus := open(t, limits)
					st.run(newFixture(t, store, newBus))
				})
			}
		})
	}
}

type subtest struct {
	name   string
	limits registry.Limits // zero: nothing expires during the test
	run    func(*fixture)
}

// fixture gives a subtest its own tenant and pods, so that stores may be shared.
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
	f.must(errOf(f.store.Heartbeat(f.ctx, pod)))
	return pod
}

// session returns a session as a device requests it.
func (f *fixture) session(id string, changes ...func(*registry.Session)) registry.Session {
	s := registry.Session{Key: f.key(id)}
	for _, change := range changes {
		change(&s)
	}
	return s
}

func (f *fixture) key(session string) registry.Key {
	return registry.Key{Tenant: f.tenant, Session: session}
}

// claim claims a session for pod and returns it as stored.
func (f *fixture) claim(session, pod string, change ...func(*registry.Session)) registry.Session {
	f.Helper()
	s := f.session(session, change...)
	s.Pod, s.Generation = pod, registry.AnyHolder
	claim, err := f.store.Claim(f.ctx, s)
	f.must(err)
	return claim.Session
}

// putTools sets the tools of a claim.
func (f *fixture) putTools(s registry.Session, specs ...registry.ToolSpec) {
	f.Helper()
	f.must(f.store.SetTools(f.ctx, s, specs))
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
		f.must(err)
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

func (f *fixture) groups(q registry.OfferedToolQuery) map[string]int {
	f.Helper()
	q.Tenant = f.tenant
	q.Limit = 2
	all := make(map[string]int)
	for pages := 0; pages < 1000; pages++ {
		page, next, err := f.store.OfferedTools(f.ctx, q)
		f.must(err)
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

// together runs do in n goroutines at once, and waits for all.
func together(n int, do func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { do(i) })
	}
	wg.Wait()
}

// wantList checks the results of a query, as names renders them.
func (f *fixture) wantList(q registry.Query, want string) {
	f.Helper()
	if got := names(f.list(q)); got != want {
		f.Errorf("%+v: listed %q, want %q", q, got, want)
	}
}

// wantGroups checks how many sessions offer each tool, by its name and description.
func (f *fixture) wantGroups(q registry.OfferedToolQuery, want map[string]int) {
	f.Helper()
	if got := f.groups(q); !maps.Equal(got, want) {
		f.Errorf("%+v: groups %v, want %v", q, got, want)
	}
}

func (f *fixture) eventually(what string, ok func() bool) {
	f.Helper()
	Eventually(f, what, ok)
}

// must ends the test on an error.
func (f *fixture) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

// errOf returns only the error of two results.
func errOf[T any](_ T, err error) error { return err }

// wantCode checks the code of an error, and its Dispatched if given.
func (f *fixture) wantCode(err error, code registry.Code, dispatched ...registry.Dispatched) {
	f.Helper()
	if !errors.Is(err, code) {
		f.Fatalf("error %v, want code %s", err, code)
	}
	if got := registry.AsError(err).Dispatched; len(dispatched) > 0 && got != dispatched[0] {
		f.Errorf("dispatched %q of %v, want %q", got, err, dispatched[0])
	}
}

// wantNoCall checks that the error says that there is no such call.
func (f *fixture) wantNoCall(err error) {
	f.Helper()
	f.wantCode(err, registry.CodeCallNotFound)
}

// tool returns a normalized spec. Two tools with the same name and description are equal.
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
