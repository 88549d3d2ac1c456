package routing

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farhand/farhand/internal/share"
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

// A call whose conversation was erased, and begun again on the same pod, before it could enter asks for the place
// again.
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

// What is kept at a place that another pod has now is ended, also if the pod was too busy when it found out.
func TestALostPlaceIsEndedOnceThereIsRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(memory.Options{})
		a, b := startKeeper(t, store, "a"), startKeeper(t, store, "b")
		a.want(t, "a anew=false")
		if err := store.ReleasePlaces(t.Context(), a.pod.Places.owned()); err != nil {
			t.Fatal(err)
		}
		b.want(t, "b anew=true")
		synctest.Wait()
		others, err := a.pod.Places.tasks.slots.Try(share.Owner{}, maxTasks) // as if as many tasks ran as may
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(registry.DefaultSessionTTL)
		synctest.Wait()
		if len(a.lost) != 0 || a.pod.Stats().Places != 1 {
			t.Errorf("while there is no room: lost %v, %d places", a.lost, a.pod.Stats().Places)
		}
		others.Release()
		time.Sleep(registry.DefaultSessionTTL)
		synctest.Wait()
		if len(a.lost) != 1 || a.pod.Stats().Places != 0 {
			t.Errorf("lost %v, %d places", a.lost, a.pod.Stats().Places)
		}
	})
}

// What is left of an earlier owner is ended before the place is used, also if the call that finds it is cancelled.
func TestWhatIsLeftIsEndedForACallThatIsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(memory.Options{})
		a := startKeeper(t, store, "a")
		a.want(t, "a anew=false")
		if err := store.ReleasePlaces(t.Context(), a.pod.Places.owned()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var ended error
		a.pod.Places.Serve(registry.PlaceKeeper{Lost: func(ctx context.Context, _ registry.Place) {
			cancel()
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
			ended = ctx.Err()
		}})
		_, err := a.does(ctx)
		if e := registry.AsError(err); e.Code != registry.CodeCancelled || e.Dispatched != registry.DispatchedNo {
			t.Errorf("%v, dispatched %q", err, e.Dispatched)
		}
		if ended != nil {
			t.Errorf("what is left was not ended: %v", ended)
		}
		a.want(t, "a anew=true")
	})
}

// What is kept of an erased conversation is ended, also if whoever erased it hangs up.
func TestAnErasedPlaceIsEndedForACallerThatHangsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(memory.Options{})
		a := startKeeper(t, store, "a")
		a.want(t, "a anew=false")
		key := registry.Key{Tenant: "t", Session: "s"}
		if _, err := store.EraseConversation(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		var ended []error
		for range 2 { // each is told
			a.pod.Places.Serve(registry.PlaceKeeper{Erased: func(ctx context.Context, _ registry.Key, _ int64) {
				ended = append(ended, ctx.Err())
			}})
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		a.pod.Places.Erased(ctx, key)
		if len(ended) != 2 || ended[0] != nil || ended[1] != nil {
			t.Errorf("ended with %v", ended)
		}
	})
}

// Nothing is lost with an owner whose tools have not run: it stopped, or refused the calls.
func TestNothingIsLostWithAnOwnerThatRanNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(memory.Options{})
		a, b, c := startKeeper(t, store, "a"), startKeeper(t, store, "b"), startKeeper(t, store, "c")
		c.pod.Drain(t.Context())
		if _, err := c.does(t.Context()); registry.AsError(err).Code != registry.CodeDraining {
			t.Errorf("a pod that stops: %v", err)
		}
		key := registry.PlaceKey{Tenant: "t", Session: "s"}
		place, err := b.pod.Places.Claim(t.Context(), registry.PlaceClaim{Key: key, Kind: "browser"})
		if err != nil || place.Pod != "b" {
			t.Fatal(place, err)
		}
		for i := range maxErrands / 2 {
			_, done, err := b.pod.Places.admit(fmt.Sprint(i), share.Owner{Tenant: "t"}, time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			defer done()
		}
		if _, err := a.does(t.Context()); registry.AsError(err).Code != registry.CodeBusy {
			t.Errorf("a busy pod: %v", err)
		}
		if err := store.ReleasePlaces(t.Context(), []registry.Place{place}); err != nil {
			t.Fatal(err)
		}
		a.want(t, "a anew=false")
	})
}
