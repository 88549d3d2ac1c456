package redisstore

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/redisstore/redistest"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/documents"
)

// Pods of the previous release know one document for each device id, and one index of planned pushes of the fleet. What
// they write is found, and they find what this release writes for the first user of an id.
func TestWakesOfThePreviousReleaseAreFound(t *testing.T) {
	t.Parallel()
	s, ctx := storeOn(t, Options{}), t.Context()
	space := documents.Space{Kind: "wakes"}
	record := registry.WakeRecord{
		User: "ann", Wake: registry.Wake{Kind: registry.WakeFCM, Token: "t"},
		Plan: registry.WakePlan{Next: time.Now().Add(-time.Minute)},
	}
	old := func(steps ...documents.Step) {
		t.Helper()
		if done, err := documents.Commit(ctx, s.Documents(), space, steps...); err != nil || done.Refused > 0 {
			t.Fatal(done, err)
		}
	}
	old(documents.PutJSON("acme/phone", record, time.Hour),
		documents.Join("due", "acme/phone", time.Millisecond, time.Hour))
	old(documents.Join("due", "acme/gone", time.Millisecond, time.Hour)) // its registration has expired
	ref := registry.WakeRef{Tenant: "acme", User: "ann", DeviceID: "phone"}
	due := func() []registry.WakeRef { t.Helper(); return must[[]registry.WakeRef](t)(s.DueWakes(ctx, 100)) }
	found := func() bool { return len(due()) > 0 } // once its millisecond has passed
	testkit.Eventually(t, "the device is due", found)
	if got := due(); !slices.Equal(got, []registry.WakeRef{ref}) {
		t.Errorf("found %v", got)
	}
	if got := must[registry.WakeRecord](t)(s.WakeOf(ctx, ref)); got.Wake.Token != "t" {
		t.Errorf("read %+v", got)
	}
	plan := func(next time.Time) {
		t.Helper()
		if err := s.PlanWake(ctx, ref, func(registry.WakeRecord) (registry.WakePlan, bool) {
			return registry.WakePlan{Next: next}, true
		}); err != nil {
			t.Fatal(err)
		}
	}
	plan(time.Now().Add(-time.Second))
	testkit.Eventually(t, "the device is due again", found)
	left := must[[][]string](t)(s.Documents().Members(ctx,
		documents.Query{Space: space, Index: "due", Due: true, Limit: 9},
		documents.Query{Space: space, Index: "planned.acme", Limit: 9, Due: true}))
	if !slices.Equal(left[0], []string{"acme/phone"}) || len(left[1]) != 1 {
		t.Errorf("indexes have %q", left)
	}

	// A pod of the previous release sends the push, and does not know the new index.
	record.Plan = registry.WakePlan{Last: time.Now()}
	old(documents.PutJSON("acme/phone", record, time.Hour), documents.Leave("due", "acme/phone"))
	if got := due(); len(got) != 0 {
		t.Errorf("found %v", got)
	}
	left = must[[][]string](t)(s.Documents().Members(ctx,
		documents.Query{Space: space, Index: "planned.acme", Limit: 9, Due: true}))
	if len(left[0]) != 0 {
		t.Errorf("the index has %q", left)
	}
}

// Planned pushes are found in many tenants, and of a tenant that has more than one search reads.
func TestDueWakesOfManyTenants(t *testing.T) {
	t.Parallel()
	s, ctx := storeOn(t, Options{}), t.Context()
	var refs []registry.WakeRef
	for i := range 520 { // more than are looked at at a time
		refs = append(refs, registry.WakeRef{Tenant: fmt.Sprint("t", i), User: "ann", DeviceID: "phone"})
	}
	for i := range 60 { // more than are read of one of many tenants
		refs = append(refs, registry.WakeRef{Tenant: "t7", User: fmt.Sprint("u", i), DeviceID: "phone"})
	}
	for _, ref := range refs {
		r := registry.WakeRecord{Tenant: ref.Tenant, User: ref.User, DeviceID: ref.DeviceID}
		if err := s.SetWake(ctx, r); err != nil {
			t.Fatal(err)
		}
		if err := s.PlanWake(ctx, ref, func(registry.WakeRecord) (registry.WakePlan, bool) {
			return registry.WakePlan{Next: time.Now().Add(-time.Minute)}, true
		}); err != nil {
			t.Fatal(err)
		}
	}
	found := make(map[registry.WakeRef]bool)
	for n := 0; len(found) < len(refs); n++ {
		if n == 100 {
			t.Fatalf("%d of %d were found", len(found), len(refs))
		}
		for _, ref := range must[[]registry.WakeRef](t)(s.DueWakes(ctx, 200)) {
			found[ref] = true
		}
	}
}

// While pods of the previous release run, a user may come to have two documents: one of them put its registration over
// the first user's. A change leaves one of them, and a drop none.
func TestAUserWithTwoWakesIsForgotten(t *testing.T) {
	t.Parallel()
	s, ctx := storeOn(t, Options{}), t.Context()
	for _, change := range []bool{false, true} {
		phone := fmt.Sprint("phone", change)
		of := func(user, token string) registry.WakeRecord {
			return registry.WakeRecord{
				Tenant: "acme", User: user, DeviceID: phone, Wake: registry.Wake{Kind: registry.WakeFCM, Token: token},
			}
		}
		for _, user := range []string{"eve", "ann"} {
			if err := s.SetWake(ctx, of(user, "former")); err != nil {
				t.Fatal(err)
			}
		}
		if done, err := documents.Commit(ctx, s.Documents(), documents.Space{Kind: "wakes"},
			documents.PutJSON("acme/"+phone, of("ann", "newer"), time.Hour)); err != nil || done.Refused > 0 {
			t.Fatal(done, err)
		}
		if change {
			if err := s.SetWake(ctx, of("ann", "newest")); err != nil {
				t.Fatal(err)
			}
			all := must[[]registry.WakeRecord](t)(s.WakesOf(ctx, "acme", phone))
			if len(all) != 1 || all[0].Wake.Token != "newest" {
				t.Errorf("after a change: %+v", all)
			}
		}
		if dropped, err := s.DropWake(ctx, of("ann", "").Ref()); err != nil || !dropped {
			t.Errorf("dropped %v, %v", dropped, err)
		}
		if all := must[[]registry.WakeRecord](t)(s.WakesOf(ctx, "acme", phone)); len(all) != 0 {
			t.Errorf("left: %+v", all)
		}
		lists := must[[][]string](t)(s.Documents().Members(ctx, documents.Query{
			Space: documents.Space{Kind: "wakes"}, Index: "user.acme/ann", Limit: 9,
		}))
		if len(lists[0]) != 0 {
			t.Errorf("the user's index has %q", lists[0])
		}
	}
}

// setDue registers devices of a tenant, each as due.
func setDue(t *testing.T, s *Store, tenant string, n int, next time.Time) (refs []registry.WakeRef) {
	t.Helper()
	for i := range n {
		r := registry.WakeRecord{Tenant: tenant, DeviceID: fmt.Sprint("d", i)}
		if err := s.SetWake(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		planWake(t, s, r.Ref(), next)
		refs = append(refs, r.Ref())
	}
	return refs
}

func planWake(t *testing.T, s *Store, ref registry.WakeRef, next time.Time) {
	t.Helper()
	if err := s.PlanWake(t.Context(), ref, func(registry.WakeRecord) (registry.WakePlan, bool) {
		return registry.WakePlan{Next: next}, true
	}); err != nil {
		t.Fatal(err)
	}
}

// Each search finds as many due devices as it may, while there are any: the next ones if those it found are still due,
// and those that are left if they are not.
func TestEachSearchFindsDueWakes(t *testing.T) {
	t.Parallel()
	s, limit := storeOn(t, Options{}), 50
	refs := setDue(t, s, "acme", 6*limit, time.Now().Add(-time.Minute))
	search := func() []registry.WakeRef {
		t.Helper()
		return must[[]registry.WakeRef](t)(s.DueWakes(t.Context(), limit))
	}
	found := make(map[registry.WakeRef]bool)
	for range 6 {
		for _, ref := range search() {
			found[ref] = true
		}
	}
	if len(found) != len(refs) {
		t.Errorf("%d of %d were found", len(found), len(refs))
	}
	for left := len(refs); left > 0; {
		due := search()
		if len(due) == 0 {
			t.Fatalf("nothing is found of %d that are left", left)
		}
		for _, ref := range due { // they are woken
			planWake(t, s, ref, time.Time{})
		}
		left -= len(due)
	}
}

// A search costs the same with one tenant as with 500, if all have plans for later.
func TestASearchReadsOnlyTenantsWithDueWakes(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := storeOn(t, Options{URL: server.URL()})
	cost := func() int {
		t.Helper()
		before := sentCommands(t, server)
		if due := must[[]registry.WakeRef](t)(s.DueWakes(t.Context(), 200)); len(due) > 0 {
			t.Errorf("due: %v", due)
		}
		return sentCommands(t, server) - before
	}
	setDue(t, s, "one", 1, time.Now().Add(time.Hour))
	alone := cost()
	for i := range 500 {
		setDue(t, s, fmt.Sprint("t", i), 1, time.Now().Add(time.Hour))
	}
	if crowded := cost(); alone > 2 || crowded != alone {
		t.Errorf("a search takes %d commands with one tenant, %d with 501", alone, crowded)
	}
}
