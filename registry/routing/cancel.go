package routing

import (
	"context"
	"slices"
	"time"

	"github.com/farhand/farhand/registry"
)

// ending is how a call without a record of its own ended, as its caller saw it.
type ending struct {
	record registry.Record
	line   int64 // the recorder's line with the record, for waitFor; zero if the record is not stored
}

// canceller is the part of a Router that Calls need. It cancels calls that wait on this pod or are in flight to its
// devices.
type canceller interface {
	await(rec *registry.Record) (p *pendingCall, leave func())
	cancelPending(tenant, callID string) *pendingCall
	handleCancel(e registry.Envelope)
}

// Cancel cancels a call, wherever it runs, and returns its record. Cancelling a call that has ended changes nothing.
func (c *Calls) Cancel(ctx context.Context, tenant, callID string) (registry.Record, error) {
	ended, stop := c.endings.listen(callID, 1) // before its caller can end it
	defer stop()
	w := c.router.cancelPending(tenant, callID)
	if w != nil && w.record.Mode == registry.ModeSync && w.record.IdempotencyKey == "" {
		return c.awaitCancelled(ctx, w, ended)
	}
	rec, err := c.store.ReadCall(ctx, tenant, callID)
	if err != nil {
		if registry.IsCallNotFound(err) {
			return c.Get(ctx, tenant, callID)
		}
		return registry.Record{}, err
	}
	if rec.State.Final() {
		return rec, nil
	}
	moved, err := c.store.MoveCall(ctx, tenant, callID, registry.EventCancel, registry.Change{
		Err: registry.Errorf(registry.CodeCancelled, "The call was cancelled.").With(rec.Dispatched),
	})
	if err != nil {
		return registry.Record{}, err
	}
	if moved.Applied {
		notifyWatchers(c.bus, c.log, moved)
	}
	c.broadcastCancel(ctx, moved.Record)
	return moved.Record, nil
}

// awaitCancelled returns the record of a light call that was just cancelled here. It waits for the caller to say how
// the call ended, because only the caller knows whether the device had seen it, or even answered. A later Get returns
// the same record.
func (c *Calls) awaitCancelled(ctx context.Context, w *pendingCall, ended <-chan ending) (registry.Record, error) {
	limit := time.NewTimer(cancelWait + watchPause)
	defer limit.Stop()
	select {
	case end := <-ended:
		return c.asStored(ctx, end), nil
	case <-limit.C:
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

// asStored waits until the store has the record of a call that ended, and returns it as others find it.
func (c *Calls) asStored(ctx context.Context, end ending) registry.Record {
	ctx, cancel := context.WithTimeout(ctx, watchPause)
	defer cancel()
	c.rec.waitFor(ctx, end.line)
	if rec, err := c.store.ReadCall(ctx, end.record.Tenant, end.record.CallID); err == nil && rec.State.Final() {
		return rec
	}
	return end.record
}

// broadcastCancel tells the two pods involved in a cancelled call: the one that waits for it and the one whose socket
// it was written to.
func (c *Calls) broadcastCancel(ctx context.Context, rec registry.Record) {
	e := registry.Envelope{
		V: registry.EnvelopeVersion, Kind: registry.EnvelopeCancel, Tenant: rec.Tenant, Session: rec.SessionID,
		CallID: rec.CallID, Reason: "cancelled",
	}
	for _, pod := range slices.Compact([]string{rec.Pod, rec.Owner}) {
		switch pod {
		case "":
		case c.pod:
			c.router.handleCancel(e)
		default:
			if err := c.bus.Send(ctx, pod, e); err != nil {
				c.log.Debug("cancellation not delivered", "call", rec.CallID, "pod", pod, "error", err)
			}
		}
	}
}
