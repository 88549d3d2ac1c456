package agent_test

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/access/policy"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
	"github.com/farhand/farhand/registry/registrytest"
	"github.com/farhand/farhand/registry/routing"
)

// frozenStore is a store that answers nothing while it is frozen: what is asked of it takes as long as its client
// waits, or as long as the asker does.
type frozenStore struct {
	*memory.Store
	frozen  atomic.Bool
	emptied atomic.Bool // of all calls
}

func (s *frozenStore) reach(ctx context.Context) error {
	if !s.frozen.Load() {
		return nil
	}
	limit := time.NewTimer(800 * time.Millisecond)
	defer limit.Stop()
	select {
	case <-ctx.Done():
		return registry.StoreUnavailable("frozen", ctx.Err())
	case <-limit.C:
		return registry.StoreUnavailable("frozen", errors.New("i/o timeout"))
	}
}

func (s *frozenStore) CreateCall(ctx context.Context, r registry.Record) (registry.Record, bool, error) {
	if err := s.reach(ctx); err != nil {
		return registry.Record{}, false, err
	}
	return s.Store.CreateCall(ctx, r)
}

func (s *frozenStore) CallByKey(ctx context.Context, tenant, key string) (registry.Record, error) {
	if err := s.reach(ctx); err != nil {
		return registry.Record{}, err
	}
	return s.Store.CallByKey(ctx, tenant, key)
}

func (s *frozenStore) MoveCall(
	ctx context.Context, tenant, id string, e registry.Event, c registry.Change,
) (registry.Moved, error) {
	if err := s.reach(ctx); err != nil {
		return registry.Moved{}, err
	}
	if s.emptied.Load() {
		return registry.Moved{}, registry.ErrNoCall
	}
	return s.Store.MoveCall(ctx, tenant, id, e, c)
}

func (s *frozenStore) WatchCall(ctx context.Context, tenant, id, pod string) (registry.Record, error) {
	if err := s.reach(ctx); err != nil {
		return registry.Record{}, err
	}
	if s.emptied.Load() {
		return registry.Record{}, registry.ErrNoCall
	}
	return s.Store.WatchCall(ctx, tenant, id, pod)
}

func (s *frozenStore) ReadCall(ctx context.Context, tenant, id string) (registry.Record, error) {
	return s.WatchCall(ctx, tenant, id, "")
}

func (s *frozenStore) Entry(ctx context.Context, key registry.Key) (registry.Entry, error) {
	if err := s.reach(ctx); err != nil {
		return registry.Entry{}, err
	}
	return s.Store.Entry(ctx, key)
}

func (s *frozenStore) Take(ctx context.Context, tenant string, w []registry.Window) (time.Duration, int, error) {
	if err := s.reach(ctx); err != nil {
		return 0, 0, err
	}
	return s.Store.Take(ctx, tenant, w)
}

func (s *frozenStore) List(ctx context.Context, q registry.Query) ([]registry.Entry, *registry.Cursor, error) {
	if err := s.reach(ctx); err != nil {
		return nil, nil, err
	}
	return s.Store.List(ctx, q)
}

// frozenSlack is how much longer than its time a call may take when the store does not answer.
const frozenSlack = 200 * time.Millisecond

// A call is answered when its time is up, whatever the store does: when the session is looked for, when the record is
// made, when the device's answer is to be stored, and when the record is waited for.
func TestCallsKeepTheirTimeWithAFrozenStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &frozenStore{Store: memory.New(memory.Options{})}
		pods := twoPods(t, store)
		var freezeLater atomic.Bool
		device := registrytest.NewDevice(func(routing.DeviceCall) *registry.Result {
			if freezeLater.Load() {
				store.frozen.Store(true)
			}
			return &registry.Result{Success: true, Output: "done"}
		})
		device.Connect(t, pods[0], registry.Session{Key: registry.Key{Tenant: "default", Session: "s1"}}, spec("t", ""))
		for name, c := range map[string]struct {
			pod    int
			key    string
			later  bool // frozen when the device has the call
			target registry.Target
		}{
			"local, keyed":              {pod: 0, key: "k1", target: registry.Target{SessionID: "s1"}},
			"remote, keyed":             {pod: 1, key: "k2", target: registry.Target{SessionID: "s1"}},
			"local, frozen on its way":  {pod: 0, key: "k3", later: true, target: registry.Target{SessionID: "s1"}},
			"remote, frozen on its way": {pod: 1, key: "k4", later: true, target: registry.Target{SessionID: "s1"}},
			"remote, plain":             {pod: 1, target: registry.Target{SessionID: "s1"}},
			"looked for":                {pod: 1},
		} {
			invoker := agent.NewInvoker(agent.Config{
				Router: pods[c.pod].Router, CallLog: pods[c.pod].Calls, Policy: newPolicy(t, agent.PolicyRules{}),
			})
			time.Sleep(5 * time.Second) // what is remembered of the session is forgotten
			freezeLater.Store(c.later)
			store.frozen.Store(!c.later)
			start := time.Now()
			_, err := invoker.Invoke(t.Context(), agent.Request{
				Caller: auth.Identity{Tenant: "default"}, Tool: "t", Args: registry.MustJSON(`{}`), Target: c.target,
				Timeout: 250 * time.Millisecond, IdempotencyKey: c.key,
			})
			took := time.Since(start)
			store.frozen.Store(false)
			if err == nil || took > 250*time.Millisecond+frozenSlack {
				t.Errorf("%s: took %v: %v", name, took, err)
			}
		}
		time.Sleep(time.Minute)
	})
}

// twoPods starts two pods on a store.
func twoPods(t *testing.T, store *frozenStore) []*routing.Pod {
	t.Helper()
	return podsOn(t, store, func(b registry.Bus) registry.Bus { return b })
}

// podsOn starts two pods on a store, with its buses changed.
func podsOn(t *testing.T, store *frozenStore, change func(registry.Bus) registry.Bus) (pods []*routing.Pod) {
	t.Helper()
	for _, id := range []string{"a", "b"} {
		bus := change(store.NewBus())
		pod, err := routing.NewPod(routing.PodConfig{ID: id, Store: store, Bus: bus})
		if err == nil {
			err = pod.Start(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = errors.Join(pod.Close(context.Background()), bus.Close(context.Background())) })
		pods = append(pods, pod)
	}
	return pods
}

// Who has joined a call whose record is lost hears that the store lost it, not that there is no such call.
func TestJoinedCallWhoseRecordIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &frozenStore{Store: memory.New(memory.Options{})}
		pods := twoPods(t, store)
		registrytest.NewDevice(func(routing.DeviceCall) *registry.Result { return nil }).
			Connect(t, pods[0], registry.Session{Key: registry.Key{Tenant: "default", Session: "s1"}}, spec("t", ""))
		ended := make(chan error, 2)
		for _, pod := range pods {
			invoker := agent.NewInvoker(agent.Config{Router: pod.Router, CallLog: pod.Calls,
				Policy: newPolicy(t, agent.PolicyRules{})})
			go func() {
				_, err := invoker.Invoke(t.Context(), agent.Request{
					Caller: auth.Identity{Tenant: "default"}, Tool: "t", Args: registry.MustJSON(`{}`),
					Target: registry.Target{SessionID: "s1"}, Timeout: 5 * time.Second, IdempotencyKey: "k",
				})
				ended <- err
			}()
			time.Sleep(500 * time.Millisecond)
		}
		store.emptied.Store(true)
		for range pods {
			if e := registry.AsError(<-ended); e.Code != registry.CodeStoreUnavailable &&
				e.Code != registry.CodeTimeout || e.Dispatched == registry.DispatchedNo {
				t.Errorf("%+v", e)
			}
		}
	})
}

// A caller whose time is over while the store reads or writes gets timeout, and its record says the same: it gave the
// store no more time, so nothing says that the store is away.
func TestTimeIsUpInsideTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &frozenStore{Store: memory.New(memory.Options{})}
		pods := twoPods(t, store)
		device := registrytest.NewDevice(func(routing.DeviceCall) *registry.Result {
			t.Error("the device got a call")
			return &registry.Result{Success: true}
		})
		device.Connect(t, pods[0], registry.Session{Key: registry.Key{Tenant: "default", Session: "s1"}}, spec("t", ""))
		for name, c := range map[string]struct {
			key    string
			async  bool
			pod    int
			tool   string
			target registry.Target
			limits []policy.Limit
		}{
			"looked for":             {pod: 1, tool: "t"},
			"read":                   {pod: 1, tool: "t", target: registry.Target{SessionID: "s1"}},
			"record":                 {tool: "t", key: "k1", target: registry.Target{SessionID: "s1"}},
			"record of asynchronous": {tool: "t", async: true, target: registry.Target{SessionID: "s1"}},
			"refused, with a key":    {tool: "none", key: "k2", target: registry.Target{SessionID: "s1"}},
			"limits": {
				tool: "t", target: registry.Target{SessionID: "s1"},
				limits: []policy.Limit{perMinute(policy.PerIdentity, 5)},
			},
		} {
			invoker := agent.NewInvoker(agent.Config{
				Router: pods[c.pod].Router, CallLog: pods[c.pod].Calls, Policy: newPolicy(t, agent.PolicyRules{}),
				Limits: agent.NewRateLimits(store, c.limits, false, slog.New(slog.DiscardHandler)),
			})
			time.Sleep(5 * time.Second) // what is remembered of the session is forgotten
			store.frozen.Store(true)
			began := time.Now()
			out, err := invoker.Invoke(t.Context(), agent.Request{
				Caller: auth.Identity{Tenant: "default"}, Tool: c.tool, Args: registry.MustJSON(`{}`), Target: c.target,
				Timeout: 3 * time.Millisecond, IdempotencyKey: c.key, Async: c.async,
			})
			store.frozen.Store(false)
			if took := time.Since(began); took > frozenSlack {
				t.Errorf("%s took %v", name, took)
			}
			if e := registry.AsError(err); e == nil || e.Code != registry.CodeTimeout ||
				e.Dispatched != registry.DispatchedNo {
				t.Errorf("%s: %+v", name, e)
			}
			time.Sleep(time.Second)
			if rec, err := store.ReadCall(t.Context(), "default", out.CallID); err == nil &&
				(rec.Err == nil || rec.Err.Code != registry.CodeTimeout) {
				t.Errorf("%s: the record says %s, %+v", name, rec.State, rec.Err)
			}
		}
	})
}

// narrowBus is a bus that takes no results.
type narrowBus struct{ registry.Bus }

func (b narrowBus) Reply(pod string, r registry.Reply) error {
	if r.Result != nil {
		return registry.StoreUnavailable("reply", errors.New("full"))
	}
	return b.Bus.Reply(pod, r)
}

// A durable call whose result cannot be sent to the pod of its caller ends at once all the same, with the result that
// is in its record, or with lost if the store has lost the record.
func TestDurableCallWhoseResultIsNotSent(t *testing.T) {
	for _, emptied := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			store := &frozenStore{Store: memory.New(memory.Options{})}
			pods := podsOn(t, store, func(b registry.Bus) registry.Bus { return narrowBus{b} })
			registrytest.NewDevice(func(routing.DeviceCall) *registry.Result {
				store.emptied.Store(emptied)
				return &registry.Result{Success: true, Output: "done"}
			}).Connect(t, pods[0], registry.Session{Key: registry.Key{Tenant: "default", Session: "s1"}}, spec("t", ""))
			var seen outcomes
			invoker := agent.NewInvoker(agent.Config{
				Router: pods[1].Router, CallLog: pods[1].Calls, Policy: newPolicy(t, agent.PolicyRules{}),
				Hooks: []agent.Hook{&seen},
			})
			began := time.Now()
			out, err := invoker.Invoke(t.Context(), agent.Request{
				Caller: auth.Identity{Tenant: "default"}, Tool: "t", Args: registry.MustJSON(`{}`),
				Target: registry.Target{SessionID: "s1"}, Timeout: time.Minute, IdempotencyKey: "k",
			})
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("it took %v", took)
			}
			if e := registry.AsError(err); emptied {
				if e == nil || e.Code != registry.CodeLost || e.Dispatched != registry.DispatchedYes {
					t.Errorf("of a lost record: %+v", e)
				}
			} else if err != nil || out.Result.Output != "done" {
				t.Errorf("%+v, %v", out, err)
			}
			time.Sleep(2 * time.Second) // retries of the end
			if n := pods[1].Stats().Running; n != 0 && !emptied {
				t.Errorf("%d calls still run", n)
			}
			if seen.n.Load() != 1 || seen.failed.Load() != emptied {
				t.Errorf("the hook saw %d ends, a failure: %v", seen.n.Load(), seen.failed.Load())
			}
			store.emptied.Store(false)
			time.Sleep(time.Minute)
		})
	}
}

// outcomes is a hook that counts the ends of calls, and notes whether the last was a failure.
type outcomes struct {
	n      atomic.Int64
	failed atomic.Bool
}

func (*outcomes) Name() string { return "outcomes" }

func (o *outcomes) After(_ context.Context, _ agent.Invocation, _ agent.Outcome, err error) {
	o.n.Add(1)
	o.failed.Store(err != nil)
}
