package registrytest

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/farhand/farhand/registry"
)

// log renders the log of a call: its states, and a dot for every other event.
func (f *fixture) log(id string) string {
	f.Helper()
	var parts []string
	for _, e := range f.events(id, "") {
		if e.Type == registry.CallEventState {
			parts = append(parts, string(e.State))
		} else {
			parts = append(parts, ".")
		}
	}
	return strings.Join(parts, " ")
}

func (f *fixture) append(events ...registry.CallEvent) {
	f.Helper()
	for i := range events {
		events[i].Tenant = f.tenant
	}
	f.must(f.store.AppendCallEvents(f.ctx, events))
}

func stateOf(id string, s registry.State) registry.CallEvent {
	return registry.CallEvent{CallID: id, Type: registry.CallEventState, State: s}
}

func progressOf(id string) registry.CallEvent {
	return registry.CallEvent{CallID: id, Type: registry.CallEventProgress, Message: "m"}
}

var logTests = []subtest{
	{name: "every move stands in the log, in order", run: func(f *fixture) {
		f.create(f.record("c1"))
		f.step("c1", registry.EventRoute)
		f.step("c1", registry.EventDeliver)
		f.append(stateOf("c1", registry.StateDelivered), stateOf("c1", registry.StateRunning))
		f.append(progressOf("c1"), progressOf("c1"))
		f.move("c1", registry.EventRun, registry.Change{})
		f.append(progressOf("c1"))
		f.moved("c1", registry.EventDeliver, registry.Change{}) // not a move
		f.step("c1", registry.EventTimeOut)
		f.append(progressOf("c1"), stateOf("c1", registry.StateRunning)) // too late
		f.step("c1", registry.EventSucceed)
		f.append(progressOf("c1"), stateOf("c1", registry.StateAccepted), stateOf("c1", registry.StateLost))
		if got, want := f.log("c1"), "accepted routed delivered running . . . timed_out succeeded"; got != want {
			f.Errorf("log  %s\nwant %s", got, want)
		}
		if got := f.events("c1", ""); got[0].At.IsZero() || got[0].CallID != "c1" {
			f.Errorf("first event %+v", got[0])
		}
	}},
	{name: "what is kept stands in the log, in order", run: func(f *fixture) {
		r := f.record("c1")
		r.State, r.Dispatched = registry.StateDelivered, registry.DispatchedYes
		f.append(stateOf("c1", registry.StateRunning), progressOf("c1")) // by another pod, which was faster
		f.keep(r)
		r.State = registry.StateRunning
		f.keep(r)
		f.append(progressOf("c1"))
		r.State, r.Result = registry.StateSucceeded, output("x")
		f.keep(r)
		f.append(progressOf("c1"))
		if got, want := f.log("c1"), "running . . succeeded"; got != want {
			f.Errorf("log  %s\nwant %s", got, want)
		}
	}},
	{name: "a log is in order whoever writes when", run: func(f *fixture) {
		var wg sync.WaitGroup
		for i := range 20 {
			id := fmt.Sprintf("c%d", i)
			r := f.record(id)
			f.create(r)
			writes := []func(){
				func() { f.moved(id, registry.EventDeliver, f.change(registry.EventDeliver)) },
				func() { f.moved(id, registry.EventRun, f.change(registry.EventRun)) },
				func() { f.moved(id, registry.EventSucceed, f.change(registry.EventSucceed)) },
				func() { f.append(stateOf(id, registry.StateRunning), progressOf(id)) },
				func() { f.append(progressOf(id)) },
			}
			rand.Shuffle(len(writes), func(i, j int) { writes[i], writes[j] = writes[j], writes[i] })
			for _, write := range writes {
				wg.Go(write)
			}
		}
		wg.Wait()
		for i := range 20 {
			log, last := f.log(fmt.Sprintf("c%d", i)), -1
			for _, word := range strings.Fields(log) {
				rank := map[string]int{"accepted": 0, "delivered": 1, "running": 2, ".": 3, "succeeded": 4}[word]
				if rank < last || rank == last && word != "." {
					f.Errorf("log %s", log)
				}
				last = rank
			}
			if !strings.HasPrefix(log, "accepted") || !strings.HasSuffix(log, "succeeded") {
				f.Errorf("log %s", log)
			}
		}
	}},
}

var agreementTests = []subtest{
	{name: "what is kept of a call and its answer agree", run: func(f *fixture) {
		at := time.Now().UTC().Truncate(time.Microsecond)
		for _, c := range []struct {
			event registry.Event // applied first, by a pod without a waiting caller; empty: none
			kept  registry.State // then
			late  bool
			path  string // after accepted and delivered; it ends with the state of the record
		}{
			{event: registry.EventSucceed, kept: "lost", late: true, path: "lost succeeded"},
			{event: registry.EventFail, kept: "timed_out", late: true, path: "timed_out failed"},
			{event: registry.EventSucceed, kept: "cancelled", late: true, path: "cancelled succeeded"},
			{event: registry.EventFail, kept: "cancelled", path: "cancelled"},
			{event: registry.EventSucceed, kept: "succeeded", path: "succeeded"},
			{event: registry.EventFail, kept: "succeeded", path: "succeeded"},
			{event: registry.EventSucceed, kept: "running", late: true, path: "succeeded"},
			{event: registry.EventTimeOut, kept: "succeeded", late: true, path: "timed_out succeeded"},
			{event: registry.EventCancel, kept: "failed", late: true, path: "cancelled failed"},
			{event: registry.EventCancel, kept: "running", path: "cancelled"},
			{event: registry.EventTimeOut, kept: "lost", path: "timed_out"},
			{kept: "lost", path: "lost"},
		} {
			id := fmt.Sprintf("%s-%s", c.event, c.kept)
			r := f.record(id)
			r.Mode, r.State, r.Dispatched = registry.ModeSync, registry.StateDelivered, registry.DispatchedYes
			r.Timeline = []registry.Step{
				{State: registry.StateAccepted, At: at}, {State: registry.StateDelivered, At: at},
			}
			f.keep(r)
			if c.event != "" {
				change := f.change(c.event)
				if change.Result != nil {
					change.Result.Output = "late"
				}
				f.move(id, c.event, change)
			}
			r.State = c.kept
			r.Timeline = append(r.Timeline, registry.Step{State: c.kept, At: at.Add(time.Second)})
			switch c.kept {
			case "succeeded", "failed":
				r.Result = &registry.Result{Success: c.kept == "succeeded", Output: "told"}
			case "running":
			default:
				r.Err = registry.Errorf(registry.CodeLost, "told").With(registry.DispatchedYes)
			}
			f.keep(r)
			got := f.read(id)
			path := "accepted delivered " + c.path
			if !strings.HasSuffix(path, " "+string(got.State)) || got.Late != c.late || states(got) != path {
				f.Errorf("%s: %s, late %v, %s; want %+v", id, got.State, got.Late, states(got), c)
			}
			if c.kept.Answered() && (got.Result == nil || got.Result.Output != "told") {
				f.Errorf("%s: result %+v", id, got.Result)
			}
			if got.State.Answered() != (got.Result != nil) || got.State.Answered() && got.Err != nil {
				f.Errorf("%s: %+v", id, got)
			}
		}
	}},
	{name: "an answer that came before its caller's end could be stored was late", run: func(f *fixture) {
		for _, e := range []registry.Event{registry.EventSucceed, registry.EventFail, ""} {
			id := "c" + string(e)
			f.create(f.record(id))
			f.step(id, registry.EventDeliver)
			if e != "" {
				f.step(id, e)
			}
			change := f.change(registry.EventLose)
			change.Reported = true
			m := f.moved(id, registry.EventLose, change)
			got := f.read(id)
			switch {
			case m.Applied != (e == ""):
				f.Errorf("%s: applied %v, %+v", id, m.Applied, got)
			case e == "" && (got.State != registry.StateLost || got.Late):
				f.Errorf("%s: %+v", id, got)
			case e != "" && (!got.State.Answered() || !got.Late || !m.Record.Late || got.Result == nil):
				f.Errorf("%s: %+v", id, got)
			}
		}
	}},
}
