package routing

import (
	"context"
	"testing"
	"time"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
)

// A user with one call in the feed of a busy tenant finds it, page by page, and no page reads more than its share.
func TestACallAmongManyOfOthers(t *testing.T) {
	store := &countedFeed{Store: memory.New(memory.Options{Limits: registry.Limits{
		ActivityCap: 4 * searchLimit, ActivityBytes: 1 << 30,
	}})}
	pod := startPod(t, store, "p")
	line := func(id, user string) registry.Activity {
		rec := registry.NewRecord(id, "t", "tool", nil)
		rec.UserID = user
		return registry.Activity{Tenant: "t", Type: registry.ActivityCall, Call: &rec}
	}
	lines := []registry.Activity{line("anns", "ann")}
	for range 2 * searchLimit {
		lines = append(lines, line("bens", "ben"))
	}
	if err := store.AppendActivity(t.Context(), lines); err != nil {
		t.Fatal(err)
	}
	q, found := registry.CallQuery{Tenant: "t", UserID: "ann", Limit: 10}, 0
	for pages := 1; ; pages++ {
		store.lines = 0
		page, next, err := pod.Calls.List(t.Context(), q)
		if err != nil || store.lines > searchLimit {
			t.Fatalf("page %d: %d lines read, %v", pages, store.lines, err)
		}
		for _, r := range page {
			if found++; r.CallID != "anns" {
				t.Errorf("listed %+v", r)
			}
		}
		if next == "" {
			break
		}
		if q.Before = next; pages > 5 {
			t.Fatal("the list does not end")
		}
	}
	if found != 1 {
		t.Errorf("found %d calls", found)
	}
	store.lines, q.Before, q.From = 0, "", time.Now().Add(time.Hour)
	if page, next, err := pod.Calls.List(t.Context(), q); err != nil || len(page) > 0 || next != "" ||
		store.lines > searchPage {
		t.Errorf("after all calls: %d calls, next %q, %d lines read, %v", len(page), next, store.lines, err)
	}
}

// countedFeed counts the lines that are read.
type countedFeed struct {
	*memory.Store
	lines int
}

func (s *countedFeed) LastActivity(
	ctx context.Context, tenant, before string, limit int,
) ([]registry.Activity, error) {
	all, err := s.Store.LastActivity(ctx, tenant, before, limit)
	s.lines += len(all)
	return all, err
}
