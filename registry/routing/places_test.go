package routing

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
)

// keeper is what keeps things at the places of one pod in tests.
type keeper struct {
	pod *Pod
	run func(ctx context.Context, e registry.Errand) (registry.Result, error) // nil: it says where it ran

	mu     sync.Mutex
	erased []int64          // generations that were current then
	lost   []registry.Place // that others had by then
}

func startKeeper(t *testing.T, store memoryStore, id string, change ...func(*PodConfig)) *keeper {
	k := &keeper{pod: startPod(t, store, id, change...)}
	k.pod.Places.Serve(registry.PlaceKeeper{
		Run: func(
			ctx context.Context, e registry.Errand, _ func(registry.Report),
		) (registry.Result, error) {
			if k.run != nil {
				return k.run(ctx, e)
			}
			return registry.Result{Success: true, Output: fmt.Sprintf("%s anew=%t", id, e.Anew)}, nil
		},
		Erased: func(_ context.Context, _ registry.Key, current int64) {
			k.mu.Lock()
			defer k.mu.Unlock()
			k.erased = append(k.erased, current)
		},
		Lost: func(_ context.Context, p registry.Place) {
			k.mu.Lock()
			defer k.mu.Unlock()
			k.lost = append(k.lost, p)
		},
	})
	return k
}

// does runs a tool for the conversation s of tenant t, asked on this pod.
func (k *keeper) does(ctx context.Context) (registry.Result, error) {
	return k.pod.Places.Run(ctx, registry.Errand{
		Place: registry.Place{Key: registry.PlaceKey{Tenant: "t", Session: "s"}}, Kind: "browser", CallID: "c",
		Tool: "tool", Args: registry.MustJSON(`{"a":1}`), Timeout: time.Minute,
	}, func(registry.Report) {})
}

// want fails the test unless a tool that is asked for on this pod says so.
func (k *keeper) want(t *testing.T, said string) {
	t.Helper()
	if res, err := k.does(t.Context()); err != nil || res.Output != said {
		t.Errorf("%q, %v, want %q", res.Output, err, said)
	}
}

func TestErrandsGoToTheOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(memory.Options{})
		a, b := startKeeper(t, store, "a"), startKeeper(t, store, "b")
		for range 2 {
			b.want(t, "b anew=false")
			a.want(t, "b anew=false")
		}
		b.pod.Drain(t.Context())
		if _, err := b.does(t.Context()); !errors.Is(err, registry.CodeDraining) {
			t.Errorf("a pod that stops: %v", err)
		}
		a.want(t, "a anew=true")
		a.want(t, "a anew=false")
		asked, owner := a.pod.Stats(), b.pod.Stats()
		if asked.PlaceCallsThere < 2 || asked.PlaceCallsHere != 2 || asked.PlacesTaken != 1 || asked.Places != 1 {
			t.Errorf("the pod that took the place over: %+v", asked)
		}
		if owner.PlaceCallsHere < 2 || owner.PlaceCallsThere != 0 || owner.PlacesTaken != 0 {
			t.Errorf("the pod that had it: %+v", owner)
		}
	})
}

// The owner's context ends with that of the caller, and the caller hears how a tool failed.
func TestErrandsEndWithTheirCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(memory.Options{})
		a, b := startKeeper(t, store, "a"), startKeeper(t, store, "b")
		a.want(t, "a anew=false")
		began, ended := make(chan struct{}), make(chan error, 1)
		a.run = func(ctx context.Context, e registry.Errand) (registry.Result, error) {
			close(began)
			<-ctx.Done()
			ended <- context.Cause(ctx)
			return registry.Result{}, ctx.Err()
		}
		ctx, cancel := context.WithCancel(t.Context())
		go func() { <-began; time.Sleep(2 * lostAfter(DefaultSendTimeout)); cancel() }() // a receipt has come
		if _, err := b.does(ctx); !errors.Is(err, registry.CodeCancelled) {
			t.Error(err)
		}
		if err := <-ended; !errors.Is(err, registry.CodeCancelled) {
			t.Errorf("the tool ended for %v", err)
		}
		a.run = func(context.Context, registry.Errand) (registry.Result, error) {
			return registry.Result{}, registry.NotConnected() // the tool's own: no other owner is looked for
		}
		if _, err := b.does(t.Context()); !errors.Is(err, registry.CodeNotConnected) ||
			registry.AsError(err).Dispatched != registry.DispatchedYes {
			t.Error(err)
		}
	})
}

// A call to a pod that is dead waits until its lease has lapsed; one that it may have begun is lost, and says so.
func TestErrandsOfADeadOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(memory.Options{})
		b := startKeeper(t, store, "b")
		if _, err := store.Heartbeat(t.Context(), "dead"); err != nil {
			t.Fatal(err)
		}
		key := registry.PlaceKey{Tenant: "t", Session: "s"}
		_, err := store.ClaimPlace(t.Context(), registry.PlaceClaim{Key: key, Pod: "dead", Kind: "browser", Keep: true})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		b.want(t, "b anew=true")
		if waited := time.Since(began); waited < registry.DefaultPodLease/2 || waited > registry.DefaultPodLease {
			t.Errorf("waited %v", waited)
		}
	})
}

// Neither an identity nor a tenant can take all places of calls that outlive their requests.
func TestRunningCallsAreShared(t *testing.T) {
	calls := startKeeper(t, memory.New(memory.Options{}), "a").pod.Calls
	take := func(tenant, identity string) (n int) {
		for ; ; n++ {
			place, err := calls.enter(share.Owner{Tenant: tenant, Identity: identity})
			if err != nil {
				if e := registry.AsError(err); e.Code != registry.CodeBusy || e.RetryAfter <= 0 {
					t.Error(err)
				}
				return n
			}
			t.Cleanup(place.Release)
		}
	}
	other := testkit.Alone(t, "asynchronous and idempotent calls", func() error {
		place, err := calls.enter(share.Owner{Tenant: "u", Identity: "anna"})
		if err == nil {
			place.Release()
		}
		return err
	})
	if n := take("t", "anna"); n != maxRunning/4 {
		t.Errorf("an identity has %d", n)
	}
	if n := take("t", ""); n != maxRunning/4 {
		t.Errorf("the rest of its tenant has %d", n)
	}
	other.Crowded()
	if n := take("u", "anna"); n != maxRunning/4 {
		t.Errorf("another tenant has %d", n)
	}
}

// A waiting call counts for the identity that asked for it once it begins.
func TestHeldCallsAreShared(t *testing.T) {
	calls := startKeeper(t, memory.New(memory.Options{}), "a").pod.Calls
	for range maxRunning / 4 {
		place, err := calls.enter(share.Owner{Tenant: "t", Identity: "bob"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(place.Release)
	}
	rec := registry.NewRecord(registry.NewCallID(), "t", "clock", []byte(`{}`))
	rec.Source, rec.Mode = registry.SourceLocal, registry.ModeAsync
	rec.HoldMS, rec.TimeoutMS = time.Minute.Milliseconds(), time.Minute.Milliseconds()
	if _, created, err := calls.Hold(t.Context(), rec); err != nil || !created {
		t.Fatalf("held %v, %v", created, err)
	}
	begin := func(identity string) (bool, error) {
		return calls.Begin(t.Context(), share.Owner{Tenant: "t", Identity: identity}, rec.CallID, time.Minute,
			func(context.Context, registry.Record) (registry.Result, error) {
				return registry.Result{Success: true}, nil
			})
	}
	if _, err := begin("bob"); !errors.Is(err, registry.CodeBusy) {
		t.Errorf("one more of an identity that has its part: %v", err)
	}
	if begun, err := begin("anna"); err != nil || !begun {
		t.Errorf("of another: %v, %v", begun, err)
	}
}

// A tenant whose answers take long to check does not keep those of others from being checked.
func TestChecksOfAnswersAreShared(t *testing.T) {
	hub := startKeeper(t, memory.New(memory.Options{}), "a").pod.Hub
	take := func(tenant string) (n int) {
		for ; ; n++ {
			place, err := hub.checks.slots.Try(share.Owner{Tenant: tenant}, 1)
			if err != nil {
				return n
			}
			t.Cleanup(place.Release)
		}
	}
	other := testkit.Alone(t, "output schema checks", func() error {
		place, err := hub.checks.slots.Try(share.Owner{Tenant: "other"}, 1)
		if err == nil {
			place.Release()
		}
		return err
	})
	greedy := take("greedy")
	other.Crowded()
	if honest := take("honest"); greedy != maxChecks/2 || honest < maxChecks/4 {
		t.Errorf("one tenant has %d, then another one %d", greedy, honest)
	}
}

// Neither an identity nor a tenant can take all that a pod runs for others.
func TestErrandsAreShared(t *testing.T) {
	p := startKeeper(t, memory.New(memory.Options{}), "a").pod.Places
	count := 0
	admit := func(tenant, identity string) error {
		count++
		_, done, err := p.admit(fmt.Sprint(count), share.Owner{Tenant: tenant, Identity: identity}, time.Minute)
		if err == nil {
			t.Cleanup(done)
		}
		return err
	}
	other := testkit.Alone(t, "calls from other pods to stateful tools here", func() error {
		_, done, err := p.admit("other", share.Owner{Tenant: "u", Identity: "anna"}, time.Minute)
		if err == nil {
			done()
		}
		return err
	})
	for _, identity := range []string{"anna", "bob"} {
		for range maxErrands / 4 {
			if err := admit("t", identity); err != nil {
				t.Fatal(err)
			}
		}
		if err := admit("t", identity); !errors.Is(err, registry.CodeBusy) {
			t.Errorf("one more of %s: %v", identity, err)
		}
	}
	if err := admit("t", "carla"); !errors.Is(err, registry.CodeBusy) {
		t.Errorf("one more of the tenant: %v", err)
	}
	other.Crowded()
}

// A tenant with more places than a pod remembers loses its own, the oldest first, and nobody else does.
func TestRememberedPlacesAreShared(t *testing.T) {
	p := startKeeper(t, memory.New(memory.Options{}), "a").pod.Places
	use := func(tenant string, n int) registry.PlaceKey {
		e := &registry.Errand{Place: registry.Place{
			Key: registry.PlaceKey{Tenant: tenant, Session: fmt.Sprint(n)}, Pod: "a", Epoch: 1,
		}}
		h, _, err := p.hold(e)
		if err != nil {
			t.Fatal(err)
		}
		p.leave(h, e, true)
		return e.Place.Key
	}
	has := func(key registry.PlaceKey) bool { return p.held[key] != nil }
	small, last := use("small", 0), registry.PlaceKey{}
	for n := range 2 * maxHeld {
		last = use("large", n)
	}
	if len(p.held) > maxHeld || !has(small) || !has(last) || has(registry.PlaceKey{Tenant: "large", Session: "0"}) {
		t.Errorf("%d places; that of the other tenant: %v, the newest: %v", len(p.held), has(small), has(last))
	}
}

// Whoever keeps something of a conversation hears that it was erased, also if the message is lost; whoever lost a place
// ends what is there.
func TestPodsHearWhatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(memory.Options{})
		a, b := startKeeper(t, store, "a"), startKeeper(t, store, "b")
		a.want(t, "a anew=false")
		erase := func() {
			t.Helper()
			if _, err := store.EraseConversation(t.Context(), registry.Key{Tenant: "t", Session: "s"}); err != nil {
				t.Fatal(err)
			}
		}
		erase()
		b.pod.Places.Erased(t.Context(), registry.Key{Tenant: "t", Session: "s"})
		synctest.Wait()
		if len(a.erased) != 1 || len(b.erased) != 1 {
			t.Errorf("erased at a %v, at b %v", a.erased, b.erased)
		}
		a.want(t, "a anew=false")
		erase() // and no message comes
		time.Sleep(registry.DefaultSessionTTL)
		synctest.Wait()
		if len(a.erased) != 2 || a.erased[1] <= a.erased[0] {
			t.Errorf("erased at a: %v", a.erased)
		}
		a.want(t, "a anew=false")
		held := a.pod.Places.owned()
		if err := store.ReleasePlaces(t.Context(), held); err != nil {
			t.Fatal(err)
		}
		b.want(t, "b anew=true")
		time.Sleep(registry.DefaultSessionTTL)
		synctest.Wait()
		if len(a.lost) != 1 || a.lost[0] != held[0] || len(b.lost) != 0 {
			t.Errorf("lost at a %v, at b %v", a.lost, b.lost)
		}
	})
}
