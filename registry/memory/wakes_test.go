package memory_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/documents"
	"github.com/farhand/farhand/registry/memory"
)

// A tenant has slots of time while it has planned pushes. They begin when the pushes are due, are left while a push is,
// and are gone soon after the last push.
func TestSlotsOfTenantsEnd(t *testing.T) {
	now := time.Date(2026, 1, 10, 12, 0, 1, 0, time.UTC)
	m := memory.New(memory.Options{Now: func() time.Time { return now }})
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ref := func(i int) registry.WakeRef {
		return registry.WakeRef{Tenant: "acme", User: "ann", DeviceID: fmt.Sprint("d", i)}
	}
	plan := func(i int, next time.Time) {
		t.Helper()
		must(m.PlanWake(t.Context(), ref(i), func(registry.WakeRecord) (registry.WakePlan, bool) {
			return registry.WakePlan{Next: next}, true
		}))
	}
	slots := func(due bool) int {
		t.Helper()
		lists, err := m.Documents().Members(t.Context(), documents.Query{
			Space: documents.Space{Kind: "wakes"}, Index: "slots", Due: due, Limit: 100,
		})
		must(err)
		return len(lists[0])
	}
	search := func() []registry.WakeRef {
		t.Helper()
		due, err := m.DueWakes(t.Context(), 10)
		must(err)
		return due
	}
	for i := range 5 {
		must(m.SetWake(t.Context(), registry.WakeRecord{Tenant: "acme", User: "ann", DeviceID: ref(i).DeviceID}))
		plan(i, now.Add(time.Hour+time.Duration(i)*time.Minute))
	}
	if due := search(); len(due) > 0 || slots(true) > 0 || slots(false) != 5 {
		t.Errorf("an hour early: %v, %d slots have begun, %d not", due, slots(true), slots(false))
	}
	now = now.Add(time.Hour)
	if due := search(); !slices.Equal(due, []registry.WakeRef{ref(0)}) || slots(true) != 1 {
		t.Errorf("after an hour: %v, %d slots", due, slots(true))
	}
	now = now.Add(10 * time.Minute) // no push was sent
	if due := search(); len(due) != 5 || slots(true) != 1 {
		t.Errorf("later: %v, %d slots", due, slots(true))
	}
	for i := range 5 {
		plan(i, time.Time{})
	}
	if due := search(); len(due) > 0 || slots(true)+slots(false) != 0 {
		t.Errorf("after the pushes: %v, %d slots", due, slots(true)+slots(false))
	}
	plan(0, now.Add(-time.Second))
	now = now.Add(time.Second)
	if due := search(); len(due) != 1 {
		t.Errorf("another push: %v", due)
	}
	plan(0, time.Time{})
	for _, want := range []int{1, 0} { // a plan that is being written may belong to it
		search()
		if n := slots(true); n != want {
			t.Errorf("%d slots, want %d", n, want)
		}
		now = now.Add(time.Minute)
	}
}
