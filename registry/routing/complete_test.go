package routing

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
)

// movesStore counts the changes that are sent to it, and can reject answers.
type movesStore struct {
	*memory.Store
	moves atomic.Int64
	fails atomic.Int64 // how many answers it rejects
}

func (s *movesStore) MoveCall(
	ctx context.Context, tenant, callID string, e registry.Event, c registry.Change,
) (registry.Moved, error) {
	s.moves.Add(1)
	if c.Result != nil && s.fails.Add(-1) >= 0 {
		return registry.Moved{}, registry.StoreUnavailable("move a call", errors.New("away"))
	}
	return s.Store.MoveCall(ctx, tenant, callID, e, c)
}

// A device answers calls that there are not. A short answer is one request to the store; a long one is not sent there,
// and neither is one whose id is none of the gateway's.
func TestAnswersToNoCall(t *testing.T) {
	store := &movesStore{Store: memory.New(memory.Options{})}
	l := connect(t, startPod(t, store, "a"), newNotedConn(), nil)
	for _, tc := range []struct {
		name, id, output string
		sent             bool
	}{
		{"short", registry.NewCallID(), "x", true},
		{"long", registry.NewCallID(), strings.Repeat("x", 1<<20), false},
		{"an id of a kilobyte", strings.Repeat("x", 1<<10), "x", false},
	} {
		before, ignored := store.moves.Load(), make(chan bool, 1)
		l.Complete(tc.id, registry.Result{Success: true, Output: tc.output}, func(i bool) { ignored <- i })
		if !<-ignored || (store.moves.Load() > before) != tc.sent {
			t.Errorf("%s: sent to the store %d times", tc.name, store.moves.Load()-before)
		}
	}
}

// A durable call whose answer finds no store: its caller gets an error, its record the answer, once the store is back.
// The device keeps the answer until then. Large answers, and those of a store that stays away, are given up.
func TestAnswerIsStoredOnceTheStoreIsBack(t *testing.T) {
	for _, tc := range []struct {
		name, output string
		fails        int64
		stored       bool
	}{
		{"a restart", "x", 5, true},
		{"a long outage", "x", 1000, false},
		{"a large answer", strings.Repeat("x", 100<<10), 5, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &movesStore{Store: memory.New(memory.Options{})}
				pod := startPod(t, store, "a")
				device := newNotedConn()
				l := connect(t, pod, device, nil)
				rec := registry.NewRecord("c1", "t", "tool", nil)
				rec.SessionID, rec.TimeoutMS = "s", 5000
				if _, _, err := store.CreateCall(t.Context(), rec); err != nil {
					t.Fatal(err)
				}
				ended := begin(t, pod, l.Session(), "c1", 5*time.Second, func(c *registry.Call) { c.Durable = true })
				<-device.calls
				store.fails.Store(tc.fails)
				ignored := make(chan bool, 1)
				l.Complete("c1", registry.Result{Success: true, Output: tc.output}, func(i bool) { ignored <- i })
				got := <-ended
				if e := registry.AsError(got.err); e.Code != registry.CodeStoreUnavailable ||
					e.Dispatched != registry.DispatchedYes {
					t.Errorf("the caller gets %v", got.err)
				}
				if <-ignored == tc.stored {
					t.Errorf("stored: %v, want %v", !tc.stored, tc.stored)
				}
				store.fails.Store(0)
				r, err := store.ReadCall(t.Context(), "t", "c1")
				if err != nil || (r.Result != nil) != tc.stored {
					t.Errorf("the record is %+v, %v", r, err)
				}
			})
		})
	}
}
