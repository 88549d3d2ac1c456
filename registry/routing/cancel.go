package routing

import (
	"context"
	"slices"
	"time"

	"github.com/farhand/farhand/registry"
)

// ending is the end of a call without a stored record, as its caller saw it.
type ending struct {
	record registry.Record
	line   int64 // the recorder's line with the record, for waitFor; zero if the record is not stored
}

// Cancel cancels a call on any pod and returns its record. Cancelling a finished call has no effect.
func (c *Calls) Cancel(ctx context.Context, tenant, callID string) (registry.Record, error) {
	ended, stop := c.endings.listen(callID, 1) // before its caller can end it
	defer stop()
	w := c.router.pending.cancel(tenant, callID)
	if w != nil && w.record.Mode == registry.ModeSync && w.record.IdempotencyKey == "" {
		return c.awaitCancelled(ctx, w, ended)
	}
	rec, err := c.Get(ctx, tenant, callID)
	if err != nil || rec.State.Final() {
		return rec, err
	}
	moved, err := c.calls.MoveCall(ctx, tenant, callID, registry.EventCancel, registry.Change{
		Err: callCancelled(rec.Dispatched),
	})
	if err != nil {
		return registry.Record{}, err
	}
	if moved.Applied {
		c.notifyWatchers(moved)
		c.leaveQueue(ctx, &moved.Record)
	}
	c.broadcastCancel(ctx, moved.Record)
	return moved.Record, nil
}

// awaitCancelled returns the record of a light call that was just cancelled here. It waits for the caller to report the
// call's end, because only the caller knows whether the device had received it, or even answered. A later Get returns
// the same record.
func (c *Calls) awaitCancelled(ctx context.Context, w *pendingCall, ended <-chan ending) (registry.Record, error) {
	select {
	case end := <-ended:
		return c.asStored(ctx, end), nil
	case <-time.After(cancelWait + watchPause):
	case <-ctx.Done():
		return registry.Record{}, ctx.Err()
	}
	select {
	case end := <-ended: // both were ready, and select chose the limit
		return c.asStored(ctx, end), nil
	default:
	}
	rec := w.publicRecord()
	rec.Pod = c.pod
	rec.Apply(registry.EventCancel, registry.Change{Err: callCancelled("")}, time.Now().UTC())
	return rec, nil
}

// asStored waits until the store has the record of a finished call, and returns it as other readers see it.
func (c *Calls) asStored(ctx context.Context, end ending) registry.Record {
	ctx, cancel := context.WithTimeout(ctx, watchPause)
	defer cancel()
	c.rec.waitFor(ctx, end.line)
	if rec, err := c.calls.ReadCall(ctx, end.record.Tenant, end.record.CallID); err == nil && rec.State.Final() {
		return rec
	}
	return end.record
}

// broadcastCancel sends a cancellation to the two pods involved in a call: the pod that waits for it and the pod whose
// socket it was written to.
func (c *Calls) broadcastCancel(ctx context.Context, rec registry.Record) {
	e := registry.Envelope{
		Kind: registry.EnvelopeCancel, Tenant: rec.Tenant, Session: rec.SessionID, CallID: rec.CallID,
		Reason: "cancelled",
	}
	for _, pod := range slices.Compact([]string{rec.Pod, rec.Owner}) {
		switch pod {
		case "":
		case c.pod:
			c.router.handleCancel(e)
		default:
			c.trySend(ctx, pod, e)
		}
	}
}

// cancelRemote tells the owning pod, in a task, that no caller waits for the call any more. It does not block.
func (r *Router) cancelRemote(pod string, key registry.Key, callID, reason string) {
	r.tasks.start(ofSession(key), func(ctx context.Context) {
		r.trySend(ctx, pod, registry.Envelope{
			Kind: registry.EnvelopeCancel, Tenant: key.Tenant, Session: key.Session, CallID: callID, Reason: reason,
		})
	})
}

// handleCancel cancels a call that this pod waits for, or that is in flight to one of its devices.
func (r *Router) handleCancel(e registry.Envelope) {
	if r.pending.cancel(e.Tenant, e.CallID) != nil {
		return
	}
	if l := r.hub.Get(e.Key()); l != nil {
		l.cancel(e.CallID, e.Reason)
	}
}
