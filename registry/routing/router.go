package routing

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/farhand/farhand/registry"
)

// sessions is the part of a Hub that a Router needs.
type sessions interface {
	// Get returns the session if its socket is on this pod, else nil.
	Get(key registry.Key) *LocalSession

	// keepLate stores an answer that nobody waits for; see Hub.keepLate.
	keepLate(ctx context.Context, key registry.Key, proofs []string, callID string, r registry.Result,
		then func(context.Context, registry.Moved, error))
}

// Router carries calls to the socket that can answer them: one on this pod directly, any other over the Bus. It is
// safe for concurrent use.
type Router struct {
	pod     string
	local   sessions
	calls   registry.CallStore
	counts  *counters
	dir     registry.Directory
	pods    registry.PodStore
	bus     registry.Bus
	pending *pendingCalls
	seen    *seenCalls
	routes  routeCache
	rec     *recorder
	tasks   *tasks
	log     *slog.Logger
}

func newRouter(cfg PodConfig, local sessions, rec *recorder, t *tasks, n *counters) *Router {
	return &Router{
		pod: cfg.ID, local: local, calls: cfg.calls, counts: n, dir: cfg.Store, pods: cfg.Store, bus: cfg.Bus,
		pending: newPendingCalls(), seen: newSeenCalls(), routes: newRouteCache(), rec: rec, tasks: t, log: cfg.Log,
	}
}

// Call delivers c and waits for the answer, at most c.Timeout. Cancelling ctx ends the wait, and tells the device
// unless the cause is ErrAbandoned. Every error is an *Error whose Dispatched says whether the device can have run the
// tool. Farhand never sends a call again that may have reached a device. If it certainly did not, Call looks up the
// owner once more and tries there. A call never reaches a device whose session does not match the target any more.
func (r *Router) Call(ctx context.Context, c registry.Call) (registry.Result, error) {
	deadline := time.Now().Add(c.Timeout)
	res, err := r.attempt(ctx, &c.Route.Session, &c, deadline)
	if err == nil {
		return res, nil
	}
	gone := c.Route.Remembered && errors.Is(err, registry.CodeToolNotFound)
	if !movedAway(err) && !gone {
		return res, err
	}
	owner, failure := r.relocate(ctx, c.Route, deadline)
	switch {
	case failure != nil && gone:
		return res, err // the holder of the session said so
	case failure != nil:
		return registry.Result{}, failure
	}
	res, err = r.attempt(ctx, &owner, &c, deadline)
	if movedAway(err) {
		return registry.Result{}, registry.NotConnected()
	}
	return res, err
}

// attempt tries the socket on this pod, or else the pod of owner.
func (r *Router) attempt(
	ctx context.Context, owner *registry.Session, c *registry.Call, deadline time.Time,
) (registry.Result, error) {
	if l := r.local.Get(owner.Key); l != nil {
		if l.generation() >= owner.Generation {
			if c.Route.Target.AsksMore() && !c.Route.Target.Matches(l.Session()) {
				return registry.Result{}, noMatch()
			}
			return r.callLocal(ctx, l, c, deadline)
		}
		if owner.Pod != r.pod {
			l.replaced() // the eviction was lost on its way
		}
	}
	if owner.Pod == r.pod || owner.Pod == "" { // the route is old: the socket has moved or is gone
		return registry.Result{}, registry.ErrNotOwner.With(registry.DispatchedNo)
	}
	return r.callRemote(ctx, owner, c, deadline)
}

// movedAway reports whether err means that the session's socket is not where the call went. Nothing was dispatched
// then, and the socket may be found elsewhere.
func movedAway(err error) bool {
	var e *registry.Error
	return errors.As(err, &e) && e.Dispatched == registry.DispatchedNo &&
		(e.Code == registry.CodeNotOwner || e.Code == registry.CodeNotConnected)
}

// relocate asks the directory which pod owns the session now. It fails with not_connected if that is the claim that was
// tried already, and with session_not_found if the session does not match the target any more.
func (r *Router) relocate(ctx context.Context, tried registry.Route, deadline time.Time) (registry.Session, error) {
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	r.routes.drop(tried.Session.Key)
	e, err := r.dir.Entry(ctx, tried.Session.Key)
	if err != nil {
		return registry.Session{}, registry.AsError(err).With(registry.DispatchedNo)
	}
	r.routes.put(e)
	switch {
	case !tried.Target.Matches(e.Session):
		return registry.Session{}, noMatch()
	case e.Session.Pod == tried.Session.Pod && e.Session.Generation == tried.Session.Generation:
		return registry.Session{}, registry.NotConnected()
	}
	return e.Session, nil
}

// callLocal carries a call to a socket of this pod.
func (r *Router) callLocal(
	ctx context.Context, l *LocalSession, c *registry.Call, deadline time.Time,
) (registry.Result, error) {
	w := r.pending.add(c, "")
	defer r.pending.remove(w)
	request := DeviceCall{ID: c.ID, Tool: c.Route.Spec.Name, Args: c.Args, Timeout: time.Until(deadline)}
	reply := func(reply registry.Reply) {
		if !w.deliver(reply) {
			r.keepUnheard(reply)
		}
	}
	f, err := l.deliver(ctx, request, c.Durable, reply)
	if err != nil {
		return registry.Result{}, err
	}
	defer f.abandon()
	note(c.Record, registry.EventDeliver, registry.Change{Owner: r.pod, Proof: l.owner()}, time.Now())
	wait := r.newWait(c, w, deadline)
	wait.phase = phaseDelivered
	return wait.run(ctx, f.cancel)
}

// callRemote carries a call over the bus to the pod that owns the session.
func (r *Router) callRemote(
	ctx context.Context, owner *registry.Session, c *registry.Call, deadline time.Time,
) (registry.Result, error) {
	if c.Record != nil && !c.Durable { // the owning pod writes the proof of a durable call
		c.Record.Proof = owner.OwnerProof()
	}
	w := r.pending.add(c, owner.Pod) // before the call is sent, or a fast answer would find no caller
	defer r.pending.remove(w)
	remaining := deadline.Sub(w.since)
	envelope := registry.Envelope{
		V: registry.EnvelopeVersion, Kind: registry.EnvelopeCall, Tenant: owner.Tenant, Session: owner.Key.Session,
		Generation: owner.Generation, Exact: c.Route.Target.AsksMore(),
		CallID: c.ID, Tool: c.Route.Spec.Name, Args: c.Args,
		Durable: c.Durable, TimeoutMS: remaining.Milliseconds(), ReplyTo: r.pod,
	}
	sending := ctx
	if remaining < sendTimeout { // the bus bounds itself, but not to the timeout of a short call
		var cancel context.CancelFunc
		sending, cancel = context.WithDeadline(ctx, deadline)
		defer cancel()
	}
	pending, err := r.bus.SendAsync(sending, owner.Pod, envelope, w)
	if err != nil {
		return registry.Result{}, err
	}
	wait := r.newWait(c, w, deadline)
	wait.phase, wait.sending = phaseSending, pending
	res, err := wait.run(ctx, func(reason string) { r.cancelRemote(owner.Pod, owner.Key, c.ID, reason) })
	unsent := err != nil && registry.AsError(err).Dispatched == registry.DispatchedNo
	if unsent && w.progress().cancelled { // another error might have Call try the next pod
		return registry.Result{}, callCancelled(registry.DispatchedNo)
	}
	return res, err
}

// newWait returns the wait for a call's answer. The wait does not refer to c, so that calls need not be on the heap.
func (r *Router) newWait(c *registry.Call, p *pendingCall, deadline time.Time) wait {
	return wait{
		router: r, record: c.Record, durable: c.Durable, timeout: c.Timeout,
		call: p, since: p.since, deadline: deadline,
	}
}

// sendTimeout is how long the bus may take to send a call. It is short because a caller must learn soon that the bus is
// stuck, and as long as the bus may take for one batch.
const sendTimeout = 800 * time.Millisecond

// cancelRemote tells the owning pod, in a task of its own, that nobody waits any more.
func (r *Router) cancelRemote(pod string, key registry.Key, callID, reason string) {
	r.tasks.run(func(ctx context.Context) {
		err := r.bus.Send(ctx, pod, registry.Envelope{
			V: registry.EnvelopeVersion, Kind: registry.EnvelopeCancel, Tenant: key.Tenant, Session: key.Session,
			CallID: callID, Reason: reason,
		})
		if err != nil {
			r.log.Debug("cancellation not delivered", "call", callID, "error", err)
		}
	})
}

// handleCall is called by the bus with a call for a socket of this pod.
func (r *Router) handleCall(e registry.Envelope) {
	// The asking pod sends a call once per claim of the session, and again only when it knows of a newer claim.
	if !r.seen.add(e.CallID, e.Generation) {
		r.counts.receivedTwice.Add(1)
		r.log.Warn("call received twice, delivered once", "call", e.CallID)
		return
	}
	if e.V != registry.EnvelopeVersion {
		r.refuse(e.ReplyTo, e.CallID, registry.Errorf(registry.CodeInternal,
			"The pods run versions that do not understand each other. Retry shortly.").With(registry.DispatchedNo))
		return
	}
	l := r.local.Get(e.Key())
	if l == nil || !holds(l.generation(), e) {
		r.refuse(e.ReplyTo, e.CallID, registry.ErrNotOwner.With(registry.DispatchedNo))
		return
	}
	timeout := time.Duration(e.TimeoutMS) * time.Millisecond
	request := DeviceCall{ID: e.CallID, Tool: e.Tool, Args: e.Args, Timeout: timeout}
	if !e.Durable {
		r.deliverFor(context.Background(), e.ReplyTo, l, request, false) // touches no store, so it does not wait
	} else if !r.deliverSoon(e.ReplyTo, l, request) {
		busy := registry.Errorf(registry.CodeBusy, "The pod that holds the device is too busy.")
		r.refuse(e.ReplyTo, e.CallID, busy.With(registry.DispatchedNo))
	}
}

// deliverSoon is deliverFor for a durable call, in a task. It reports false if there are too many tasks.
func (r *Router) deliverSoon(pod string, l *LocalSession, c DeviceCall) bool {
	return r.tasks.run(func(ctx context.Context) { r.deliverFor(ctx, pod, l, c, true) })
}

// deliverFor delivers a call that pod waits for.
func (r *Router) deliverFor(ctx context.Context, pod string, l *LocalSession, c DeviceCall, durable bool) {
	if _, err := l.deliver(ctx, c, durable, func(reply registry.Reply) { r.answer(pod, reply) }); err != nil {
		r.refuse(pod, c.ID, err)
	}
}

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

// cancelPending notifies the caller on this pod that its call was cancelled. It returns the call, nil if nobody waits
// for it.
func (r *Router) cancelPending(tenant, callID string) *pendingCall {
	return r.pending.cancel(tenant, callID)
}

// handleReply is called by the bus with the replies of other pods.
func (r *Router) handleReply(reply registry.Reply) {
	if !r.pending.deliver(reply) {
		r.keepUnheard(reply)
	}
}

// keepUnheard stores an answer that came just after the wait had ended, because the device was told that its answer
// counts. The answer to a durable call is in the record already, and names no tenant.
func (r *Router) keepUnheard(reply registry.Reply) {
	if reply.Result == nil || reply.Tenant == "" {
		return
	}
	key := registry.Key{Tenant: reply.Tenant, Session: reply.Session}
	r.tasks.run(func(ctx context.Context) {
		r.local.keepLate(ctx, key, nil, reply.CallID, *reply.Result, func(context.Context, registry.Moved, error) {})
	})
}

// failDeadPods fails the calls that wait for a pod whose lease had lapsed at the time asked.
func (r *Router) failDeadPods(live []string, asked time.Time) {
	alive := make(map[string]bool, len(live))
	for _, pod := range live {
		alive[pod] = true
	}
	r.pending.failExcept(alive, asked, registry.Lost())
}

// Pending returns how many calls are waiting for their answer on this pod.
func (r *Router) Pending() int { return r.pending.len() }
