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

// betweenClaims is a store where something happens once, after a place was claimed and before the claim is used.
type betweenClaims struct {
	*memory.Store
	happens func()
}

func (s *betweenClaims) ClaimPlace(ctx context.Context, c registry.PlaceClaim) (registry.Place, error) {
	place, err := s.Store.ClaimPlace(ctx, c)
	if happens := s.happens; happens != nil {
		s.happens = nil
		happens()
	}
	return place, err
}

// A call whose conversation was erased, and begun again on the same pod, before it could enter asks for the place again.
func TestAnErrandOfAnEarlierClaimAsksAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &betweenClaims{Store: memory.New(memory.Options{})}
		a := startKeeper(t, store, "a")
		store.happens = func() {
			if _, err := store.EraseConversation(t.Context(), registry.Key{Tenant: "t", Session: "s"}); err != nil {
				t.Error(err)
			}
			a.want(t, "a anew=false")
		}
		a.want(t, "a anew=false")
		if n := a.pod.Stats().Places; n != 1 {
			t.Errorf("%d places", n)
		}
	})
}
