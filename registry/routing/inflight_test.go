package routing

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
)

// slowClaims is a store that claims durable calls only when told to.
type slowClaims struct {
	*memory.Store
	asked   chan struct{}
	proceed chan struct{}
}

func (s slowClaims) MoveCall(
	ctx context.Context, tenant, callID string, e registry.Event, c registry.Change,
) (registry.Moved, error) {
	if e == registry.EventDeliver {
		s.asked <- struct{}{}
		<-s.proceed
	}
	return s.Store.MoveCall(ctx, tenant, callID, e, c)
}

type deafConn struct{}

func (deafConn) Ping(answered func()) { answered() }

func (deafConn) Owner() share.Owner { return share.Owner{} }

func (deafConn) Pulse() registry.Pulse { return registry.Pulse{} }

func (deafConn) Deliver(DeviceCall) error { return nil }
func (deafConn) Cancel(string, string)    {}
func (deafConn) Close(CloseCause)         {}

// A connection that ends while a durable call is being claimed has not seen it: its caller hears that nothing ran, and
// the claim is given back.
func TestConnectionEndsDuringClaim(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), testkit.Limit)
	defer cancel()
	store := slowClaims{memory.New(memory.Options{}), make(chan struct{}), make(chan struct{})}
	bus := store.NewBus()
	pod, err := NewPod(PodConfig{Store: store, Bus: bus})
	if err != nil {
		t.Fatal(err)
	}
	if err := pod.Start(ctx); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = pod.Close(ctx)
		_ = bus.Close(ctx)
	}()
	l, _, err := pod.Hub.Open(ctx, registry.Session{Key: registry.Key{Tenant: "t", Session: "s"}}, deafConn{})
	if err != nil {
		t.Fatal(err)
	}
	spec, err := registry.ToolSpec{Name: "tool"}.Normalize()
	if err != nil {
		t.Fatal(err)
	}
	if err := l.PutTools(ctx, []registry.ToolSpec{spec}, nil); err != nil {
		t.Fatal(err)
	}
	rec := registry.NewRecord("c1", "t", "tool", nil)
	rec.SessionID, rec.TimeoutMS = "s", 5000
	if _, created, err := store.CreateCall(ctx, rec); err != nil || !created {
		t.Fatalf("%v, %v", created, err)
	}
	failed := make(chan error, 1)
	go func() {
		route := registry.Route{Session: l.Session(), Spec: spec}
		_, err := pod.Router.Call(ctx,
			registry.Call{ID: "c1", Route: route, Args: registry.MustJSON(`{}`), Timeout: 5 * time.Second,
				Durable: true})
		failed <- err
	}()
	<-store.asked
	l.Close(ctx)
	close(store.proceed)
	if e := registry.AsError(<-failed); e.Code != registry.CodeNotConnected || e.Dispatched != registry.DispatchedNo {
		t.Errorf("%+v", e)
	}
	if r, err := store.ReadCall(ctx, "t", "c1"); err != nil || r.State != registry.StateAccepted ||
		r.Dispatched != registry.DispatchedNo {
		t.Errorf("%+v, %v", r, err)
	}
}

// lateConn takes a call only when its time is over.
type lateConn struct {
	deafConn
	session *LocalSession
	expired chan string
}

func (c *lateConn) Deliver(call DeviceCall) error {
	for waits := true; waits; _, waits = c.session.Remaining(call.ID) {
		runtime.Gosched()
	}
	return nil
}

func (c *lateConn) Expired(callID string) { c.expired <- callID }

// A call whose time ends while it is being given to the socket reaches a device that hears that the time is over.
func TestCallExpiresWhileItIsWritten(t *testing.T) {
	pod := startPod(t, memory.New(memory.Options{}), "a")
	conn := &lateConn{expired: make(chan string, 2)}
	conn.session = connect(t, pod, conn, nil)
	ended := begin(t, pod, conn.session.Session(), "c1", time.Millisecond)
	select {
	case id := <-conn.expired:
		if id != "c1" {
			t.Errorf("the time of %q is over", id)
		}
	case <-time.After(time.Minute):
		t.Error("the device does not hear that the time is over")
	}
	<-ended
}

func canResume(s *registry.Session) { s.Capabilities = []string{registry.CapabilityResume} }

// A call whose time ends while its device is away is over: the device that comes back does not get it again, to be in
// in-flight call for ever.
func TestCallExpiresWhileItsDeviceIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod := startPod(t, memory.New(memory.Options{}), "a")
		l := connect(t, pod, deafConn{}, canResume)
		ended := begin(t, pod, l.Session(), "c1", time.Second)
		synctest.Wait()
		l.Close(t.Context())
		if got := <-ended; !errors.Is(got.err, registry.CodeTimeout) {
			t.Fatalf("%+v", got)
		}
		// past the expiry of the in-flight call, and before the end of waiting for the device
		time.Sleep(2 * time.Second)
		if left := pod.Hub.detached.takeAll(l.key, nil); len(left) != 0 {
			t.Errorf("%d calls still wait for their device", len(left))
		}
		if n := connect(t, pod, deafConn{}, canResume).InFlight(); n != 0 {
			t.Errorf("%d calls in flight that nobody waits for", n)
		}
	})
}

// The same, when the call ends just as the next connection takes it over.
func TestRejoinLeavesWhatHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod := startPod(t, memory.New(memory.Options{}), "a")
		first := connect(t, pod, deafConn{}, canResume)
		f := &inFlightCall{key: first.key, callID: "c1", reply: func(registry.Reply) {}}
		f.session = first
		if err := first.track(f, time.Second); err != nil {
			t.Fatal(err)
		}
		first.detach()
		taken := pod.Hub.detached.takeAll(first.key, nil)
		time.Sleep(2 * time.Second) // it expires between being taken and coming aboard
		second := connect(t, pod, deafConn{}, canResume)
		second.rejoin(taken)
		if n := second.InFlight(); len(taken) != 1 || n != 0 {
			t.Errorf("%d of %d calls in flight", n, len(taken))
		}
	})
}

// hungClaims is a store whose claims of durable calls take until they are told to go on.
func hungClaims() slowClaims {
	return slowClaims{memory.New(memory.Options{}), make(chan struct{}, 1), make(chan struct{})}
}

// While a durable call is being claimed its device has not seen it, so no receipt may say that it has; and the silence
// meanwhile does not mean that the other pod is gone.
func TestNoReceiptBeforeTheSocketHasTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hungClaims()
		asking, owning := startPod(t, store, "a"), startPod(t, store, "b")
		l := connect(t, owning, deafConn{}, nil)
		rec := registry.NewRecord("c1", "t", "tool", nil)
		rec.SessionID, rec.TimeoutMS = "s", 60_000
		if _, _, err := store.CreateCall(t.Context(), rec); err != nil {
			t.Fatal(err)
		}
		durable := func(c *registry.Call) { c.Durable = true }
		ended := begin(t, asking, l.Session(), "c1", time.Minute, durable)
		<-store.asked
		time.Sleep(lostAfter(DefaultSendTimeout) + 500*time.Millisecond)
		w := asking.Router.pending.get("c1")
		if w == nil {
			t.Fatalf("the caller gave up: %+v", <-ended)
		}
		if wasDelivered(w) {
			t.Error("a receipt tells of a call that the device has not seen")
		}
		close(store.proceed)
		time.Sleep(receiptAfter + time.Millisecond)
		if !wasDelivered(w) {
			t.Error("no receipt although the device has the call")
		}
		l.Complete("c1", registry.Result{Success: true, Output: "done"}, func(bool) {})
		if got := <-ended; got.err != nil || got.res.Output != "done" {
			t.Errorf("%+v", got)
		}
	})
}

// A tool that is registered anew while a durable call of it is being claimed is not called: the caller decides again on
// the definition there is now, and the claim is given back.
func TestToolChangesDuringClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hungClaims()
		pod := startPod(t, store, "a")
		device := newNotedConn()
		l := connect(t, pod, device, nil)
		rec := registry.NewRecord("c1", "t", "tool", nil)
		rec.SessionID, rec.TimeoutMS = "s", 5000
		if _, _, err := store.CreateCall(t.Context(), rec); err != nil {
			t.Fatal(err)
		}
		ended := begin(t, pod, l.Session(), "c1", 5*time.Second, func(c *registry.Call) { c.Durable = true })
		<-store.asked
		changed, err := registry.ToolSpec{Name: "tool", Description: "now another one"}.Normalize()
		if err == nil {
			err = l.PutTools(t.Context(), []registry.ToolSpec{changed}, nil)
		}
		if err != nil {
			t.Fatal(err)
		}
		close(store.proceed)
		got := <-ended
		if e := registry.AsError(got.err); e.Code != registry.CodeStaleRoute || e.Dispatched != registry.DispatchedNo {
			t.Errorf("the caller hears %v", got.err)
		}
		if len(device.calls) != 0 || l.InFlight() != 0 {
			t.Errorf("the device was given %d calls, %d are in flight", len(device.calls), l.InFlight())
		}
		if r, err := store.ReadCall(t.Context(), "t", "c1"); err != nil || r.State != registry.StateAccepted {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

func wasDelivered(w *pendingCall) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.delivered
}

// A call that has hardly any time expires with its first timer, which may fire before it is noted. The race detector
// sees it.
func TestFlightThatExpiresAtOnce(t *testing.T) {
	store := memory.New(memory.Options{})
	asking := startPod(t, store, "a")
	l := connect(t, startPod(t, store, "b"), deafConn{}, nil)
	for range 5 {
		if got := <-begin(t, asking, l.Session(), registry.NewCallID(), 5*time.Millisecond); got.err == nil {
			t.Error("a device that says nothing answered")
		}
	}
	for l.InFlight() > 0 {
		runtime.Gosched()
	}
}

// rejoining is a connection whose device is back, on another one, just while a call is given up.
type rejoining struct {
	deafConn
	rejoin func()
}

func (c rejoining) Cancel(string, string) { c.rejoin() }

// A call that is given up while it changes connections holds no slot at the next one.
func TestGivenUpWhileItIsTakenOver(t *testing.T) {
	pod := startPod(t, memory.New(memory.Options{}), "a")
	var second *LocalSession
	f := &inFlightCall{callID: "c1", reply: func(registry.Reply) {}}
	first := connect(t, pod, rejoining{rejoin: func() { second.rejoin([]*inFlightCall{f}) }}, canResume)
	f.key = first.key
	f.session = first
	if err := first.track(f, time.Minute); err != nil {
		t.Fatal(err)
	}
	f.state = flightSent
	first.detach()
	pod.Hub.detached.takeAll(first.key, nil)
	second = connect(t, pod, deafConn{}, canResume)
	f.cancel("cancelled")
	if n := second.InFlight(); n != 0 {
		t.Errorf("%d calls in flight that nobody waits for", n)
	}
}

// expiredConn notes the calls that it is told nobody waits for.
type expiredConn struct {
	deafConn
	calls *[]string
}

func (c expiredConn) Expired(callID string) { *c.calls = append(*c.calls, callID) }

// A timer that fires while its call is being answered neither tells the device that nobody waits for the call, nor is
// it set again, to hold what has ended until the call would have expired.
func TestTimerFiresWhileTheCallIsAnswered(t *testing.T) {
	pod := startPod(t, memory.New(memory.Options{}), "a")
	var told []string
	l := connect(t, pod, expiredConn{calls: &told}, nil)
	start := func(timeout time.Duration) *inFlightCall {
		f := &inFlightCall{key: l.key, callID: registry.NewCallID(), reply: func(registry.Reply) {}}
		f.session = l
		if err := l.track(f, timeout); err != nil {
			t.Fatal(err)
		}
		f.timer.Stop() // the test fires it
		f.state = flightSent
		return f
	}
	late := start(time.Hour)
	late.expires = time.Now()
	l.takeCall(late.callID, nil)
	late.finish(registry.Reply{})
	late.tick()
	if len(told) != 0 {
		t.Errorf("the device is told that nobody waits for a call that was answered: %v", told)
	}
	for i := range 50_000 {
		f := start(time.Hour)
		l.takeCall(f.callID, nil)
		var begun atomic.Bool
		fired := make(chan struct{})
		go func() {
			defer close(fired)
			begun.Store(true)
			f.tick()
		}()
		for !begun.Load() {
			runtime.Gosched()
		}
		for range i % 400 { // at another point of its way each time
			begun.Load()
		}
		f.finish(registry.Reply{})
		<-fired
		if f.timer.Stop() {
			t.Fatal("the timer of a call that was answered is set again")
		}
	}
}
