package registry

import (
	"context"
	"errors"
	"log/slog"
	"time"
)

// Router carries calls to the socket that can answer them: one on this pod directly, any other over the Bus. It is
// safe for concurrent use.
type Router struct {
	pod      string
	presence *Presence
	dir      Directory
	pods     PodStore
	bus      Bus
	waiters  *waiters
	seen     *seenCalls
	routes   *routeCache
	rec      *recorder
	tasks    *tasks
	log      *slog.Logger
}

func newRouter(cfg PodConfig, p *Presence) *Router {
	return &Router{
		pod: cfg.ID, presence: p, dir: cfg.Store, pods: cfg.Store, bus: cfg.Bus,
		waiters: newWaiters(), seen: newSeenCalls(), routes: newRouteCache(), rec: p.rec, tasks: p.tasks, log: cfg.Log,
	}
}

// Call delivers c and waits for the answer, at most c.Timeout. Cancelling ctx stops the waiting, and tells the device
// unless the cause is ErrAbandoned. Every error is an *Error whose Dispatched says whether the device can have run the
// tool. Farhand never re-sends a call that may have reached a device: only when it certainly did not is the owner
// looked up once more. A call reaches no device whose session its target does not match any more.
func (r *Router) Call(ctx context.Context, c Call) (Result, error) {
	deadline := time.Now().Add(c.Timeout)
	res, err := r.attempt(ctx, &c.Route.Session, &c, deadline)
	if err == nil {
		return res, nil
	}
	gone := c.Route.Remembered && errors.Is(err, CodeToolNotFound)
	if !movedAway(err) && !gone {
		return res, err
	}
	owner, failure := r.relocate(ctx, c.Route, deadline)
	switch {
	case failure != nil && gone:
		return res, err // who held the session said so
	case failure != nil:
		return Result{}, failure
	}
	res, err = r.attempt(ctx, &owner, &c, deadline)
	if movedAway(err) {
		return Result{}, NotConnected()
	}
	return res, err
}

// attempt tries the socket on this pod, or the pod that is said to own the session.
func (r *Router) attempt(ctx context.Context, owner *Session, c *Call, deadline time.Time) (Result, error) {
	if l := r.presence.Get(owner.Key); l != nil {
		if l.generation() >= owner.Generation {
			if c.Route.Target.asksMore() && !c.Route.Target.Matches(l.Session()) {
				return Result{}, noMatch()
			}
			return r.callLocal(ctx, l, c, deadline)
		}
		if owner.Pod != r.pod {
			l.replaced() // the eviction was lost on its way
		}
	}
	if owner.Pod == r.pod || owner.Pod == "" { // what the caller knew is old: the socket has moved, or gone
		return Result{}, ErrNotOwner.With(DispatchedNo)
	}
	return r.callRemote(ctx, owner, c, deadline)
}

// movedAway reports whether err means that the session's socket is not where the call went, so that nothing was
// dispatched and it is worth looking where it is now.
func movedAway(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Dispatched == DispatchedNo && (e.Code == codeNotOwner || e.Code == CodeNotConnected)
}

// relocate asks the directory who owns the session now. It fails with not_connected if that is still the claim already
// tried, and with session_not_found if it is not what the caller asked for any more.
func (r *Router) relocate(ctx context.Context, tried Route, deadline time.Time) (Session, error) {
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	r.routes.drop(tried.Session.Key)
	e, err := r.dir.Entry(ctx, tried.Session.Key)
	if err != nil {
		return Session{}, AsError(err).With(DispatchedNo)
	}
	r.routes.put(e)
	switch {
	case !tried.Target.Matches(e.Session):
		return Session{}, noMatch()
	case e.Session.Pod == tried.Session.Pod && e.Session.Generation == tried.Session.Generation:
		return Session{}, NotConnected()
	}
	return e.Session, nil
}

func (r *Router) callLocal(ctx context.Context, l *Local, c *Call, deadline time.Time) (Result, error) {
	w := r.waiters.add(c, "")
	defer r.waiters.remove(w)
	request := DeviceCall{ID: c.ID, Tool: c.Route.Spec.Name, Args: c.Args, Timeout: time.Until(deadline)}
	reply := func(reply Reply) {
		if !w.take(reply) {
			r.keepUnheard(reply)
		}
	}
	f, err := l.deliver(ctx, request, c.Durable, reply)
	if err != nil {
		return Result{}, err
	}
	defer f.abandon()
	c.Record.note(EventDeliver, Change{Owner: r.pod, Proof: l.owner()}, time.Now())
	wait := r.awaiting(c, w, deadline)
	wait.dispatched = DispatchedYes
	return wait.run(ctx, f.giveUp)
}

func (r *Router) callRemote(ctx context.Context, owner *Session, c *Call, deadline time.Time) (Result, error) {
	if c.Record != nil && !c.Durable { // whose pod writes its own
		c.Record.Proof = owner.owner()
	}
	w := r.waiters.add(c, owner.Pod) // before sending, or a fast answer would find nobody
	defer r.waiters.remove(w)
	left := deadline.Sub(w.since)
	envelope := Envelope{
		V: EnvelopeVersion, Kind: EnvelopeCall, Tenant: owner.Tenant, Session: owner.Key.Session,
		Generation: owner.Generation, Exact: c.Route.Target.asksMore(), CallID: c.ID, Tool: c.Route.Spec.Name, Args: c.Args,
		Durable: c.Durable, TimeoutMS: left.Milliseconds(), ReplyTo: r.pod,
	}
	sending := ctx
	if left < sendPatience { // the bus bounds itself, but not to what a short call has left
		var cancel context.CancelFunc
		sending, cancel = context.WithDeadline(ctx, deadline)
		defer cancel()
	}
	posted, err := r.bus.Post(sending, owner.Pod, envelope, w)
	if err != nil {
		return Result{}, err
	}
	wait := r.awaiting(c, w, deadline)
	wait.posted, wait.dispatched, wait.mayBeLost = posted, DispatchedUnknown, true
	res, err := wait.run(ctx, func(reason string) { r.cancelRemote(owner.Pod, owner.Key, c.ID, reason) })
	if _, _, _, abandoned := w.heard(); abandoned && err != nil && AsError(err).Dispatched == DispatchedNo { // or it would be sent elsewhere
		return Result{}, Errorf(CodeCancelled, "The call was cancelled.").With(DispatchedNo)
	}
	return res, err
}

// awaiting begins the waiting for an answer. It holds nothing of the call by reference, so that calls need not be on the heap.
func (r *Router) awaiting(c *Call, w *waiter, deadline time.Time) await {
	return await{
		router: r, record: c.Record, durable: c.Durable, timeout: c.Timeout, waiter: w, since: w.since, deadline: deadline,
	}
}

// sendPatience is how long a call may take to leave for another pod: a caller must hear soon that the bus is stuck. It is as long
// as the bus takes at most for one batch.
const sendPatience = 800 * time.Millisecond

// cancelRemote tells the owning pod, soon, that nobody waits any more.
func (r *Router) cancelRemote(pod string, key Key, callID, reason string) {
	r.tasks.run(func(ctx context.Context) {
		err := r.bus.Send(ctx, pod, Envelope{
			V: EnvelopeVersion, Kind: EnvelopeCancel, Tenant: key.Tenant, Session: key.Session,
			CallID: callID, Reason: reason,
		})
		if err != nil {
			r.log.Debug("cancellation not delivered", "call", callID, "error", err)
		}
	})
}

// handleCall is called by the bus with a call for a socket of this pod.
func (r *Router) handleCall(e Envelope) {
	// The asking pod sends a call once per claim of the session, and again only when it knows of a newer claim.
	if !r.seen.first(e.CallID, e.Generation) {
		r.log.Warn("call received twice, delivered once", "call", e.CallID)
		return
	}
	if e.V != EnvelopeVersion {
		r.refuse(e.ReplyTo, e.CallID, Errorf(CodeInternal,
			"The pods run versions that do not understand each other. Retry shortly.").With(DispatchedNo))
		return
	}
	l := r.presence.Get(e.Key())
	if l == nil || !holds(l.generation(), e) {
		r.refuse(e.ReplyTo, e.CallID, ErrNotOwner.With(DispatchedNo))
		return
	}
	request := DeviceCall{ID: e.CallID, Tool: e.Tool, Args: e.Args, Timeout: time.Duration(e.TimeoutMS) * time.Millisecond}
	if !e.Durable {
		r.deliverFor(context.Background(), e.ReplyTo, l, request, false) // touches no store, so it does not wait
	} else if !r.deliverSoon(e.ReplyTo, l, request) {
		r.refuse(e.ReplyTo, e.CallID, Errorf(CodeBusy, "The pod that holds the device is too busy.").With(DispatchedNo))
	}
}

// deliverSoon is deliverFor of a durable call, as a task. It reports false if there are too many.
func (r *Router) deliverSoon(pod string, l *Local, c DeviceCall) bool {
	return r.tasks.run(func(ctx context.Context) { r.deliverFor(ctx, pod, l, c, true) })
}

// deliverFor delivers a call that pod waits for.
func (r *Router) deliverFor(ctx context.Context, pod string, l *Local, c DeviceCall, durable bool) {
	if _, err := l.deliver(ctx, c, durable, func(reply Reply) { r.answer(pod, reply) }); err != nil {
		r.refuse(pod, c.ID, err)
	}
}

// refuse tells the pod that waits for a call that its device has not seen it.
func (r *Router) refuse(pod, callID string, err error) {
	r.answer(pod, Reply{V: EnvelopeVersion, CallID: callID, Err: AsError(err)})
}

// answer sends a reply to the pod that waits for it.
func (r *Router) answer(pod string, reply Reply) {
	if err := r.bus.Reply(pod, reply); err != nil {
		r.log.Error("answer not sent; its caller will time out", "call", reply.CallID, "pod", pod, "error", err)
	}
}

// holds reports whether the claim of that generation may take a call. An older one is about to be replaced by the claim
// the caller knows; a newer one may be another user's, which matters to callers that asked for more than the session's id.
func holds(generation int64, e Envelope) bool {
	return generation == e.Generation || generation > e.Generation && !e.Exact
}

// handleCancel gives a call up that this pod waits for, or that was delivered by it.
func (r *Router) handleCancel(e Envelope) {
	if r.waiters.abandon(e.Tenant, e.CallID) != nil {
		return
	}
	if l := r.presence.Get(e.Key()); l != nil {
		l.cancel(e.CallID, e.Reason)
	}
}

// handleReply is called by the bus with what other pods answer.
func (r *Router) handleReply(reply Reply) {
	if !r.waiters.resolve(reply) {
		r.keepUnheard(reply)
	}
}

// keepUnheard records an answer that crossed the end of the waiting: the device was told that it counts. One to a durable
// call is in the record already, and does not say whose it is.
func (r *Router) keepUnheard(reply Reply) {
	if reply.Result == nil || reply.Tenant == "" {
		return
	}
	key := Key{Tenant: reply.Tenant, Session: reply.Session}
	r.tasks.run(func(ctx context.Context) {
		r.presence.keepLate(ctx, key, nil, reply.CallID, *reply.Result, func(context.Context, Moved, error) {})
	})
}

// failDeadPods answers the calls that wait for a pod whose lease had lapsed at the time asked.
func (r *Router) failDeadPods(live []string, asked time.Time) {
	alive := make(map[string]bool, len(live))
	for _, pod := range live {
		alive[pod] = true
	}
	r.waiters.failExcept(alive, asked, Lost())
}

// Waiting returns how many calls are waiting for their answer on this pod.
func (r *Router) Waiting() int { return r.waiters.len() }
