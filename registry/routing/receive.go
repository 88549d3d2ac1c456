package routing

import (
	"context"
	"errors"
	"time"

	"github.com/farhand/farhand/registry"
)

// handleCall is called by the bus with a call for a socket of this pod.
func (r *Router) handleCall(e registry.Envelope) {
	// The asking pod sends a call again only when it knows of a newer claim of the session, or in another attempt.
	if !r.seen.add(e.CallID, e.Attempt, e.Generation) {
		r.counts.receivedTwice.Add(1)
		r.log.Warn("call received twice, delivered once", "call", e.CallID)
		return
	}
	if e.V != registry.EnvelopeVersion {
		r.refuse(e.ReplyTo, e.CallID, registry.Errorf(registry.CodeInternal,
			"The pods run versions that do not understand each other. Retry shortly.").With(registry.DispatchedNo))
		return
	}
	// A claim that is being restored has its generation in the store before this pod knows of it.
	l := r.local.Get(e.Key())
	early := l != nil && l.generation() < e.Generation
	if !e.Durable && !early {
		r.deliverFor(context.Background(), e) // touches no store, so it does not wait
		return
	}
	later := func(ctx context.Context) {
		if early {
			l.awaitWrites(staleWait)
		}
		r.deliverFor(ctx, e)
	}
	if !r.tasks.start(e.Key(), later) {
		busy := registry.Errorf(registry.CodeBusy, "The pod that holds the device is too busy.")
		r.refuse(e.ReplyTo, e.CallID, busy.With(registry.DispatchedNo))
	}
}

// deliverFor delivers the call of an envelope, if its session is here.
func (r *Router) deliverFor(ctx context.Context, e registry.Envelope) {
	pod, l := e.ReplyTo, r.local.Get(e.Key())
	if l == nil || !holds(l.generation(), e) {
		r.refuse(pod, e.CallID, registry.ErrNotOwner.With(registry.DispatchedNo))
		return
	}
	timeout := time.Duration(e.TimeoutMS) * time.Millisecond
	c := DeviceCall{ID: e.CallID, Tool: e.Tool, Args: e.Args, Timeout: timeout}
	onReply := func(reply registry.Reply) { r.answer(pod, reply) }
	_, err := l.deliver(ctx, c, basis{e.Spec, e.Attributes}, e.Durable, onReply)
	if err == nil {
		return
	}
	// The asking pod is going to read the session from the store, so what has changed must be there first.
	later := func(context.Context) {
		l.awaitWrites(staleWait)
		r.refuse(pod, c.ID, err)
	}
	if !errors.Is(err, registry.CodeStaleRoute) || !r.tasks.start(e.Key(), later) {
		r.refuse(pod, c.ID, err)
	}
}

// staleWait is how long the refusal of a call may wait for the store: less than the asking pod waits for word of a
// call.
const staleWait = 500 * time.Millisecond

// refuse tells the pod that waits for a call that its device has not seen it.
func (r *Router) refuse(pod, callID string, err error) {
	r.answer(pod, registry.Reply{V: registry.EnvelopeVersion, CallID: callID, Err: registry.AsError(err)})
}

// answer sends a reply to the pod that waits for it.
func (r *Router) answer(pod string, reply registry.Reply) {
	if err := r.bus.Reply(pod, reply); err != nil {
		r.log.Error("answer not sent; its caller will time out", "call", reply.CallID, "pod", pod, "error", err)
	}
}

// holds reports whether a claim with that generation may take the call e. An older claim is about to be replaced by the
// claim that the caller knows. A newer one may be another user's, which matters to callers that asked for more than the
// session's id.
func holds(generation int64, e registry.Envelope) bool {
	return generation == e.Generation || generation > e.Generation && !e.Exact
}

// handleCancel cancels a call that this pod waits for, or that is in flight to one of its devices.
func (r *Router) handleCancel(e registry.Envelope) {
	if r.cancelPending(e.Tenant, e.CallID) != nil {
		return
	}
	if l := r.local.Get(e.Key()); l != nil {
		l.cancel(e.CallID, e.Reason)
	}
}

// await makes a call that is not routed yet known on this pod, until leave is called.
func (r *Router) await(rec *registry.Record) (p *pendingCall, leave func()) {
	p = r.pending.add(&registry.Call{ID: rec.CallID, Record: rec}, "")
	return p, func() { r.pending.remove(p) }
}

// cancelPending notifies the caller on this pod that its call was cancelled. It returns the call, nil if nobody waits
// for it.
func (r *Router) cancelPending(tenant, callID string) *pendingCall {
	return r.pending.cancel(tenant, callID)
}

// handleReply is called by the bus with the replies of other pods.
func (r *Router) handleReply(reply registry.Reply) {
	if !r.pending.deliver(reply) {
		r.storeMissedAnswer(reply)
	}
}

// storeMissedAnswer stores an answer that came just after the wait had ended, because the device was told that its
// answer counts. The answer to a durable call is in the record already, and names no tenant.
func (r *Router) storeMissedAnswer(reply registry.Reply) {
	if reply.Result == nil || reply.Tenant == "" {
		return
	}
	key := registry.Key{Tenant: reply.Tenant, Session: reply.Session}
	r.tasks.start(key, func(ctx context.Context) {
		ignore := func(context.Context, registry.Moved, error) {}
		r.local.storeLateAnswer(ctx, key, nil, reply.CallID, *reply.Result, ignore)
	})
}
