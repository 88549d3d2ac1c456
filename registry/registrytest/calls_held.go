package registrytest

import (
	"sync/atomic"
	"time"

	"github.com/farhand/farhand/registry"
)

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
