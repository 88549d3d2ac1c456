package routing

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
)

// leavingConn is a socket that is being closed by the time it is given a call.
type leavingConn struct {
	deafConn
	leave func() // what happens meanwhile; it may be nil
}

func (c leavingConn) Deliver(DeviceCall) error {
	if c.leave != nil {
		c.leave()
	}
	return registry.NotConnected()
}

// askedConn notes what it is asked.
type askedConn struct {
	deafConn
	asked chan DeviceCall
}

func newAskedConn() askedConn { return askedConn{asked: make(chan DeviceCall, 16)} }

func (c askedConn) Deliver(call DeviceCall) error {
	c.asked <- call
	return nil
}

func (c askedConn) wantCall(t *testing.T, id string) {
	t.Helper()
	select {
	case got := <-c.asked:
		if got.ID != id {
			t.Fatalf("asked for %+v, want %s", got, id)
		}
	case <-time.After(time.Minute):
		t.Fatalf("never asked for %s", id)
	}
}

// A device that comes back to its pod at the very moment it is given a call gets the call on its new connection, and
// nothing of the first attempt is left to hold a slot or to refuse the second.
func TestReconnectWhileACallIsHandedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(memory.Options{})
		asking, owning := startPod(t, store, "a"), startPod(t, store, "b")
		for name, pod := range map[string]*Pod{"local": owning, "remote": asking} {
			next := newAskedConn()
			var second *LocalSession
			first := connect(t, owning, leavingConn{leave: func() { second = connect(t, owning, next, canResume) }},
				canResume)
			ended := begin(t, pod, first.Session(), name, 5*time.Second)
			next.wantCall(t, name)
			second.Complete(name, registry.Result{Success: true, Output: "done"}, func(ignored bool) {
				if ignored {
					t.Errorf("%s: the answer was ignored", name)
				}
			})
			if got := <-ended; got.err != nil || got.res.Output != "done" {
				t.Errorf("%s: %+v", name, got)
			}
			if n, away := second.InFlight(), owning.Hub.detached.len(); n != 0 || away != 0 {
				t.Errorf("%s: %d calls in flight, %d waiting for their device", name, n, away)
			}
			second.Close(t.Context())
		}
	})
}

func wantClaim(t *testing.T, store slowClaims) {
	t.Helper()
	select {
	case <-store.asked:
	case <-time.After(time.Minute):
		t.Fatal("no claim")
	}
}

// The same while a durable call is being claimed, which takes as long as the store does.
func TestReconnectWhileACallIsClaimed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hungClaims()
		asking, owning := startPod(t, store, "a"), startPod(t, store, "b")
		for name, pod := range map[string]*Pod{"local": owning, "remote": asking} {
			first := connect(t, owning, leavingConn{}, canResume)
			rec := registry.NewRecord(name, "t", "tool", nil)
			rec.SessionID, rec.TimeoutMS = "s", 60_000
			if _, _, err := store.CreateCall(t.Context(), rec); err != nil {
				t.Fatal(err)
			}
			ended := begin(t, pod, first.Session(), name, 20*time.Second, func(c *registry.Call) { c.Durable = true })
			wantClaim(t, store)
			next := newAskedConn()
			second := connect(t, owning, next, canResume)
			store.proceed <- struct{}{} // the first claim, in vain
			wantClaim(t, store)
			store.proceed <- struct{}{} // the second
			next.wantCall(t, name)
			second.Complete(name, registry.Result{Success: true, Output: "done"}, func(bool) {})
			if got := <-ended; got.err != nil || got.res.Output != "done" {
				t.Errorf("%s: %+v", name, got)
			}
			if n := second.InFlight(); n != 0 {
				t.Errorf("%s: %d calls in flight", name, n)
			}
			second.Close(t.Context())
		}
	})
}

// Whoever ends a call while the socket is given it finds out first whether the socket takes it.
func TestEndWhileTheSocketIsGivenTheCall(t *testing.T) {
	store := memory.New(memory.Options{})
	asking, owning := startPod(t, store, "a"), startPod(t, store, "b")
	for name, end := range map[string]func(*LocalSession){
		"closed":    func(l *LocalSession) { l.Close(context.Background()) },
		"cancelled": func(l *LocalSession) { l.cancel("cancelled", "test") },
	} {
		var l *LocalSession
		ended := make(chan struct{})
		l = connect(t, owning, leavingConn{leave: func() {
			go func() {
				defer close(ended)
				end(l)
			}()
			limit := time.NewTimer(100 * time.Millisecond)
			defer limit.Stop()
			select {
			case <-ended: // without having waited
			case <-limit.C:
			}
		}}, nil)
		got := <-begin(t, asking, l.Session(), name, 10*time.Second)
		<-ended
		if got.err == nil || registry.AsError(got.err).Dispatched != registry.DispatchedNo {
			t.Errorf("%s: %+v", name, got)
		}
		l.Close(t.Context())
	}
}

// A connection that has lost its session to a newer one before it was ready takes nothing of the calls that wait for
// the newer one.
func TestClaimThatLosesTakesNoCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &slowOpen{Store: memory.New(memory.Options{}), proceed: make(chan struct{})}
		pod := startPod(t, store, "a")
		first := connect(t, pod, newAskedConn(), canResume)
		ended := begin(t, pod, first.Session(), "c1", 8*time.Second)
		synctest.Wait()
		first.Close(t.Context())

		store.hold = true
		opened := make(chan *LocalSession)
		go func() {
			l, _, err := pod.Hub.Open(t.Context(),
				registry.Session{Key: first.key, Capabilities: []string{registry.CapabilityResume}}, deafConn{})
			if err != nil {
				t.Error(err)
			}
			opened <- l
		}()
		synctest.Wait()
		store.hold = false
		winner := connect(t, pod, deafConn{}, canResume)
		if winner.InFlight() != 1 {
			t.Fatalf("%d calls in flight", winner.InFlight())
		}
		winner.detach() // as if it were on its way out just then
		close(store.proceed)
		loser := <-opened
		defer loser.Close(t.Context())
		winner.Complete("c1", registry.Result{Success: true, Output: "done"}, func(bool) {})
		if got := <-ended; got.err != nil || got.res.Output != "done" {
			t.Errorf("%+v", got)
		}
	})
}

// slowOpen is a store whose claims of sessions are known to their pods only when told so.
type slowOpen struct {
	*memory.Store
	hold    bool
	proceed chan struct{}
}

func (s *slowOpen) Claim(ctx context.Context, session registry.Session) (registry.Claim, error) {
	c, err := s.Store.Claim(ctx, session)
	if s.hold {
		<-s.proceed
	}
	return c, err
}

// A call that boarded the new connection before those of the former one came over stays.
func TestRejoinReplacesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod := startPod(t, memory.New(memory.Options{}), "a")
		first := connect(t, pod, deafConn{}, canResume)
		old := &inFlightCall{key: first.key, callID: "c1", reply: func(registry.Reply) {}}
		old.session = first
		if err := first.track(old, time.Second); err != nil {
			t.Fatal(err)
		}
		first.detach()
		taken := pod.Hub.detached.takeAll(first.key, nil)
		old.end() // its attempt has failed, and the call is made anew
		second := connect(t, pod, deafConn{}, canResume)
		ended := begin(t, pod, second.Session(), "c1", 5*time.Second)
		synctest.Wait()
		second.rejoin(taken)
		second.Complete("c1", registry.Result{Success: true, Output: "done"}, func(ignored bool) {
			if ignored {
				t.Error("the answer was ignored")
			}
		})
		if got := <-ended; got.err != nil || got.res.Output != "done" {
			t.Errorf("%+v", got)
		}
	})
}

// A claimer that leaves before the contest is decided does not get the session: that would only throw the holder out.
func TestWhoLeavesTheContestTakesNothing(t *testing.T) {
	const token = "a token of the holder"
	pod := startPod(t, memory.New(memory.Options{}), "a")
	holder := connect(t, pod, deafConn{},
		func(s *registry.Session) { s.DeviceID, s.Proofs = "phone", []string{registry.Proof("", token)} })
	for range 100 { // both ends of the contest have come, and either may be seen first
		ctx, leave := context.WithCancel(t.Context())
		leave()
		said := make(chan registry.Introduction, 1)
		said <- registry.Introduction{Token: token}
		_, err := pod.Hub.Obtain(ctx, registry.Session{Key: holder.key}, deafConn{},
			&registry.Held{Holder: holder.Session(), At: time.Now()}, said)
		if err == nil || pod.Hub.Get(holder.key) != holder {
			t.Fatalf("the holder lost its session to one that is gone: %v", err)
		}
	}
}

// alwaysFaster is a store in which other connections of the device claim the session before each claim of another pod.
type alwaysFaster struct {
	*memory.Store
	claims int
}

// Claim implements registry.Sessions.
func (s *alwaysFaster) Claim(ctx context.Context, session registry.Session) (registry.Claim, error) {
	if session.DeviceName == "slow" {
		faster := session
		faster.DeviceName = "fast"
		if _, err := s.Store.Claim(ctx, faster); err != nil {
			return registry.Claim{}, err
		}
		s.claims++
	}
	return s.Store.Claim(ctx, session)
}

// A claimer that loses each race for a session comes back: no connection has refused it.
func TestWhoLosesEachRaceComesBack(t *testing.T) {
	store := &alwaysFaster{Store: memory.New(memory.Options{})}
	pod := startPod(t, store, "a")
	const token = "a token of the holder"
	change := func(s *registry.Session) { s.DeviceID, s.Proofs = "phone", []string{registry.Proof("", token)} }
	holder := connect(t, pod, deafConn{}, change).Session()
	said := make(chan registry.Introduction, 1)
	said <- registry.Introduction{Token: token}
	claimer := registry.Session{Key: holder.Key, DeviceName: "slow"}
	change(&claimer)
	_, err := pod.Hub.Obtain(t.Context(), claimer, deafConn{}, &registry.Held{Holder: holder, At: time.Now()}, said)
	if e := registry.AsError(err); !errors.Is(err, registry.CodeBusy) || e.RetryAfter == 0 || store.claims != maxContests {
		t.Errorf("after %d claims: %v", store.claims, err)
	}
}
