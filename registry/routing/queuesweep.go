package routing

import (
	"context"
	"time"

	"github.com/farhand/farhand/internal/pause"
	"github.com/farhand/farhand/registry"
)

// sweepUntil ends calls that have expired until the pod closes.
func (q *Queue) sweepUntil() {
	for n := 0; pause.For(q.ctx, queueSweep) == nil; n++ {
		if q.serves() == nil {
			continue
		}
		for q.sweep() && q.ctx.Err() == nil {
		}
		if n%queueCount == 0 {
			q.countWaiting()
		}
	}
}

// sweep ends some calls that have expired. It reports whether there may be more.
func (q *Queue) sweep() bool {
	ctx, cancel := context.WithTimeout(q.ctx, storeTimeout)
	defer cancel()
	due, err := q.store.DueQueued(ctx, queueSweepAt, queueAgain)
	if err != nil {
		q.log.Debug("expired calls not read; the pod retries", "error", err)
		return false
	}
	for _, c := range due {
		rec, err := q.ended.calls.ReadCall(ctx, c.Tenant, c.CallID)
		if err == nil && rec.State == registry.StateQueued {
			var moved registry.Moved
			moved, err = q.ended.calls.MoveCall(ctx, c.Tenant, c.CallID, registry.EventExpire, registry.Change{})
			if rec = moved.Record; err == nil {
				q.ended.ended(ctx, moved)
			}
		}
		if registry.IsCallNotFound(err) || err == nil && rec.State.Final() {
			err = q.remove(ctx, c, &rec)
		}
		if err != nil {
			q.log.Debug("expired call not ended; the pod retries", "call", c.CallID, "error", err)
		}
	}
	return len(due) >= queueSweepAt
}

// countWaiting reads what waits in the fleet, for metrics.
func (q *Queue) countWaiting() {
	ctx, cancel := context.WithTimeout(q.ctx, storeTimeout)
	defer cancel()
	all, err := q.store.QueueStats(ctx)
	if err != nil {
		return // the metrics keep the last numbers
	}
	calls, oldest := int64(0), time.Duration(0)
	for _, of := range all {
		calls, oldest = calls+of.Calls, max(oldest, of.Oldest)
	}
	q.waiting.Store(calls)
	q.oldest.Store(int64(oldest.Seconds()))
}
