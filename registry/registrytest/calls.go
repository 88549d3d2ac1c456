package registrytest

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/farhand/farhand/registry"
)

// racers is how many goroutines compete in a race.
const racers = 16

var callTests = slices.Concat(lifeTests, keptTests, keyTests, logTests, agreementTests)

var lifeTests = []subtest{
	{name: "a call lives from accepted to succeeded", run: func(f *fixture) {
		r := f.record("c1")
		r.SessionID, r.State, r.Late = "", registry.StateLost, true // the store resets these fields
		c := f.create(r)
		if c.State != registry.StateAccepted || states(c) != "accepted" || c.Late ||
			c.Dispatched != registry.DispatchedNo {
			f.Fatalf("created %+v", c)
		}
		if want := c.Timeline[0].At.Add(time.Minute).Truncate(time.Millisecond); !c.Deadline.Equal(want) {
			f.Errorf("deadline %v, want %v", c.Deadline, want)
		}
		f.move("c1", registry.EventRoute, registry.Change{Session: f.key("s1"), DeviceID: "d1"})
		f.move("c1", registry.EventDeliver, registry.Change{Owner: "owner"})
		f.move("c1", registry.EventRun, registry.Change{})
		m := f.move("c1", registry.EventSucceed, registry.Change{Session: f.key("s1"), Result: output("done")})
		got := f.read("c1")
		if !reflect.DeepEqual(got, m.Record) {
			f.Errorf("read  %+v\nmoved %+v", got, m.Record)
		}
		if path := states(got); path != "accepted routed delivered running succeeded" {
			f.Errorf("timeline %s", path)
		}
		if got.SessionID != "s1" || got.DeviceID != "d1" || got.Owner != "owner" || got.Pod != "asked" ||
			got.Tool != "camera" || got.UserID != "u1" || got.Dispatched != registry.DispatchedYes || got.Late ||
			!got.Deadline.Equal(c.Deadline) || got.TimeoutMS != time.Minute.Milliseconds() {
			f.Errorf("record %+v", got)
		}
		if !reflect.DeepEqual(got.Result, output("done")) {
			f.Errorf("result %+v", got.Result)
		}
		if !slices.IsSortedFunc(got.Timeline, func(a, b registry.Step) int { return a.At.Compare(b.At) }) {
			f.Errorf("times %v", got.Timeline)
		}
	}},
	{name: "every event in every state does what the state machine says", run: func(f *fixture) {
		paths := eventPaths()
		for _, s := range registry.States() {
			for _, e := range registry.Events() {
				id := string(s) + "-" + string(e)
				f.create(f.record(id))
				for _, step := range paths[s] {
					f.step(id, step)
				}
				f.checkMove(id, s, e)
			}
		}
	}},
	{name: "of racing claims one wins", run: func(f *fixture) {
		f.create(f.record("c1"))
		won := f.race("c1", func(i int) (registry.Event, registry.Change) {
			return registry.EventDeliver, registry.Change{Owner: fmt.Sprint(i)}
		})
		got := f.read("c1")
		if len(won) != 1 || got.Owner != fmt.Sprint(won[0]) || got.State != registry.StateDelivered {
			f.Errorf("won %v, record %+v", won, got)
		}
	}},
	{name: "a claim is given back only by the pod that has it", run: func(f *fixture) {
		f.create(f.record("c1"))
		f.move("c1", registry.EventDeliver, registry.Change{Owner: "owner"})
		if m := f.moved("c1", registry.EventReturn, registry.Change{Owner: "former"}); m.Applied {
			f.Errorf("a former claim gave it back: %+v", m.Record)
		}
		if got := f.read("c1"); got.State != registry.StateDelivered || got.Owner != "owner" {
			f.Errorf("record %+v", got)
		}
		f.move("c1", registry.EventReturn, registry.Change{Owner: "owner"})
	}},
	{name: "of racing answers the first stays", run: func(f *fixture) {
		f.create(f.record("c1"))
		won := f.race("c1", func(i int) (registry.Event, registry.Change) {
			return []registry.Event{registry.EventSucceed, registry.EventFail}[i%2],
				registry.Change{Session: f.key("s1"), Result: output(fmt.Sprint(i))}
		})
		if got := f.read("c1"); len(won) != 1 || got.Result.Output != fmt.Sprint(won[0]) || got.Late {
			f.Errorf("won %v, record %+v", won, got)
		}
	}},
	{name: "an answer counts only from the session of the call", run: func(f *fixture) {
		f.create(f.record("c1"))
		f.move("c1", registry.EventDeliver, registry.Change{})
		for _, from := range []registry.Key{f.key("s2"), f.key(""), {Tenant: f.tenant + "x", Session: "s1"}, {}} {
			change := registry.Change{Session: from, Result: output("x")}
			f.wantNoCall(errOf(f.store.MoveCall(f.ctx, f.tenant, "c1", registry.EventSucceed, change)))
		}
		if got := f.read("c1"); got.State != registry.StateDelivered || got.Result != nil {
			f.Errorf("record %+v", got)
		}
	}},
	{name: "a call that runs where it was asked for has no session", run: func(f *fixture) {
		r := f.record("c1")
		r.SessionID = ""
		f.create(r)
		forged := registry.Change{Session: f.key(""), Result: output("forged")}
		f.wantNoCall(errOf(f.store.MoveCall(f.ctx, f.tenant, "c1", registry.EventSucceed, forged)))
		f.move("c1", registry.EventRun, registry.Change{Owner: "asked"})
		f.move("c1", registry.EventSucceed, registry.Change{Here: true, Result: output("noon")})
		got := f.read("c1")
		if got.State != registry.StateSucceeded || got.Result.Output != "noon" || got.SessionID+got.Owner != "asked" {
			f.Errorf("record %+v", got)
		}
	}},
	{name: "a late answer is kept", run: func(f *fixture) {
		for _, e := range []registry.Event{registry.EventTimeOut, registry.EventLose, registry.EventCancel} {
			id := string(e)
			f.create(f.record(id))
			f.move(id, registry.EventRoute, registry.Change{})
			lost := registry.Errorf(registry.CodeLost, "gone").With(registry.DispatchedYes)
			ended := f.move(id, e, registry.Change{Err: lost})
			if ended.Record.Dispatched != registry.DispatchedYes || ended.Record.Late {
				f.Errorf("%s: %+v", e, ended.Record)
			}
			if _, err := ended.Record.Outcome(); err == nil || !strings.Contains(err.Error(), "gone") {
				f.Errorf("%s: outcome %v", e, err)
			}
			late, want := registry.EventFail, registry.StateFailed
			if e == registry.EventCancel { // for a cancelled call only a success is news
				late, want = registry.EventSucceed, registry.StateSucceeded
			}
			f.step(id, late)
			got := f.read(id)
			if got.State != want || !got.Late || got.Result == nil || got.Err != nil || len(got.Timeline) != 4 {
				f.Errorf("%s: %+v", e, got)
			}
		}
	}},
	{name: "a call nobody ended is ended when it is read", run: func(f *fixture) {
		for id, events := range map[string][]registry.Event{
			"expired":   {registry.EventRoute},
			"timed_out": {registry.EventRoute, registry.EventDeliver},
		} {
			r := f.record(id)
			r.TimeoutMS = 1
			f.create(r)
			for _, e := range events {
				f.step(id, e)
			}
			if got := f.read(id); got.State.Final() {
				f.Errorf("%s at once", got.State)
			}
		}
		for _, id := range []string{"expired", "timed_out"} {
			f.eventually(id, func() bool { return f.read(id).State.Final() })
			got := f.read(id)
			last := got.Timeline[len(got.Timeline)-1]
			if string(got.State) != id || last.At.Before(got.Deadline.Add(registry.OverdueGrace)) {
				f.Errorf("%+v", got)
			}
		}
		if m := f.moved("expired", registry.EventDeliver, registry.Change{}); m.Applied {
			f.Error("an expired call was delivered")
		}
		if got := f.step("timed_out", registry.EventSucceed); !got.Record.Late {
			f.Errorf("late answer %+v", got.Record)
		}
	}},
	{name: "a watcher is woken once", run: func(f *fixture) {
		f.create(f.record("c1"))
		for _, pod := range []string{"b", "a", "b"} {
			f.watch("c1", pod)
		}
		if m := f.move("c1", registry.EventDeliver, registry.Change{}); len(m.Watchers) != 0 {
			f.Errorf("woken at delivery: %v", m.Watchers)
		}
		f.watch("c1", "c:{1}")
		m := f.move("c1", registry.EventTimeOut, registry.Change{})
		slices.Sort(m.Watchers)
		if !slices.Equal(m.Watchers, []string{"a", "b", "c:{1}"}) {
			f.Errorf("woken %v", m.Watchers)
		}
		if r := f.watch("c1", "late"); r.State != registry.StateTimedOut {
			f.Errorf("watched %+v", r)
		}
		if m := f.step("c1", registry.EventSucceed); len(m.Watchers) != 0 {
			f.Errorf("woken again: %v", m.Watchers)
		}
	}},
	{name: "a call of another tenant does not exist", run: func(f *fixture) {
		f.create(f.record("c1"))
		other := f.tenant + "x"
		f.wantNoCall(errOf(f.store.ReadCall(f.ctx, other, "c1")))
		f.wantNoCall(errOf(f.store.WatchCall(f.ctx, other, "c1", "a")))
		for _, e := range registry.Events() {
			f.wantNoCall(errOf(f.store.MoveCall(f.ctx, other, "c1", e, f.change(e))))
		}
		if got := f.read("c1"); got.State != registry.StateAccepted {
			f.Errorf("record %+v", got)
		}
	}},
}

// checkMove applies e to a call in state s, and to the same record in memory, and compares the results.
func (f *fixture) checkMove(id string, s registry.State, e registry.Event) {
	f.Helper()
	want := f.read(id)
	if want.State != s {
		f.Fatalf("%s is %s", id, want.State)
	}
	m := f.moved(id, e, f.change(e))
	at := m.Record.Timeline[len(m.Record.Timeline)-1].At
	if applied := want.Apply(e, f.change(e), at); m.Applied != applied {
		f.Errorf("%s in state %s: applied %v, want %v", e, s, m.Applied, applied)
	}
	if !reflect.DeepEqual(m.Record, want) {
		f.Errorf("%s in state %s:\ngot  %+v\nwant %+v", e, s, m.Record, want)
	}
	if got := f.read(id); !reflect.DeepEqual(got, want) {
		f.Errorf("%s in state %s read:\ngot  %+v\nwant %+v", e, s, got, want)
	}
}

// race has many goroutines move a call at once, and returns whose move applied.
func (f *fixture) race(id string, move func(i int) (registry.Event, registry.Change)) []int {
	f.Helper()
	var mu sync.Mutex
	var won []int
	together(racers, func(i int) {
		e, c := move(i)
		m, err := f.store.MoveCall(f.ctx, f.tenant, id, e, c)
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			f.Errorf("racer %d: %v", i, err)
		}
		if m.Applied {
			won = append(won, i)
		}
	})
	return won
}

// eventPaths returns for every state the shortest series of events that leads to it.
func eventPaths() map[registry.State][]registry.Event {
	paths := map[registry.State][]registry.Event{registry.StateAccepted: nil}
	for queue := []registry.State{registry.StateAccepted}; len(queue) > 0; queue = queue[1:] {
		for _, e := range registry.Events() {
			next, ok := queue[0].Next(e)
			if _, known := paths[next]; !ok || known {
				continue
			}
			paths[next] = append(slices.Clone(paths[queue[0]]), e)
			queue = append(queue, next)
		}
	}
	return paths
}
