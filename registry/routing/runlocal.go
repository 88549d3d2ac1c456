package routing

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/farhand/farhand/registry"
)

// RunLocal carries out a call that needs no device: run does the work, on the calling goroutine. Otherwise it is a call
// like any other: after receiptAfter it can be looked up from every pod, and cancelling it ends run's context. What run
// reports is added to the log of the call; report may be called by several goroutines until run returns, and never
// blocks. c.Record is required; it names the tenant.
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
	running := *c.Record // the copy that watchLocal changes while the call runs
	running.Timeline = slices.Clone(running.Timeline)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() { r.watchLocal(w, cancel, done, &running, c.Durable) })
	defer func() {
		close(done)
		watching.Wait()
		c.Record.State, c.Record.Timeline, c.Record.Stored = running.State, running.Timeline, running.Stored
	}()
	report := r.reports.of(&c)
	defer report.written(ctx)
	return run(ctx, report.add)
}

// beginLocal notes in the store that a durable call runs, unless somebody has cancelled it.
func (r *Router) beginLocal(ctx context.Context, c registry.Call) error {
	moved, err := r.calls.MoveCall(ctx, c.Record.Tenant, c.ID, registry.EventRun, registry.Change{Owner: r.pod})
	switch {
	case err != nil:
		return registry.AsError(err).With(registry.DispatchedNo)
	case !moved.Applied:
		return callCancelled(registry.DispatchedNo)
	}
	notifyWatchers(r.bus, r.log, moved)
	return nil
}

// watchLocal cancels a call that runs here when somebody cancels it, and stores its record once it has run for
// receiptAfter. It owns rec until it returns.
func (r *Router) watchLocal(
	w *pendingCall, cancel context.CancelFunc, done <-chan struct{}, rec *registry.Record, durable bool,
) {
	seen := time.NewTimer(receiptAfter)
	defer seen.Stop()
	for {
		select {
		case <-done:
			return
		case <-w.ready:
			if w.progress().cancelled {
				cancel()
			}
		case <-seen.C:
			if durable {
				continue // it has a record
			}
			rec.Apply(registry.EventRun, registry.Change{}, time.Now().UTC())
			r.keepRunning(rec)
		}
	}
}
