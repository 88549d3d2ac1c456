package routing

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
)

// A call that is cancelled while it waits for its owner is cancelled.
func TestAnErrandThatWaitsForItsOwnerIsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(memory.Options{})
		b := startKeeper(t, store, "b")
		if _, err := store.Heartbeat(t.Context(), "dead"); err != nil {
			t.Fatal(err)
		}
		key := registry.PlaceKey{Tenant: "t", Session: "s"}
		_, err := store.ClaimPlace(t.Context(), registry.PlaceClaim{Key: key, Pod: "dead", Kind: "browser"})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(registry.DefaultPodLease/3, cancel)
		_, err = b.does(ctx)
		if e := registry.AsError(err); e.Code != registry.CodeCancelled || e.Dispatched != registry.DispatchedNo {
			t.Errorf("%v, dispatched %q", err, e.Dispatched)
		}
		stops, stop := context.WithCancelCause(t.Context())
		stop(registry.ErrDraining)
		_, err = b.does(stops)
		if e := registry.AsError(err); e.Code != registry.CodeDraining || e.Dispatched != registry.DispatchedNo {
			t.Errorf("on a pod that stops: %v, dispatched %q", err, e.Dispatched)
		}
	})
}
