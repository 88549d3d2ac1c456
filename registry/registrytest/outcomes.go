package registrytest

import (
	"encoding/json"
	"time"

	"github.com/farhand/farhand/registry"
)

// ended is what a call came to for its caller.
type ended struct {
	res registry.Result
	err error
}

// light makes a call without a record of its own, as a plain request does, and records how it ended.
func (f *fixture) light(pod *registry.Pod, s registry.Session, id string, timeout time.Duration) <-chan ended {
	f.Helper()
	rec := registry.NewRecord(id, f.tenant, "tool", json.RawMessage(`{}`))
	rec.SessionID, rec.TimeoutMS = s.Key.Session, timeout.Milliseconds()
	end := make(chan ended, 1)
	go func() {
		res, err := pod.Router.Call(f.ctx, registry.Call{
			ID: id, Route: registry.Route{Session: s, Spec: tool("tool", "x")}, Args: json.RawMessage(`{}`),
			Timeout: timeout, Record: &rec,
		})
		pod.Calls.Finish(&rec, res, err)
		end <- ended{res, err}
	}()
	return end
}

// settled waits until a call's record is in that state, and returns it.
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

// slowly is longer than a call may take before it can be looked up.
const slowly = 400 * time.Millisecond

var outcomeTests = []subtest{
	{name: "the record of a slow call says what its caller was told", run: func(f *fixture) {
		a, b := f.startPod("a"), f.startPod("b")
		d := NewDevice(func(c registry.DeviceCall) *registry.Result {
			pause := time.NewTimer(slowly)
			defer pause.Stop()
			<-pause.C
			return &registry.Result{Success: true, Output: "done " + c.ID}
		})
		local := d.Connect(f, a, registry.Session{Key: f.key("s1")}, tool("tool", "x"))
		for name, pod := range map[string]*registry.Pod{"local": a, "remote": b} {
			end := f.light(pod, local.Session(), name, patience)
			if got := receive(f, "the answer", end); got.err != nil || got.res.Output != "done "+name {
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
}
