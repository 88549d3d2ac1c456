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
		"time is over": func(t *testing.T, w *wait) (registry.Result, error) { return w.run(t.Context(), nil) },
		"the other pod seems lost": func(t *testing.T, w *wait) (registry.Result, error) {
			w.deadline = time.Now().Add(time.Minute)
			return w.run(t.Context(), nil)
		},
		"the caller has gone": func(t *testing.T, w *wait) (registry.Result, error) {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			w.deadline = time.Now().Add(time.Minute)
			return w.run(ctx, func(string) { t.Error("the device is told to stop") })
		},
		"the call was cancelled": func(_ *testing.T, w *wait) (registry.Result, error) { return w.afterCancel() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ws := newPendingCalls()
				rec := registry.NewRecord("c1", "t", "tool", nil)
				w := ws.add(&registry.Call{ID: "c1", Record: &rec}, "b")
				if !ws.deliver(registry.Reply{CallID: "c1", Result: &registry.Result{Success: true, Output: "done"}}) {
					t.Fatal("nobody was waiting")
				}
				<-w.ready // so what wakes it is the end
				a := wait{phase: phaseSent, record: &rec, timeout: time.Second, call: w, since: w.since, deadline: time.Now()}
				if res, err := end(t, &a); err != nil || res.Output != "done" {
					t.Errorf("%+v, %v", res, err)
				}
			})
		})
	}
}

// Of an answer that comes too late to be heard its sender is told so, and nothing is lost between.
func TestNobodyHearsWhatComesAfterTheEnd(t *testing.T) {
	ws := newPendingCalls()
	answer := registry.Reply{CallID: "c1", Result: &registry.Result{Success: true}}
	for name, end := range map[string]func(*pendingCall){
		"left":     func(w *pendingCall) { w.close() },
		"removed":  func(w *pendingCall) { ws.remove(w) },
		"answered": func(w *pendingCall) { w.deliver(registry.Reply{CallID: "c1", Err: registry.Lost()}) },
	} {
		w := ws.add(&registry.Call{ID: "c1", Record: &registry.Record{}}, "b")
		end(w) // after it was found in the table, before it is handed the answer
		if w.deliver(answer) {
			t.Errorf("%s: the answer is said to be heard", name)
		}
	}
}

// What a caller waited with may be another's by the time somebody who found it before wakes it.
func TestABellIsSilentOnceItsCallerHasLeft(t *testing.T) {
	ws := newPendingCalls()
	w := ws.add(&registry.Call{ID: "c1", Record: &registry.Record{}}, "b")
	w.cancel()
	w.timer.Reset(0)
	ws.remove(w)
	w.cancel()
	w.Sent(registry.Lost())
	w.deliver(registry.Reply{CallID: "c1", Err: registry.Lost()})
	w.deliver(registry.Reply{CallID: "c1", Delivered: true})
	select {
	case <-w.ready:
		t.Error("the next caller would be woken")
	case <-w.timer.C:
		t.Error("the next caller's time would be over")
	default:
	}
	if n := ws.len(); n != 0 {
		t.Errorf("%d callers wait", n)
	}
}

// Who leaves takes nobody along that waits under the same id.
func TestLeavingTakesNobodyAlong(t *testing.T) {
	ws := newPendingCalls()
	first, second := ws.add(&registry.Call{ID: "c1"}, "b"), ws.add(&registry.Call{ID: "c1"}, "b")
	ws.remove(first)
	if !ws.deliver(registry.Reply{CallID: "c1", Result: &registry.Result{}}) {
		t.Error("nobody waits any more")
	}
	ws.remove(second)
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
				told := make(chan bool, 1)
				l.Complete("c1", registry.Result{Success: true, Output: "done"}, func(ignored bool) { told <- ignored })
				if got := <-ended; !errors.Is(got.err, registry.CodeTimeout) {
					t.Errorf("%+v", got)
				}
				if <-told {
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

// Answers to calls that nobody knows leave room for everything else the pod has to do.
func TestUnknownAnswersDoNotFillThePod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod := startPod(t, memory.New(memory.Options{}), "a")
		l := connect(t, pod, deafConn{}, nil)
		acknowledged := make(chan bool, 2*maxTasks)
		for range cap(acknowledged) {
			l.Complete(registry.NewCallID(), registry.Result{Success: true}, func(ignored bool) { acknowledged <- ignored })
			synctest.Wait()
		}
		if n := len(pod.tasks.slots); n != 0 {
			t.Errorf("%d slots are taken", n)
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
		if err != nil || got.State != registry.StateCancelled || got.Owner != "" || got.Tool != "tool" || got.SessionID != "s" ||
			got.UserID != "u" || got.TimeoutMS != 60_000 || got.Pod != "a" || len(got.Timeline) != 2 {
			t.Errorf("%+v, %v", got, err)
		}
		synctest.Wait()
	})
}
