package registry

import (
	"context"
	"slices"
	"sync"
	"time"
)

// RunHere carries out a call that needs no device: run does the work, on the calling goroutine. Beside that it is a call
// like any other: once it takes its time it can be looked up from every pod and cancelled, which ends run's context. The
// tenant is that of c.Record, which is required.
func (r *Router) RunHere(ctx context.Context, c Call, run func(context.Context) (Result, error)) (Result, error) {
	w := r.waiters.add(&c, "")
	defer r.waiters.remove(w)
	if c.Durable {
		if err := r.beginHere(ctx, c); err != nil {
			return Result{}, err
		}
	} else {
		c.Record.Pod = r.pod
		c.Record.Apply(EventDeliver, Change{Owner: r.pod}, time.Now().UTC())
	}
	running := *c.Record // what others may see of it while it runs
	running.Timeline = slices.Clone(running.Timeline)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() { r.watchHere(w, cancel, done, &running, c.Durable) })
	defer func() {
		close(done)
		watching.Wait()
		c.Record.State, c.Record.Timeline, c.Record.kept = running.State, running.Timeline, running.kept
	}()
	return run(ctx)
}

// beginHere notes in the store that a durable call runs, unless somebody has cancelled it.
func (r *Router) beginHere(ctx context.Context, c Call) error {
	moved, err := r.presence.calls.MoveCall(ctx, c.Record.Tenant, c.ID, EventRun, Change{Owner: r.pod})
	switch {
	case err != nil:
		return AsError(err).With(DispatchedNo)
	case !moved.Applied:
		return Errorf(CodeCancelled, "The call was cancelled.").With(DispatchedNo)
	}
	r.presence.afterMove(moved)
	return nil
}

// watchHere waits for the end of a call that runs here, for somebody who cancels it, and for the moment from which it is
// to be seen. rec is its own until it returns.
func (r *Router) watchHere(w *waiter, cancel context.CancelFunc, done <-chan struct{}, rec *Record, durable bool) {
	seen := time.NewTimer(receiptAfter)
	defer seen.Stop()
	for {
		select {
		case <-done:
			return
		case <-w.news:
			if _, _, _, abandoned := w.heard(); abandoned {
				cancel()
			}
		case <-seen.C:
			if durable {
				continue // it has a record
			}
			rec.Apply(EventRun, Change{}, time.Now().UTC())
			r.rec.keepRunning(rec)
		}
	}
}
