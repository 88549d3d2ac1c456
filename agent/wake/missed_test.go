package wake

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
)

// queued adds a call to the device's queue, as a pod does before it plans the wake.
func queued(t *testing.T, store *memory.Store, id string) {
	t.Helper()
	bound := registry.QueueBound{Calls: 100, Bytes: 1 << 20}
	c := registry.QueuedCall{Tenant: "acme", CallID: id, Device: "u4:anna" + device, Request: []byte("{}")}
	_, _, err := store.Enqueue(t.Context(), c, 24*time.Hour,
		registry.QueueBounds{Device: bound, Identity: bound, Tenant: bound})
	if err != nil {
		t.Fatal(err)
	}
}

// A call whose pod died before it planned the wake is found by another pod. One push is made for it, and none again
// while the device does not come.
func TestWakeThatNoPodPlanned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rec, begin := &recorder{}, time.Now()
		store := memory.New(memory.Options{})
		pods := fleetOn(t, store, 3, rec, wanted)
		register(t, pods[0], registry.Wake{})
		queued(t, store, "one") // the pod dies here
		time.Sleep(time.Hour)
		synctest.Wait()
		wantPushes(t, rec, begin, searchPause)
		queued(t, store, "two")
		time.Sleep(time.Hour)
		synctest.Wait()
		wantPushes(t, rec, begin, searchPause, time.Hour+searchPause)
	})
}

// A search looks at a bounded number of calls, and the next one continues. A pod that another one searches for does
// nothing.
func TestSearchesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pages, mine := 0, true
		s, err := New(Config{
			Store:    memory.New(memory.Options{}),
			Searches: func(context.Context) (bool, error) { return mine, nil },
			Queued: func(_ context.Context, cursor string, limit int) ([]registry.QueuedCall, string, error) {
				if pages++; limit != searchPage {
					t.Errorf("a page of %d", limit)
				}
				return make([]registry.QueuedCall, searchPage), cursor + "x", nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close(t.Context())
		const most = searchCalls / searchPage
		if next := s.search(t.Context(), ""); len(next) != most || pages != most {
			t.Errorf("%d pages, then %q", pages, next)
		}
		mine = false
		if s.search(t.Context(), "x"); pages != most {
			t.Errorf("%d pages", pages)
		}
	})
}
