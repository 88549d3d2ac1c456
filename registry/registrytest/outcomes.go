package registrytest

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/routing"
)

// ended is a call's outcome for its caller.
type ended struct {
	res registry.Result
	err error
}

// light makes a call without a record of its own, as a plain request does, and records its end.
func (f *fixture) light(pod *routing.Pod, s registry.Session, id string, timeout time.Duration) <-chan ended {
	f.Helper()
	rec := registry.NewRecord(id, f.tenant, "tool", json.RawMessage(`{}`))
	rec.SessionID, rec.TimeoutMS = s.Key.Session, timeout.Milliseconds()
	end := make(chan ended, 1)
	go func() {
		res, err := pod.Router.Call(f.ctx, registry.Call{
			ID: id, Route: registry.Route{Session: s, Spec: tool("tool", "x")}, Args: registry.MustJSON(`{}`),
			Timeout: timeout, Record: &rec,
		})
		pod.Calls.Finish(&rec, res, err)
		end <- ended{res, err}
	}()
	return end
}

// settled waits until a call's record is in a state, and returns it.
func (f *fixture) settled(id string, want registry.State) registry.Record {
	f.Helper()
	var r registry.Record
	f.eventually("the record of "+id+" is "+string(want), func() bool {
		var err error
		r, err = f.store.ReadCall(f.ctx, f.tenant, id)
		return err == nil && r.State == want
	})
	return r
}

// durable makes a call with a record of its own, as a keyed request does. The record has its end.
func (f *fixture) durable(pod *routing.Pod, s registry.Session, id string) {
	f.Helper()
	rec := registry.NewRecord(id, f.tenant, "tool", json.RawMessage(`{}`))
	rec.SessionID, rec.TimeoutMS, rec.Mode = s.Key.Session, testTimeout.Milliseconds(), registry.ModeAsync
	_, _, err := pod.Calls.Start(f.ctx, rec, func(ctx context.Context) (registry.Result, error) {
		return pod.Router.Call(ctx, registry.Call{
			ID: id, Route: registry.Route{Session: s, Spec: tool("tool", "x")}, Args: registry.MustJSON(`{}`),
			Timeout: testTimeout, Durable: true,
		})
	})
	if err != nil {
		f.Fatalf("start %s: %v", id, err)
	}
}

// answer answers a call and returns a channel that receives whether the answer was ignored.
func (f *fixture) answer(l *routing.LocalSession, id, text string) <-chan bool {
	ignored := make(chan bool, 1)
	l.Complete(id, registry.Result{Success: true, Output: text}, func(i bool) { ignored <- i })
	return ignored
}

// wantFirst checks that the first of two answers counted and the second was ignored.
func (f *fixture) wantFirst(id string, first, second <-chan bool) {
	f.Helper()
	if Receive(f, "an acknowledgement", first) || !Receive(f, "an acknowledgement", second) {
		f.Errorf("%s: the first answer was ignored, or the second was not", id)
	}
}

// resuming returns a session of a device that sends its answers again after it has reconnected.
func (f *fixture) resuming() registry.Session {
	return registry.Session{Key: f.key("s1"), Capabilities: []string{registry.CapabilityResume}}
}

// moveTo opens the session again on a pod, like a device that has lost its connection and reconnects there.
func (f *fixture) moveTo(pod *routing.Pod) *routing.LocalSession {
	f.Helper()
	return silent().Connect(f, pod, f.resuming(), tool("tool", "x"))
}

// asked waits until the device has a call.
func (f *fixture) asked(d *Device, id string) {
	f.Helper()
	f.eventually("the device has "+id, func() bool {
		calls := d.Calls()
		return len(calls) > 0 && calls[len(calls)-1].ID == id
	})
}

// dyingPod is a pod that takes calls and does nothing more.
type dyingPod struct{ calls chan string }

func (p dyingPod) HandleEnvelope(e registry.Envelope) {
	if e.Kind == registry.EnvelopeCall {
		p.calls <- e.CallID
	}
}

func (dyingPod) HandleReply(registry.Reply) {}
func (dyingPod) HandleGap()                 {}

// slowly is longer than a call may take before it can be looked up.
const slowly = 400 * time.Millisecond

var outcomeTests = []subtest{
	{name: "the record of a slow call says what its caller got", run: func(f *fixture) {
		a, b := f.startPod("a"), f.startPod("b")
		d := NewDevice(func(c routing.DeviceCall) *registry.Result {
			pause := time.NewTimer(slowly)
			defer pause.Stop()
			<-pause.C
			return &registry.Result{Success: true, Output: "done " + c.ID}
		})
		local := d.Connect(f, a, f.session("s1"), tool("tool", "x"))
		for name, pod := range map[string]*routing.Pod{"local": a, "remote": b} {
			end := f.light(pod, local.Session(), name, testTimeout)
			if got := Receive(f, "the answer", end); got.err != nil || got.res.Output != "done "+name {
				f.Fatalf("%s: %+v", name, got)
			}
			r := f.settled(name, registry.StateSucceeded)
			if r.Late || r.Result == nil || r.Result.Output != "done "+name {
				f.Errorf("%s: %+v", name, r)
			}
			r, err := b.Calls.Cancel(f.ctx, f.tenant, name)
			if err != nil || r.State != registry.StateSucceeded {
				f.Errorf("%s: cancelling what has ended: %+v, %v", name, r, err)
			}
		}
	}},
	{name: "of two answers back to back the first counts", run: func(f *fixture) {
		a, b := f.startPod("a"), f.startPod("b")
		d := silent()
		local := d.Connect(f, a, f.resuming(), tool("tool", "x"))
		for i := range 20 {
			id := fmt.Sprintf("c%d", i)
			f.durable([]*routing.Pod{a, b}[i%2], local.Session(), id)
			f.asked(d, id)
			first, second := f.answer(local, id, "first"), f.answer(local, id, "second")
			f.wantFirst(id, first, second)
			if r := f.settled(id, registry.StateSucceeded); r.Result.Output != "first" || r.Late {
				f.Errorf("%s: %+v", id, r.Result)
			}
		}
		// The same for a call that has no record of its own but is slow.
		end := f.light(b, local.Session(), "light", testTimeout)
		f.settled("light", registry.StateDelivered)
		first, second := f.answer(local, "light", "first"), f.answer(local, "light", "second")
		f.wantFirst("light", first, second)
		if got := Receive(f, "the end", end); got.res.Output != "first" {
			f.Errorf("light: %+v", got)
		}
		if r := f.settled("light", registry.StateSucceeded); r.Result.Output != "first" || r.Late {
			f.Errorf("light: %+v", r)
		}
	}},
	{name: "of two answers around a move the first counts", run: func(f *fixture) {
		a, b, asking := f.startPod("a"), f.startPod("b"), f.startPod("c")
		d := silent()
		local := d.Connect(f, a, f.resuming(), tool("tool", "x"))
		end := f.light(asking, local.Session(), "before", testTimeout)
		f.settled("before", registry.StateDelivered)
		first := f.answer(local, "before", "first")
		local = f.moveTo(b)
		second := f.answer(local, "before", "second")
		f.wantFirst("answered before the move", first, second)
		if got := Receive(f, "the end", end); got.res.Output != "first" {
			f.Errorf("%+v", got)
		}
		for _, durable := range []bool{false, true} {
			id := fmt.Sprintf("after-%v", durable)
			d := silent()
			local := d.Connect(f, a, f.resuming(), tool("tool", "x"))
			if durable {
				f.durable(asking, local.Session(), id)
				f.asked(d, id)
			} else {
				end = f.light(asking, local.Session(), id, testTimeout)
				f.settled(id, registry.StateDelivered)
			}
			local = f.moveTo(b)
			first, second := f.answer(local, id, "first"), f.answer(local, id, "second")
			f.wantFirst(id, first, second)
			if r := f.settled(id, registry.StateSucceeded); r.Result.Output != "first" || r.Late {
				f.Errorf("%s: %+v", id, r)
			}
			if !durable {
				if got := Receive(f, "the end", end); got.res.Output != "first" {
					f.Errorf("%+v", got)
				}
			}
			for _, id := range []string{id, "never"} {
				if !Receive(f, "an acknowledgement", f.answer(local, id, "x")) {
					f.Errorf("%s: an answer that changes nothing was not ignored", id)
				}
			}
		}
	}},
	{name: "a caller gets the answer of a device that moved twice", run: func(f *fixture) {
		pods := map[string]*routing.Pod{"a": f.startPod("a"), "b": f.startPod("b"), "c": f.startPod("c")}
		asking := f.startPod("d")
		for _, path := range []string{"abc", "abb", "aba", "abac", "abcbc"} {
			for _, drained := range []bool{false, true} {
				for name, pod := range map[string]*routing.Pod{"owner": pods["a"], "other": asking} {
					id := fmt.Sprintf("%s-%s-%v", path, name, drained)
					d := silent()
					local := d.Connect(f, pods["a"], f.resuming(), tool("tool", "x"))
					end := f.light(pod, local.Session(), id, testTimeout)
					f.asked(d, id)
					for _, next := range path[1:] {
						if drained {
							local.Close(f.ctx) // as a stopping pod does: the session is only remembered
						}
						local = f.moveTo(pods[string(next)])
					}
					if Receive(f, "the acknowledgement", f.answer(local, id, "done")) {
						f.Errorf("%s: the answer was ignored", id)
					}
					if got := Receive(f, "the end", end); got.err != nil || got.res.Output != "done" {
						f.Errorf("%s: %+v, %v", id, got.res, got.err)
					}
				}
			}
		}
	}},
	{name: "a caller that lost its device and a record that has the answer agree", run: func(f *fixture) {
		a, b, asking := f.startPod("a"), f.startPod("b"), f.startPod("c")
		d := silent()
		session := f.session("s1")
		first := d.Connect(f, a, session, tool("tool", "x"))
		end := f.light(asking, first.Session(), "c1", testTimeout)
		f.settled("c1", registry.StateDelivered)
		second := silent().Connect(f, b, session, tool("tool", "x"))
		if Receive(f, "the acknowledgement", f.answer(second, "c1", "done")) {
			f.Error("the answer was ignored")
		}
		first.Close(f.ctx)
		got := Receive(f, "the end", end)
		f.wantCode(got.err, registry.CodeConnectionLost)
		f.eventually("the record tells that the answer was late", func() bool {
			r := f.read("c1") // in its final state
			return r.Late && states(r) == "accepted routed delivered lost succeeded"
		})
	}},
	{name: "an answer comes late for a call whose device's pod died before it sent a receipt", run: func(f *fixture) {
		asking, dead := f.startPod("a"), dyingPod{make(chan string, 1)}
		session := f.claim("s1", f.pod("b"), func(s *registry.Session) { s.Capabilities = f.resuming().Capabilities })
		f.putTools(session, tool("tool", "x"))
		f.listen(session.Pod, dead)
		end := f.light(asking, session, "c1", testTimeout)
		Receive(f, "the call", dead.calls)
		ignored := f.answer(f.moveTo(asking), "c1", "done")
		f.wantCode(Receive(f, "the end", end).err, registry.CodeLost, registry.DispatchedUnknown)
		if Receive(f, "the acknowledgement", ignored) {
			f.Error("the answer was ignored")
		}
		if r := f.settled("c1", registry.StateSucceeded); !r.Late || r.Result == nil || r.Result.Output != "done" {
			f.Errorf("%+v", r)
		}
	}},
	{name: "the log of a device that reports and answers at once is in order and complete", run: func(f *fixture) {
		a, b := f.startPod("a"), f.startPod("b")
		d := silent()
		local := d.Connect(f, a, f.resuming(), tool("tool", "x"))
		for i := range 30 {
			id, pod := fmt.Sprintf("c%d", i), []*routing.Pod{a, b}[i%2]
			var end <-chan ended
			if i%3 == 0 {
				end = f.light(pod, local.Session(), id, testTimeout)
			} else {
				f.durable(pod, local.Session(), id)
			}
			f.asked(d, id)
			local.Progress(id, nil, nil, "", "")
			for range 3 {
				local.Progress(id, nil, nil, "working", "")
			}
			f.answer(local, id, "done")
			if end != nil {
				Receive(f, "the end", end)
			}
			f.eventually("the log has its end", func() bool { return strings.HasSuffix(f.log(id), "succeeded") })
			got, want := f.log(id), "running . . . succeeded"
			if !strings.HasSuffix(got, want) || end == nil && got != "accepted delivered "+want {
				f.Errorf("%s: %s", id, got)
			}
		}
	}},
	{name: "some of the pods a session has left are remembered, the last one first", run: func(f *fixture) {
		var want []string // in the order of their claims, the last one first
		for i := range registry.MaxFormers + 3 {
			pod := f.pod(fmt.Sprintf("p%d", i))
			s := registry.Session{Key: f.key("s1"), Pod: pod, Generation: registry.AnyHolder}
			for range 2 { // a device that reconnects to the same pod has not left it
				claim, err := f.store.Claim(f.ctx, s)
				f.must(err)
				if got := claim.Formers; !slices.Equal(got, want[:min(len(want), registry.MaxFormers)]) {
					f.Errorf("claim %d: formers %v, want %v", i, got, want)
				}
				if i%2 == 0 {
					f.must(errOf(f.store.Release(f.ctx, claim.Session, 0)))
				}
			}
			want = slices.Insert(want, 0, pod)
		}
	}},
}
