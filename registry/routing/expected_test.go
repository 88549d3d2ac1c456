package routing

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
)

// askedStore counts how often it is asked for what is expected: of any session, and of one that is named.
type askedStore struct {
	*memory.Store
	any, named atomic.Int64
}

// Awaited implements registry.Directory.
func (s *askedStore) Awaited(ctx context.Context, q registry.Query) ([]registry.Awaited, error) {
	if q.SessionID == "" {
		s.any.Add(1)
	} else {
		s.named.Add(1)
	}
	return s.Store.Awaited(ctx, q)
}

// A call that waits for a device while others move all the time asks the store for that device only.
func TestACallFollowsTheDeviceThatItWaitsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &askedStore{Store: memory.New(memory.Options{})}
		asking, owning := startPod(t, store, "a"), startPod(t, store, "b")
		connect(t, owning, deafConn{}, nil).Leave(t.Context(), registry.ReturnWait)
		resolved := make(chan error)
		go func() {
			_, err := asking.Router.Resolve(t.Context(), "t", "tool", registry.Target{}, registry.SelectNone)
			resolved <- err
		}()
		for i := range 4 {
			time.Sleep(time.Second)
			other := registry.Session{Key: registry.Key{Tenant: "t", Session: fmt.Sprint("other", i)}}
			l, _, err := owning.Hub.Open(t.Context(), other, deafConn{})
			if err != nil {
				t.Fatal(err)
			}
			l.Close(t.Context())
		}
		connect(t, owning, deafConn{}, nil)
		if err := <-resolved; err != nil {
			t.Error(err)
		}
		if store.any.Load() != 1 || store.named.Load() == 0 {
			t.Errorf("asked for any %d times, and for the device %d times", store.any.Load(), store.named.Load())
		}
	})
}
