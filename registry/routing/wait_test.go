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

// An answer that is there when the waiting ends is the answer, whichever the caller was woken by.
func TestAnAnswerThatIsThereCounts(t *testing.T) {
	for name, end := range map[string]func(*testing.T, *wait) (registry.Result, error){
		"time is over": func(t *testing.T, w *wait) (registry.Result, error) { return w.forAnswer(t.Context(), nil) },
		"the other pod seems lost": func(t *testing.T, w *wait) (registry.Result, error) {
			w.deadline = time.Now().Add(time.Minute)
			return w.forAnswer(t.Context(), nil)
		},
		"the caller has gone": func(t *testing.T, w *wait) (registry.Result, error) {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			w.deadline = time.Now().Add(time.Minute)
			return w.forAnswer(ctx, func(string) { t.Error("the device is told to stop") })
		},
		"the call was cancelled": func(_ *testing.T, w *wait) (registry.Result, error) { return w.afterCancel() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				table := newPendingCalls()
				rec := registry.NewRecord("c1", "t", "tool", nil)
				p := table.add(&registry.Call{ID: "c1", Record: &rec}, "b")
				done := registry.Result{Success: true, Output: "done"}
				if !table.deliver(registry.Reply{CallID: "c1", Result: &done}) {
					t.Fatal("nobody was waiting")
				}
				<-p.ready // so what wakes it is the end
				w := wait{router: &Router{timeout: DefaultSendTimeout}, phase: phaseSent, record: &rec,
					timeout: time.Second, pending: p, since: p.since, deadline: time.Now()}
				if res, err := end(t, &w); err != nil || res.Output != "done" {
					t.Errorf("%+v, %v", res, err)
				}
			})
		})
	}
}

// The sender of an answer that comes too late learns that, and no answer is lost in between.
func TestAnAnswerAfterTheEndIsNotAccepted(t *testing.T) {
	table := newPendingCalls()
	answer := registry.Reply{CallID: "c1", Result: &registry.Result{Success: true}}
	for name, end := range map[string]func(*pendingCall){
		"closed":   func(p *pendingCall) { p.close() },
		"removed":  func(p *pendingCall) { table.remove(p) },
		"answered": func(p *pendingCall) { p.deliver(registry.Reply{CallID: "c1", Err: registry.Lost()}) },
	} {
		p := table.add(&registry.Call{ID: "c1", Record: &registry.Record{}}, "b")
		end(p) // after it was found in the table, before it is handed the answer
		if p.deliver(answer) {
			t.Errorf("%s: the answer is said to be accepted", name)
		}
	}
}

// A notifier may belong to another call by the time a goroutine that found the closed call notifies it.
func TestANotifierIsSilentOnceItsCallIsClosed(t *testing.T) {
	table := newPendingCalls()
	p := table.add(&registry.Call{ID: "c1", Record: &registry.Record{}}, "b")
	p.cancel()
	p.timer.Reset(0)
	table.remove(p)
	p.cancel()
	p.Sent(registry.Lost())
	p.deliver(registry.Reply{CallID: "c1", Err: registry.Lost()})
	p.deliver(registry.Reply{CallID: "c1", Delivered: true})
	select {
	case <-p.ready:
		t.Error("the next caller would be woken")
	case <-p.timer.C:
		t.Error("the next caller's time would be over")
	default:
	}
	if n := table.len(); n != 0 {
		t.Errorf("%d callers wait", n)
	}
}

// A pending call that is removed leaves another one with the same id in the table.
func TestRemovingLeavesAnotherCallOfThatID(t *testing.T) {
	table := newPendingCalls()
	first, second := table.add(&registry.Call{ID: "c1"}, "b"), table.add(&registry.Call{ID: "c1"}, "b")
	table.remove(first)
	if !table.deliver(registry.Reply{CallID: "c1", Result: &registry.Result{}}) {
		t.Error("nobody waits any more")
	}
	table.remove(second)
}

// An answer that crosses the end of the waiting goes into the record, although that is still on its way to the store.
func TestCrossingAnswerIsKept(t *testing.T) {
	for name, owner := range map[string]string{"local": "a", "remote": "b"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memory.New(memory.Options{})
				pods := map[string]*Pod{"a": startPod(t, store, "a"), "b": startPod(t, store, "b")}
				l := connect(t, pods[owner], deafConn{}, nil)
				const timeout = receiptAfter / 2 // so there is no record before the end
				ended := begin(t, pods["a"], l.Session(), "c1", timeout)
				time.Sleep(timeout - time.Millisecond)
				pods["a"].Router.pending.get("c1").close() // as it does when time is over
				acknowledged := make(chan bool, 1)
				l.Complete("c1", registry.Result{Success: true, Output: "done"},
					func(ignored bool) { acknowledged <- ignored })
				if got := <-ended; !errors.Is(got.err, registry.CodeTimeout) {
					t.Errorf("%+v", got)
				}
				if <-acknowledged {
					t.Error("the device was told that its answer does not count")
				}
				time.Sleep(time.Second)
				rec, err := store.ReadCall(t.Context(), "t", "c1")
				if err != nil || rec.State != registry.StateSucceeded || !rec.Late || rec.Result.Output != "done" {
					t.Errorf("%+v, %v", rec, err)
				}
			})
		})
	}
}

// Answers to calls that nobody knows do not keep the pod from anything else it has to do.
func TestUnknownAnswersDoNotFillThePod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod := startPod(t, memory.New(memory.Options{}), "a")
		l := connect(t, pod, deafConn{}, nil)
		acknowledged := make(chan bool, 2*maxTasks)
		for range cap(acknowledged) {
			l.Complete(registry.NewCallID(), registry.Result{Success: true},
				func(ignored bool) { acknowledged <- ignored })
			synctest.Wait()
		}
		if n := pod.tasks.slots.Stats().Held; n != 0 {
			t.Errorf("%d places are taken", n)
		}
		time.Sleep(time.Second)
		if len(acknowledged) != cap(acknowledged) {
			t.Errorf("%d of %d acknowledged", len(acknowledged), cap(acknowledged))
		}
	})
}

// A request that cancels a call reads of its record only what its caller does not write meanwhile.
func TestCancelledReadsWhatNeverChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod := startPod(t, memory.New(memory.Options{}), "a")
		rec := registry.NewRecord("c1", "t", "tool", nil)
		rec.SessionID, rec.UserID, rec.TimeoutMS = "s", "u", 60_000
		w := pod.Router.pending.add(&registry.Call{ID: "c1", Record: &rec}, "b")
		defer pod.Router.pending.remove(w)
		go func() { // the caller; nothing orders it and what follows
			time.Sleep(cancelWait + watchPause)
			rec.Apply(registry.EventDeliver, registry.Change{Owner: "b"}, time.Now())
		}()
		got, err := pod.Calls.awaitCancelled(t.Context(), w, nil)
		if err != nil || got.State != registry.StateCancelled || got.Owner != "" || got.Tool != "tool" ||
			got.SessionID != "s" ||
			got.UserID != "u" || got.TimeoutMS != 60_000 || got.Pod != "a" || len(got.Timeline) != 2 {
			t.Errorf("%+v, %v", got, err)
		}
		synctest.Wait()
	})
}
