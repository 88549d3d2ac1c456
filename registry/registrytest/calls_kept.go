package registrytest

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/farhand/farhand/registry"
)

// briefly is the life of data that must exist at first and expire during a test. It is long because a machine may
// stall.
const briefly = 2 * time.Second

var keptTests = []subtest{
	{name: "what is kept can be read", run: func(f *fixture) {
		at := time.Now().UTC().Truncate(time.Microsecond)
		r := f.record("c1")
		r.State, r.Dispatched, r.Owner, r.DeviceID = registry.StateTimedOut, registry.DispatchedYes, "owner", "d1"
		r.Timeline = []registry.Step{
			{State: registry.StateAccepted, At: at}, {State: registry.StateTimedOut, At: at.Add(time.Second)},
		}
		r.Err = registry.Errorf(registry.CodeTimeout, "too <late>").With(registry.DispatchedYes)
		r.Err.RetryAfter, r.Err.Violations = time.Second, []registry.Violation{{Pointer: "/a", Message: "b"}}
		done := r
		done.CallID, done.State, done.Timeline = "c2", registry.StateSucceeded, nil
		done.Err, done.Result = nil, output("x")
		f.keep(r, done)
		for _, want := range []registry.Record{r, done} {
			if got := f.read(want.CallID); !reflect.DeepEqual(got, want) {
				f.Errorf("read %+v\nwant %+v", got, want)
			}
		}
	}},
	{name: "keeping never replaces an answer", run: func(f *fixture) {
		r := f.record("c1")
		r.State, r.Dispatched, r.SessionID = registry.StateRunning, registry.DispatchedYes, ""
		f.keep(r)
		r.State, r.SessionID = registry.StateTimedOut, "s1"
		r.Err = registry.Errorf(registry.CodeTimeout, "late").With(registry.DispatchedYes)
		f.keep(r) // newer, and no answer
		if got := f.read("c1"); got.State != registry.StateTimedOut || got.Err == nil {
			f.Fatalf("record %+v", got)
		}
		answered := f.step("c1", registry.EventSucceed).Record
		if !answered.Late {
			f.Errorf("answer %+v", answered)
		}
		r.Owner = "owner"
		f.keep(r)
		answered.Owner = "owner" // was missing
		if got := f.read("c1"); !reflect.DeepEqual(got, answered) {
			f.Errorf("got  %+v\nwant %+v", got, answered)
		}
	}},
	{name: "watchers outlive the keeping", run: func(f *fixture) {
		r := f.record("c1")
		r.State = registry.StateRunning
		f.keep(r)
		f.watch("c1", "a")
		f.keep(r)
		if m := f.move("c1", registry.EventLose, registry.Change{}); !slices.Equal(m.Watchers, []string{"a"}) {
			f.Errorf("woken %v", m.Watchers)
		}
	}},
	{name: "records expire after their deadlines", limits: registry.Limits{Retention: briefly}, run: func(f *fixture) {
		f.create(f.record("unfinished"))
		f.create(f.record("c1"))
		f.note("c1", 3)
		f.note("unfinished", 3)
		f.move("c1", registry.EventCancel, registry.Change{})
		f.eventually("the record is gone", func() bool {
			return registry.IsCallNotFound(errOf(f.store.ReadCall(f.ctx, f.tenant, "c1")))
		})
		succeed := registry.EventSucceed
		f.wantNoCall(errOf(f.store.MoveCall(f.ctx, f.tenant, "c1", succeed, f.change(succeed))))
		f.wantNoCall(errOf(f.store.WatchCall(f.ctx, f.tenant, "c1", "a")))
		f.eventually("its events are gone", func() bool { return len(f.events("c1", "")) == 0 })
		if r := f.read("unfinished"); r.State != registry.StateAccepted || len(f.events("unfinished", "")) != 4 {
			f.Errorf("record %+v", r)
		}
	}},
	{name: "events are in order, and capped", run: func(f *fixture) {
		f.create(f.record("c1"))
		f.note("c1", 3)
		f.note("c2", 1)
		all := f.events("c1", "")[1:] // after its first event
		progress := 1.0
		want := registry.CallEvent{
			ID: all[1].ID, Tenant: f.tenant, CallID: "c1", Type: registry.CallEventProgress, Progress: &progress,
			Message: "<1>", Chunk: "\x00é", At: time.UnixMilli(1).UTC(),
		}
		if len(all) != 3 || !reflect.DeepEqual(all[1], want) {
			f.Fatalf("events %+v", all)
		}
		if rest := f.events("c1", all[0].ID); len(rest) != 2 || rest[0].ID != all[1].ID {
			f.Errorf("behind the first: %+v", rest)
		}
		if rest := f.events("c1", all[2].ID); len(rest) != 0 {
			f.Errorf("behind the last: %+v", rest)
		}
		if other, err := f.store.CallEvents(f.ctx, f.tenant+"x", "c1", "", 10); err != nil || len(other) != 0 {
			f.Errorf("of another tenant: %+v, %v", other, err)
		}
		for _, id := range []string{"x", "1", "-1", "1-", "+", "(1-1", "1-1 ", "99999999999999999999-0", "$"} {
			f.wantCode(errOf(f.store.CallEvents(f.ctx, f.tenant, "c1", id, 10)), registry.CodeInvalidRequest)
		}
		f.note("c1", 4500)
		all = f.events("c1", "")
		if n := len(all); n < 2048 || n > 2500 || *all[n-1].Progress != 4499 {
			f.Errorf("%d events of a log of about 2048", n)
		}
	}},
}

var keyTests = []subtest{
	{name: "of racing calls with one key one is created", run: func(f *fixture) {
		var mu sync.Mutex
		ids, created := make(map[string]int), 0
		together(racers, func(i int) {
			r, mine, err := f.store.CreateCall(f.ctx, f.keyed(fmt.Sprintf("c%d", i), "k"))
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				f.Errorf("racer %d: %v", i, err)
			}
			ids[r.CallID]++
			if mine {
				created++
			}
		})
		if len(ids) != 1 || created != 1 {
			f.Fatalf("%d created, records %v", created, ids)
		}
		for i := range racers { // calls that lost have no record
			id := fmt.Sprintf("c%d", i)
			if _, err := f.store.ReadCall(f.ctx, f.tenant, id); (err == nil) != (ids[id] > 0) {
				f.Errorf("%s: %v", id, err)
			}
		}
	}},
	{name: "a key leads to its call as it is now, in its tenant", run: func(f *fixture) {
		f.create(f.keyed("c1", "k"))
		want := f.step("c1", registry.EventSucceed).Record
		if got := f.known(f.keyed("c2", "k")); !reflect.DeepEqual(got, want) || got.RequestDigest != "digest" {
			f.Errorf("%+v", got)
		}
		if got, err := f.store.CallByKey(f.ctx, f.tenant, "k"); err != nil || !reflect.DeepEqual(got, want) {
			f.Errorf("by key: %+v, %v", got, err)
		}
		f.wantNoCall(errOf(f.store.CallByKey(f.ctx, f.tenant+"x", "k")))
		other := f.keyed("c3", "k")
		other.Tenant += "x"
		f.create(other)
		f.create(f.keyed("c4", "k2"))
	}},
	{name: "a repeated creation changes nothing", run: func(f *fixture) {
		f.create(f.keyed("c1", "k"))
		f.move("c1", registry.EventDeliver, registry.Change{})
		if got := f.known(f.keyed("c1", "k")); got.State != registry.StateDelivered {
			f.Errorf("%+v", got)
		}
	}},
	{name: "a key whose call never ran is free", run: func(f *fixture) {
		f.create(f.keyed("c1", "k"))
		f.move("c1", registry.EventReject, registry.Change{Err: registry.Errorf(registry.CodeNotConnected, "gone")})
		f.wantNoCall(errOf(f.store.CallByKey(f.ctx, f.tenant, "k")))
		f.create(f.keyed("c2", "k"))
	}},
	{name: "a key is freed only by its call", run: func(f *fixture) {
		f.create(f.keyed("c1", "k"))
		f.freeKey(f.tenant, "c2")
		f.freeKey(f.tenant+"x", "c1")
		f.wantHolder("c1")
		f.freeKey(f.tenant, "c1")
		f.wantNoCall(errOf(f.store.CallByKey(f.ctx, f.tenant, "k")))
		f.create(f.keyed("c2", "k"))
		f.freeKey(f.tenant, "c1") // late
		f.wantHolder("c2")
	}},
	{name: "a key without a record can be taken", limits: registry.Limits{Retention: briefly}, run: func(f *fixture) {
		f.create(f.keyed("c1", "k"))
		f.move("c1", registry.EventDeliver, registry.Change{})
		f.move("c1", registry.EventCancel, registry.Change{})
		if r := f.known(f.keyed("c2", "k")); r.CallID != "c1" {
			f.Fatalf("%+v", r)
		}
		f.eventually("the record is gone", func() bool {
			return registry.IsCallNotFound(errOf(f.store.CallByKey(f.ctx, f.tenant, "k")))
		})
		var wg sync.WaitGroup
		created := make(chan string, racers)
		for i := range racers {
			wg.Go(func() {
				if _, mine, err := f.store.CreateCall(f.ctx, f.keyed(fmt.Sprintf("n%d", i), "k")); err != nil {
					f.Errorf("racer %d: %v", i, err)
				} else if mine {
					created <- fmt.Sprintf("n%d", i)
				}
			})
		}
		wg.Wait()
		got, err := f.store.CallByKey(f.ctx, f.tenant, "k")
		if err != nil || len(created) != 1 || got.CallID != <-created {
			f.Errorf("%d took it over; it belongs to %s, %v", len(created), got.CallID, err)
		}
	}},
	{name: "a key is free after its time", limits: registry.Limits{IdempotencyTTL: briefly}, run: func(f *fixture) {
		f.create(f.keyed("c1", "k"))
		f.eventually("the key is free", func() bool {
			return registry.IsCallNotFound(errOf(f.store.CallByKey(f.ctx, f.tenant, "k")))
		})
		f.create(f.keyed("c2", "k"))
		f.read("c1")
	}},
	{name: "a creation that was called off leaves no call behind", run: func(f *fixture) {
		ctx, cancel := context.WithCancel(f.ctx)
		cancel()
		if _, created, err := f.store.CreateCall(ctx, f.keyed("c1", "k")); err == nil && created {
			f.read("c1") // a store that ignores the context may have stored it
			return
		}
		f.create(f.keyed("c2", "k"))
	}},
}

var heldTests = []subtest{
	{name: "the time of a waiting call starts when it begins, once", run: func(f *fixture) {
		r := f.held(time.Hour)
		if wait := r.Deadline.Sub(r.Timeline[0].At); wait < time.Hour || wait > time.Hour+2*time.Minute {
			f.Errorf("the deadline is after %v", wait)
		}
		var begun atomic.Int32
		together(8, func(int) {
			_, ok, err := f.store.BeginCall(f.ctx, f.tenant, r.CallID, "pod-b", time.Minute)
			if err != nil {
				f.Error(err)
			}
			if ok {
				begun.Add(1)
			}
		})
		got, err := f.store.ReadCall(f.ctx, f.tenant, r.CallID)
		f.must(err)
		if wait := got.Deadline.Sub(r.Timeline[0].At); begun.Load() != 1 || got.Pod != "pod-b" ||
			wait > 2*time.Minute || got.State != registry.StateAccepted || got.Approval != r.Approval {
			f.Errorf("begun %d times: %+v", begun.Load(), got)
		}
	}},
	{name: "what was cancelled, never held or never there does not begin", run: func(f *fixture) {
		r := f.held(time.Hour)
		f.must(errOf(f.store.MoveCall(f.ctx, f.tenant, r.CallID, registry.EventCancel, registry.Change{})))
		ordinary := f.held(0)
		for _, id := range []string{r.CallID, ordinary.CallID} {
			got, begun, err := f.store.BeginCall(f.ctx, f.tenant, id, "pod-b", time.Minute)
			f.must(err)
			if begun || got.CallID != id || got.Pod == "pod-b" {
				f.Errorf("begun %v: %+v", begun, got)
			}
		}
		_, _, err := f.store.BeginCall(f.ctx, f.tenant, registry.NewCallID(), "pod-b", time.Minute)
		f.wantNoCall(err)
	}},
}

// held creates a call that waits up to hold for an approval.
func (f *fixture) held(hold time.Duration) registry.Record {
	f.Helper()
	r := registry.NewRecord(registry.NewCallID(), f.tenant, "camera", nil)
	r.TimeoutMS, r.HoldMS, r.Approval, r.Pod = 60_000, hold.Milliseconds(), registry.NewApprovalID(), "pod-a"
	stored, created, err := f.store.CreateCall(f.ctx, r)
	f.must(err)
	if !created {
		f.Fatal("not created")
	}
	return stored
}
