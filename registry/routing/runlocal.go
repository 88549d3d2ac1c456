package routing

import (
	"context"
	"slices"
	"time"

	"github.com/farhand/farhand/registry"
)

// RunLocal runs a call that needs no device: run does the work, on the calling goroutine. After receiptAfter every pod
// can look the call up, and cancelling it ends run's context. report adds to the log of the call; it never blocks and
// is safe for concurrent use until run returns. c.Record is required.
func (r *Router) RunLocal(
	ctx context.Context, c registry.Call,
	run func(ctx context.Context, report func(registry.Report)) (registry.Result, error),
) (registry.Result, error) {
	w := r.pending.add(&c, "")
	defer r.pending.remove(w)
	if c.Durable {
		if err := r.beginLocal(ctx, c); err != nil {
			return registry.Result{}, err
		}
	} else {
		c.Record.Pod = r.pod
		c.Record.Apply(registry.EventDeliver, registry.Change{Owner: r.pod}, time.Now().UTC())
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer w.onCancel(cancel)()
	if !c.Durable { // a durable call has a record
		defer r.recordLater(c.Record)()
	}
	report := r.localReport(c.Record.Tenant, c.Record.UserID, c.Record.Tool, c.ID)
	defer report.written(ctx)
	return run(ctx, report.add)
}

// beginLocal records in the store that a durable call runs, unless it was cancelled.
func (r *Router) beginLocal(ctx context.Context, c registry.Call) error {
	moved, err := r.calls.MoveCall(ctx, c.Record.Tenant, c.ID, registry.EventRun, registry.Change{Owner: r.pod})
	switch {
	case err != nil:
		return registry.AsError(err).With(registry.DispatchedNo)
	case !moved.Applied:
		return callCancelled(registry.DispatchedNo)
	}
	r.notifyWatchers(moved)
	return nil
}

// recordLater stores a copy of a local call's record once the call has run for receiptAfter, unless stop is called
// before. stop updates rec.
func (r *Router) recordLater(rec *registry.Record) (stop func()) {
	running, stored := *rec, make(chan struct{})
	running.Timeline = slices.Clone(running.Timeline)
	timer := time.AfterFunc(receiptAfter, func() {
		defer close(stored)
		running.Apply(registry.EventRun, registry.Change{}, time.Now().UTC())
		r.rec.keepRunning(&running)
	})
	return func() {
		if !timer.Stop() {
			<-stored
			rec.State, rec.Timeline, rec.Stored = running.State, running.Timeline, running.Stored
		}
	}
}

// localReport collects the reports of one call that runs on this pod. It is safe for concurrent use.
type localReport struct {
	*core
	callLog
	tenant, callID string
	silent         bool // texts are dropped: they may contain what the amending removes from the result
}

func (c *core) localReport(tenant, user, tool, callID string) *localReport {
	return &localReport{
		core: c, callLog: callLog{user: user}, tenant: tenant, callID: callID, silent: c.calls.amends(tool),
	}
}

func (r *localReport) add(report registry.Report) {
	if r.silent {
		report.Message, report.Chunk = "", ""
	}
	if report == (registry.Report{}) {
		return
	}
	if r.lastLine() == 0 {
		r.note(r.rec.event(registry.StateEvent(r.tenant, r.callID, registry.StateRunning, time.Time{})))
	}
	_ = r.report(&r.callLog, registry.Key{Tenant: r.tenant}, r.callID, report, func(bool) *registry.Error {
		return registry.Errorf(registry.CodePayloadTooLarge,
			"Further reports of this call are not stored: its log is full. The call continues.")
	})
}

// written waits for the writing of all lines, because the end of a call closes its log. It waits at most logWait.
func (r *localReport) written(ctx context.Context) {
	last := r.lastLine()
	if r.rec.wrote(last) {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), logWait)
	defer cancel()
	r.rec.waitFor(ctx, last)
}
