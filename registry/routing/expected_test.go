package routing

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farhand/farhand/internal/testkit"
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

// A device that is back under its session has not said yet which device it is: a call for that device waits until it
// has, whether the call had been sent to where the device was or found it here.
func TestACallWaitsUntilTheDeviceSaysWhichItIs(t *testing.T) {
	for name, back := range map[string]string{"here": "a", "on another pod": "c"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memory.New(memory.Options{})
				pods := map[string]*Pod{"a": startPod(t, store, "a"), "b": startPod(t, store, "b"),
					"c": startPod(t, store, "c")}
				phone := func(s *registry.Session) { s.DeviceID = "phone" }
				l := connect(t, pods["b"], deafConn{}, phone)
				route, err := pods["a"].Router.Resolve(t.Context(), "t", "tool", registry.Target{DeviceID: "phone"},
					registry.SelectNone)
				if err != nil {
					t.Fatal(err)
				}
				l.Leave(t.Context(), registry.ReturnWait)
				again, _, err := pods[back].Hub.Open(t.Context(), registry.Session{Key: route.Session.Key}, deafConn{})
				if err != nil {
					t.Fatal(err)
				}
				called := <-begin(t, pods["a"], route.Session, "c1", time.Second,
					func(c *registry.Call) { c.Route = route })
				if !errors.Is(called.err, registry.CodeStaleRoute) {
					t.Errorf("before it has said which device it is: %v", called.err)
				}
				time.AfterFunc(time.Second, func() {
					err := again.Update(t.Context(), phone)
					if err := errors.Join(err, again.PutTools(t.Context(),
						[]registry.ToolSpec{testTool(t, "tool")}, nil)); err != nil {
						t.Error(err)
					}
				})
				if _, err := pods["a"].Router.ResolveAgain(t.Context(), route); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// slowLooks is a store that answers a look of a call that waits only when the caller's time is up.
type slowLooks struct{ *memory.Store }

// Awaited implements registry.Directory.
func (s slowLooks) Awaited(ctx context.Context, q registry.Query) ([]registry.Awaited, error) {
	if q.SessionID == "" {
		return s.Store.Awaited(ctx, q)
	}
	<-ctx.Done()
	return nil, registry.StoreUnavailable("awaited", ctx.Err())
}

// A call whose time is up in the middle of a look is told that its device is away, not that the store is.
func TestTheTimeIsUpInTheMiddleOfALook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := slowLooks{memory.New(memory.Options{})}
		asking, owning := startPod(t, store, "a"), startPod(t, store, "b")
		l := connect(t, owning, deafConn{}, nil)
		time.AfterFunc(500*time.Millisecond, func() { connect(t, owning, deafConn{}, nil).Close(t.Context()) })
		l.Leave(t.Context(), registry.ReturnWait)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		_, err := asking.Router.Resolve(ctx, "t", "tool", registry.Target{}, registry.SelectNone)
		if !errors.Is(err, registry.CodeNotConnected) {
			t.Error(err)
		}
		time.Sleep(time.Minute)
	})
}

// A call that waits for a device while its own pod stops learns that, and that it was not sent.
func TestAWaitForADeviceEndsWithThePod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(memory.Options{})
		asking, owning := startPod(t, store, "a"), startPod(t, store, "b")
		connect(t, owning, deafConn{}, nil).Leave(t.Context(), registry.ReturnWait)
		ctx, stop := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { stop(registry.ErrDraining) })
		_, err := asking.Router.Resolve(ctx, "t", "tool", registry.Target{}, registry.SelectNone)
		e := registry.AsError(err)
		if e.Code != registry.CodeDraining || e.RetryAfter == 0 || e.Dispatched != registry.DispatchedNo {
			t.Errorf("%v, dispatched %q", err, e.Dispatched)
		}
	})
}

// One user's calls cannot take all places in which those of a tenant may wait.
func TestWaitsOfAUserAreBounded(t *testing.T) {
	r := newReturns(func(context.Context, string) (string, error) { return "", nil })
	defer r.close()
	var leaves []func()
	for range maxUserReturns {
		if _, leave := r.enter("t", "ann"); leave != nil {
			leaves = append(leaves, leave)
		}
	}
	if one, _ := r.enter("t", "ann"); one != nil || len(leaves) != maxUserReturns {
		t.Errorf("%d calls of a user wait", r.len())
	}
	if _, leave := r.enter("t", "bob"); leave == nil {
		t.Error("another user's call may not wait")
	} else {
		leave()
	}
	for _, leave := range leaves {
		leave()
	}
	if _, leave := r.enter("t", "ann"); leave == nil || r.len() != 1 {
		t.Errorf("%d wait after all have left", r.len())
	} else {
		leave()
	}
}

// The waits of one tenant, by however many users, leave room for those of another.
func TestWaitsOfATenantAreBounded(t *testing.T) {
	r := newReturns(func(context.Context, string) (string, error) { return "", nil })
	defer r.close()
	other := testkit.Alone(t, "calls waiting for a device to reconnect", func() error {
		_, leave := r.enter("other", "ann")
		if leave == nil {
			return errors.New("the call may not wait")
		}
		leave()
		return nil
	})
	var leaves []func()
	for user := range 2 * maxReturns / maxUserReturns {
		for range maxUserReturns {
			if _, leave := r.enter("hostile", strconv.Itoa(user)); leave != nil {
				leaves = append(leaves, leave)
			}
		}
	}
	if len(leaves) != maxTenantReturns {
		t.Errorf("%d calls of a tenant wait", len(leaves))
	}
	other.Crowded()
	for range maxUserReturns {
		_, leave := r.enter("other", "ann")
		if leave == nil {
			t.Fatal("another tenant's call may not wait")
		}
		leaves = append(leaves, leave)
	}
	for _, leave := range leaves {
		leave()
	}
	if r.len() != 0 {
		t.Errorf("%d wait after all have left", r.len())
	}
}

// lateStore is one whose connection gives up at the deadline of a look, a moment before the context notices.
type lateStore struct {
	*memory.Store
	late atomic.Bool
}

// lateCtx has a deadline that it does not notice.
type lateCtx struct{ context.Context }

func (lateCtx) Err() error            { return nil }
func (lateCtx) Done() <-chan struct{} { return nil }

// Awaited implements registry.Directory.
func (s *lateStore) Awaited(ctx context.Context, q registry.Query) ([]registry.Awaited, error) {
	if deadline, ok := ctx.Deadline(); ok && s.late.Load() {
		time.Sleep(time.Until(deadline))
		return nil, registry.StoreUnavailable("look", os.ErrDeadlineExceeded)
	}
	s.late.Store(true)
	return s.Store.Awaited(ctx, q)
}

// A call whose time is up while the store is asked for its device hears that this is away, not that the store is.
func TestTimeIsUpInALook(t *testing.T) {
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			store := &lateStore{Store: memory.New(memory.Options{})}
			asking, owning := startPod(t, store, "a"), startPod(t, store, "b")
			connect(t, owning, deafConn{}, nil).Leave(t.Context(), registry.ReturnWait)
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			_, err := asking.Router.Resolve(ctx, "t", "tool", registry.Target{}, registry.SelectNone)
			if !errors.Is(err, registry.CodeNotConnected) {
				t.Fatal(err)
			}
		})
	}
}

// TestIsOver: a context is over at its deadline, whether it has noticed or not.
func TestIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		late := lateCtx{ctx}
		if isOver(late) || isOver(t.Context()) {
			t.Error("over before its time")
		}
		time.Sleep(time.Second)
		if !isOver(late) {
			t.Error("not over at its deadline")
		}
	})
}

// returningStore is one from whose first look at definitions to the next look all sessions are away.
type returningStore struct {
	*memory.Store
	looks atomic.Int64
}

// Definitions implements registry.Directory.
func (s *returningStore) Definitions(ctx context.Context, tenant, tool string) ([]string, error) {
	if s.looks.Add(1) == 1 {
		return nil, nil
	}
	return s.Store.Definitions(ctx, tenant, tool)
}

// Of devices that come back in the middle of a choice the newest is chosen; they are not called ambiguous.
func TestTheNewestOfThoseThatJustCameBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &returningStore{Store: memory.New(memory.Options{})}
		pod := startPod(t, store, "a")
		connect(t, pod, deafConn{}, nil)
		time.Sleep(time.Second)
		connect(t, pod, deafConn{}, func(s *registry.Session) { s.Key.Session = "newer" })
		route, err := pod.Router.Resolve(t.Context(), "t", "tool", registry.Target{}, registry.SelectNewest)
		if err != nil || route.Session.Key.Session != "newer" {
			t.Errorf("%+v, %v", route.Session.Key, err)
		}
	})
}
