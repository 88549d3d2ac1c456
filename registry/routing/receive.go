package routing

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/farhand/farhand/registry"
)

// handleCall is called by the bus with a call for a socket of this pod.
func (r *Router) handleCall(e registry.Envelope) {
	// The calling pod sends a call again only for a newer claim of the session, or in another attempt.
	if !r.seen.add(e.CallID, e.Attempt, e.Generation) {
		r.counts.add(&r.counts.ReceivedTwice, 1)
		r.log.Warn("call received twice, delivered once", "call", e.CallID)
		return
	}
	if e.V != registry.EnvelopeVersion {
		r.refuse(e.ReplyTo, e.CallID, errVersions())
		return
	}
	// The store has the generation of a claim that is being restored before this pod does.
	l := r.hub.Get(e.Key())
	early := l != nil && l.generation() < e.Generation
	if !e.Durable && !early {
		r.deliverFor(context.Background(), e) // uses no store, so it does not wait
		return
	}
	later := func(ctx context.Context) {
		if early {
			l.awaitWrites()
		}
		r.deliverFor(ctx, e)
	}
	if !r.tasks.start(e.Key(), later) {
		busy := registry.Errorf(registry.CodeBusy, "The pod with the device's connection is too busy. Retry after a "+
			"moment.")
		r.refuse(e.ReplyTo, e.CallID, busy.With(registry.DispatchedNo))
	}
}

// deliverFor delivers the call of an envelope, if its session is here.
func (r *Router) deliverFor(ctx context.Context, e registry.Envelope) {
	pod, l := e.ReplyTo, r.hub.Get(e.Key())
	if l == nil || !holds(l.generation(), e) {
		r.refuse(pod, e.CallID, registry.ErrNotOwner.With(registry.DispatchedNo))
		return
	}
	timeout := time.Duration(e.TimeoutMS) * time.Millisecond
	c := DeviceCall{ID: e.CallID, Tool: e.Tool, Args: e.Args, Timeout: timeout}
	onReply := func(reply registry.Reply) {
		reply.Owner = e.Tenant
		r.answer(pod, reply)
	}
	_, err := l.deliver(ctx, c, basis{e.Spec, e.Attributes}, e.Durable, onReply)
	if err == nil {
		return
	}
	// The calling pod will read the session from the store, so the changes must be there first.
	later := func(context.Context) {
		l.awaitWrites()
		r.refuse(pod, c.ID, err)
	}
	if !errors.Is(err, registry.CodeStaleRoute) || !r.tasks.start(e.Key(), later) {
		r.refuse(pod, c.ID, err)
	}
}

// staleWait is how long a rejection may wait for the store. It is shorter than the 2 s that the calling pod
// waits for a receipt.
const staleWait = 500 * time.Millisecond

// refuse tells the pod that waits for a call that the device has not received it.
func (r *Router) refuse(pod, callID string, err error) {
	r.answer(pod, registry.Reply{CallID: callID, Err: registry.AsError(err)})
}

func (r *Router) answer(pod string, reply registry.Reply) {
	reply.V = registry.EnvelopeVersion
	err := r.bus.Reply(pod, reply)
	if err != nil && reply.Result != nil && reply.Tenant != "" { // only the caller could have the answer
		r.log.Warn("answer dropped; its caller gets busy", "call", reply.CallID, "pod", pod, "error", err)
		e := registry.Errorf(registry.CodeBusy, "The device has answered, but its answer was dropped: too many "+
			"long answers of this tenant were being sent. Make fewer such calls at a time.")
		err = r.bus.Reply(pod, registry.Reply{
			V: reply.V, CallID: reply.CallID, Err: e.With(registry.DispatchedYes),
		})
	}
	if err != nil {
		r.log.Error("answer not sent; its caller will time out", "call", reply.CallID, "pod", pod, "error", err)
	}
}

// holds reports whether a claim with that generation may take the call e. An older claim is about to be replaced by the
// claim that the caller knows. A newer claim may be another user's, which matters to callers that asked for more than
// the session's id.
func holds(generation int64, e registry.Envelope) bool {
	return generation == e.Generation || generation > e.Generation && !e.Exact
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

// handleReply is called by the bus with the replies of other pods.
func (r *Router) handleReply(reply registry.Reply) {
	if !r.pending.deliver(reply) {
		r.storeMissedAnswer(reply)
	}
}

// storeMissedAnswer stores an answer that came just after the wait had ended, because the device was told that its
// answer counts. The answer to a durable call is already in the record, and has no tenant.
func (r *Router) storeMissedAnswer(reply registry.Reply) {
	if reply.Result == nil || reply.Tenant == "" {
		return
	}
	key := registry.Key{Tenant: reply.Tenant, Session: reply.Session}
	r.tasks.start(key, func(ctx context.Context) {
		r.hub.storeLateAnswer(ctx, key, nil, reply.CallID, *reply.Result, func(registry.Moved, error) {})
	})
}

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
