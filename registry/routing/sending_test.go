package routing

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
)

// cutBus is a bus whose calls arrive, but whose sender stops waiting before it hears so.
type cutBus struct {
	registry.Bus
	giveUp context.CancelFunc
}

func (b cutBus) SendAsync(
	ctx context.Context, pod string, e registry.Envelope, _ registry.SendCallback,
) (registry.PendingSend, error) {
	posted, err := b.Bus.SendAsync(ctx, pod, e, deafSender{})
	if e.Kind == registry.EnvelopeCall && err == nil {
		b.giveUp()
	}
	return posted, err
}

// deafSender is a sender that hears nothing.
type deafSender struct{}

func (deafSender) Sent(error) {}

// hearingConn tells of the calls that are cancelled.
type hearingConn struct {
	deafConn
	cancelled chan string
}

func (c hearingConn) Cancel(callID, _ string) { c.cancelled <- callID }

// A call may have reached the device although its caller stopped waiting while it was being sent. The device is told.
func TestCallerGivesUpWhileSending(t *testing.T) {
	ctx, stop := context.WithTimeout(context.Background(), testkit.Limit)
	defer stop()
	calling, giveUp := context.WithCancel(ctx)
	defer giveUp()
	store := memory.New(memory.Options{})
	open := func(bus registry.Bus) *Pod {
		pod, err := NewPod(PodConfig{Store: store, Bus: bus})
		if err != nil {
			t.Fatal(err)
		}
		if err := pod.Start(ctx); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = pod.Close(context.Background())
			_ = bus.Close(context.Background())
		})
		return pod
	}
	asking, owning := open(cutBus{store.NewBus(), giveUp}), open(store.NewBus())
	conn := hearingConn{cancelled: make(chan string, 1)}
	l, _, err := owning.Hub.Open(ctx, registry.Session{Key: registry.Key{Tenant: "t", Session: "s"}}, conn)
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
	route, err := asking.Router.Resolve(ctx, "t", "tool", registry.Target{SessionID: "s"}, "")
	if err != nil {
		t.Fatal(err)
	}
	_, err = asking.Router.Call(calling, registry.Call{ID: "c1", Route: route, Timeout: 5 * time.Second})
	if e := registry.AsError(err); !errors.Is(err, registry.CodeCancelled) ||
		e.Dispatched != registry.DispatchedUnknown {
		t.Errorf("the caller heard %v, dispatched %s", err, e.Dispatched)
	}
	select {
	case id := <-conn.cancelled:
		if id != "c1" {
			t.Errorf("%s was cancelled", id)
		}
	case <-ctx.Done():
		t.Error("the device was not told")
	}
}

// handBus is a bus that sends a call when the test says so.
type handBus struct {
	registry.Bus
	posted chan *handed
}

func (b handBus) SendAsync(
	ctx context.Context, pod string, e registry.Envelope, s registry.SendCallback,
) (registry.PendingSend, error) {
	h := &handed{SendCallback: s, send: func() error { return b.Send(ctx, pod, e) }}
	b.posted <- h
	return h, nil
}

// handed is a call that was handed to such a bus.
type handed struct {
	registry.SendCallback
	send      func() error
	gone      atomic.Bool // it cannot be withdrawn
	withdrawn atomic.Bool
}

func (h *handed) Cancel() bool {
	h.withdrawn.Store(!h.gone.Load())
	return h.withdrawn.Load()
}

// How the sending stands when it matters decides what a caller hears: nothing, if the call has left.
func TestCallersHearHowTheirCallLeft(t *testing.T) {
	const long = time.Minute
	refused := registry.StoreUnavailable("send", errors.New("refused")).With(registry.DispatchedNo)
	for name, tt := range map[string]struct {
		timeout    time.Duration
		meanwhile  func(ctx context.Context, h *handed, asking *Pod, l *LocalSession)
		after      time.Duration
		code       registry.Code // empty for an answer
		dispatched registry.Dispatched
		withdrawn  bool
		timeline   []registry.State
	}{
		"it never leaves": {
			timeout: long, after: DefaultSendTimeout, code: registry.CodeStoreUnavailable, dispatched: registry.DispatchedNo,
			withdrawn: true,
			timeline:  []registry.State{registry.StateAccepted, registry.StateRejected},
		},
		"it is leaving for ever": {
			timeout:   long,
			meanwhile: func(_ context.Context, h *handed, _ *Pod, _ *LocalSession) { h.gone.Store(true) },
			after:     DefaultSendTimeout, code: registry.CodeStoreUnavailable, dispatched: registry.DispatchedUnknown,
			timeline: []registry.State{registry.StateAccepted, registry.StateLost},
		},
		"sending fails": {
			timeout: long, meanwhile: func(_ context.Context, h *handed, _ *Pod, _ *LocalSession) {
				time.Sleep(100 * time.Millisecond)
				h.Sent(refused)
			},
			after: 100 * time.Millisecond, code: registry.CodeStoreUnavailable, dispatched: registry.DispatchedNo,
			timeline: []registry.State{registry.StateAccepted, registry.StateRejected},
		},
		"it is cancelled before it leaves": {
			timeout: long, meanwhile: func(_ context.Context, h *handed, asking *Pod, _ *LocalSession) {
				time.Sleep(100 * time.Millisecond)
				asking.Router.pending.cancel("t", "c1")
			},
			after: 100 * time.Millisecond, code: registry.CodeCancelled, dispatched: registry.DispatchedNo,
			withdrawn: true,
			timeline:  []registry.State{registry.StateAccepted, registry.StateCancelled},
		},
		"it leaves and nobody answers": {
			timeout: long, meanwhile: func(_ context.Context, h *handed, _ *Pod, _ *LocalSession) {
				time.Sleep(500 * time.Millisecond)
				h.Sent(nil) // and it was lost
			},
			after: 500*time.Millisecond + lostAfter(DefaultSendTimeout), code: registry.CodeLost,
			dispatched: registry.DispatchedUnknown,
			timeline:   []registry.State{registry.StateAccepted, registry.StateRouted, registry.StateLost},
		},
		"it leaves and is answered late": {
			timeout: long, meanwhile: func(_ context.Context, h *handed, _ *Pod, l *LocalSession) {
				h.Sent(h.send())
				time.Sleep(10 * time.Second)
				l.Complete("c1", registry.Result{Success: true, Output: "done"}, func(bool) {})
			},
			after: 10 * time.Second,
			timeline: []registry.State{registry.StateAccepted, registry.StateRouted, registry.StateDelivered,
				registry.StateSucceeded},
		},
		"it is answered before it is known to have left": {
			timeout: long, meanwhile: func(_ context.Context, h *handed, _ *Pod, l *LocalSession) {
				_ = h.send()
				synctest.Wait()
				l.Complete("c1", registry.Result{Success: true, Output: "done"}, func(bool) {})
			},
			timeline: []registry.State{registry.StateAccepted, registry.StateRouted, registry.StateSucceeded},
		},
		"its time is over": {
			timeout:   DefaultSendTimeout / 2,
			meanwhile: func(_ context.Context, h *handed, _ *Pod, _ *LocalSession) { h.Sent(h.send()) },
			after:     DefaultSendTimeout / 2, code: registry.CodeTimeout, dispatched: registry.DispatchedYes,
			timeline: []registry.State{registry.StateAccepted, registry.StateRouted, registry.StateDelivered,
				registry.StateTimedOut},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, posted := memory.New(memory.Options{}), make(chan *handed, 1)
				asking := startPod(t, store, "a", func(c *PodConfig) { c.Bus = handBus{c.Bus, posted} })
				l := connect(t, startPod(t, store, "b"), deafConn{}, nil)
				start := time.Now()
				var rec *registry.Record
				ended := begin(t, asking, l.Session(), "c1", tt.timeout, func(c *registry.Call) { rec = c.Record })
				h := <-posted
				if tt.meanwhile != nil {
					tt.meanwhile(t.Context(), h, asking, l)
				}
				got := <-ended
				if took := time.Since(start); took != tt.after {
					t.Errorf("after %v, want %v", took, tt.after)
				}
				if tt.code != "" && (!errors.Is(got.err, tt.code) ||
					registry.AsError(got.err).Dispatched != tt.dispatched) ||
					tt.code == "" && got.res.Output != "done" {
					t.Errorf("%+v", got)
				}
				if h.withdrawn.Load() != tt.withdrawn {
					t.Errorf("taken back: %v", h.withdrawn.Load())
				}
				var steps []registry.State
				for _, s := range rec.Timeline {
					steps = append(steps, s.State)
				}
				if !slices.Equal(steps, tt.timeline) {
					t.Errorf("recorded %v", steps)
				}
			})
		})
	}
}

// answeredBus answers a call in the very moment in which its caller takes it back.
type answeredBus struct {
	registry.Bus
	asking func() *Pod
}

func (b answeredBus) SendAsync(
	_ context.Context, _ string, e registry.Envelope, _ registry.SendCallback,
) (registry.PendingSend, error) {
	return answeredPost{b, e}, nil
}

type answeredPost struct {
	bus answeredBus
	e   registry.Envelope
}

func (p answeredPost) Cancel() bool {
	p.bus.asking().Router.handleReply(registry.Reply{
		V: registry.EnvelopeVersion, CallID: p.e.CallID, Tenant: p.e.Tenant, Session: p.e.Session,
		Result: &registry.Result{Success: true, Output: "done"},
	})
	return false // it had left
}

func TestAnswerThatComesAsTheSendingIsGivenUpCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(memory.Options{})
		var asking *Pod
		asking = startPod(t, store, "a",
			func(c *PodConfig) { c.Bus = answeredBus{c.Bus, func() *Pod { return asking }} })
		l := connect(t, startPod(t, store, "b"), deafConn{}, nil)
		if got := <-begin(t, asking, l.Session(), "c1", time.Minute); got.err != nil || got.res.Output != "done" {
			t.Errorf("%+v", got)
		}
	})
}

func TestCallQueuedForADeadPodIsTakenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, posted := memory.New(memory.Options{}), make(chan *handed, 1)
		asking := startPod(t, store, "a", func(c *PodConfig) { c.Bus = handBus{c.Bus, posted} })
		l := connect(t, startPod(t, store, "b"), deafConn{}, nil)
		ended := begin(t, asking, l.Session(), "c1", time.Minute)
		h := <-posted
		time.Sleep(100 * time.Millisecond)
		asking.Router.failDeadPods([]string{"a"}, time.Now())
		if got := <-ended; !h.withdrawn.Load() || !errors.Is(got.err, registry.CodeNotConnected) ||
			registry.AsError(got.err).Dispatched != registry.DispatchedNo {
			t.Errorf("taken back: %v; %+v", h.withdrawn.Load(), got)
		}
	})
}

// A call that is just being sent when its pod leaves is not lost if the bus says that nobody has got it, and is if not.
func TestCallOnItsWayToAPodThatLeaves(t *testing.T) {
	for reported, want := range map[error]registry.Dispatched{
		registry.ErrNoReceiver: registry.DispatchedNo, nil: registry.DispatchedUnknown,
	} {
		synctest.Test(t, func(t *testing.T) {
			store, posted := memory.New(memory.Options{}), make(chan *handed, 1)
			asking := startPod(t, store, "a", func(c *PodConfig) { c.Bus = handBus{c.Bus, posted} })
			l := connect(t, startPod(t, store, "b"), deafConn{}, nil)
			ended := begin(t, asking, l.Session(), "c1", time.Minute)
			h := <-posted
			h.gone.Store(true)
			asking.Router.failDeadPods([]string{"a"}, time.Now().Add(time.Millisecond))
			synctest.Wait()
			h.Sent(reported)
			if got := <-ended; registry.AsError(got.err).Dispatched != want {
				t.Errorf("reported %v: %v, dispatched %s", reported, got.err, registry.AsError(got.err).Dispatched)
			}
		})
	}
}

func TestCancelledCallThatReachedNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, posted := memory.New(memory.Options{}), make(chan *handed, 1)
		asking := startPod(t, store, "a", func(c *PodConfig) { c.Bus = handBus{c.Bus, posted} })
		l := connect(t, startPod(t, store, "b"), deafConn{}, nil)
		start := time.Now()
		ended := begin(t, asking, l.Session(), "c1", time.Minute)
		h := <-posted
		h.gone.Store(true) // it is leaving
		asking.Router.pending.cancel("t", "c1")
		time.Sleep(10 * time.Millisecond)
		h.Sent(registry.ErrNoReceiver)
		got := <-ended
		if took := time.Since(start); took != 10*time.Millisecond || !errors.Is(got.err, registry.CodeCancelled) ||
			registry.AsError(got.err).Dispatched != registry.DispatchedNo {
			t.Errorf("after %v: %+v", took, got)
		}
	})
}

// However a call is found not to have reached its pod, one that was cancelled is not sent to the next.
func TestCancelledCallIsNotSentElsewhere(t *testing.T) {
	for name, learn := range map[string]func(w *pendingCall, asking *Pod, h *handed){
		"the pod does not own the session": func(_ *pendingCall, asking *Pod, _ *handed) {
			asking.Router.pending.cancel("t", "c1")
			synctest.Wait()
			asking.Router.handleReply(registry.Reply{V: registry.EnvelopeVersion, CallID: "c1",
				Err: registry.ErrNotOwner.With(registry.DispatchedNo)})
		},
		"nobody is there": func(_ *pendingCall, asking *Pod, h *handed) {
			asking.Router.pending.cancel("t", "c1")
			synctest.Wait()
			h.Sent(registry.ErrNoReceiver)
		},
		"both at once": func(w *pendingCall, _ *Pod, _ *handed) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.now.cancelled, w.now.sentAt, w.now.sendErr = true, time.Now(), registry.ErrNoReceiver
			w.notifyLocked()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, posted := memory.New(memory.Options{}), make(chan *handed, 2)
				asking := startPod(t, store, "a", func(c *PodConfig) { c.Bus = handBus{c.Bus, posted} })
				old := connect(t, startPod(t, store, "b"), deafConn{}, nil).Session()
				ended := begin(t, asking, old, "c1", time.Second)
				h := <-posted
				h.gone.Store(true)
				connect(t, startPod(t, store, "c"), deafConn{}, nil) // the device has moved
				synctest.Wait()
				learn(asking.Router.pending.get("c1"), asking, h)
				got := <-ended
				if len(posted) != 0 || !errors.Is(got.err, registry.CodeCancelled) ||
					registry.AsError(got.err).Dispatched != registry.DispatchedNo {
					t.Errorf("sent again: %d; %+v", len(posted), got)
				}
			})
		})
	}
}

// That a call certainly did not leave says more than that its pod was found dead.
func TestDeadPodThatReceivedNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, posted := memory.New(memory.Options{}), make(chan *handed, 1)
		asking := startPod(t, store, "a", func(c *PodConfig) { c.Bus = handBus{c.Bus, posted} })
		l := connect(t, startPod(t, store, "b"), deafConn{}, nil)
		ended := begin(t, asking, l.Session(), "c1", time.Minute)
		h := <-posted
		h.gone.Store(true)
		w := asking.Router.pending.get("c1")
		w.mu.Lock()
		w.now.sentAt, w.now.sendErr = time.Now(), registry.ErrNoReceiver
		w.now.answer = &registry.Reply{CallID: "c1", Err: registry.Lost()}
		w.notifyLocked()
		w.mu.Unlock()
		for range 2 { // the router asks once more where the session is
			select {
			case got := <-ended:
				if registry.AsError(got.err).Dispatched != registry.DispatchedNo {
					t.Errorf("%+v", got)
				}
				return
			case h = <-posted:
				h.Sent(registry.ErrNoReceiver)
			}
		}
		t.Error("the call has not ended")
	})
}
