package registry

import (
	"context"
	"errors"
	"log/slog"
	"time"
)

// lostAfter is how long a remote call may stay without answer or receipt before its fate is called unknown: the
// owning pod sends a receipt after receiptAfter, so silence means the message or the pod is gone.
const lostAfter = 2 * time.Second

// Router carries calls to the socket that can answer them: one on this pod directly, any other over the Bus. It is
// safe for concurrent use.
type Router struct {
	pod      string
	presence *Presence
	dir      Directory
	bus      Bus
	waiters  *waiters
	seen     *seenCalls
	log      *slog.Logger
}

func newRouter(cfg PodConfig, p *Presence) *Router {
	return &Router{
		pod: cfg.ID, presence: p, dir: cfg.Store, bus: cfg.Bus,
		waiters: newWaiters(), seen: newSeenCalls(), log: cfg.Log,
	}
}

// Call delivers c and waits for the answer, at most c.Timeout. Cancelling ctx stops the waiting. Every error is an
// *Error whose Dispatched says whether the device can have run the tool. Farhand never re-sends a call that may
// have reached a device: only when it certainly did not is the owner looked up once more.
func (r *Router) Call(ctx context.Context, c Call) (Result, error) {
	deadline := time.Now().Add(c.Timeout)
	res, err := r.attempt(ctx, c.Route.Session, c, deadline)
	if !movedAway(err) {
		return res, err
	}
	owner, err := r.relocate(ctx, c.Route.Session)
	if err != nil {
		return Result{}, err
	}
	res, err = r.attempt(ctx, owner, c, deadline)
	if movedAway(err) {
		return Result{}, notConnected()
	}
	return res, err
}

// attempt tries the socket on this pod, or the pod that is said to own the session.
func (r *Router) attempt(ctx context.Context, owner Session, c Call, deadline time.Time) (Result, error) {
	if l := r.presence.Get(owner.Key); l != nil {
		return r.callLocal(ctx, l, c, deadline)
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

// relocate asks the directory who owns the session now. It fails with not_connected if that is still the claim
// already tried.
func (r *Router) relocate(ctx context.Context, tried Session) (Session, error) {
	e, err := r.dir.Entry(ctx, tried.Key)
	if err != nil {
		return Session{}, AsError(err).With(DispatchedNo)
	}
	if e.Session.Pod == tried.Pod && e.Session.Generation == tried.Generation {
		return Session{}, notConnected()
	}
	return e.Session, nil
}

func (r *Router) callLocal(ctx context.Context, l *Local, c Call, deadline time.Time) (Result, error) {
	final := make(chan Reply, 1)
	err := l.deliver(
		DeviceCall{ID: c.ID, Tool: c.Route.Spec.Name, Args: c.Args, Timeout: time.Until(deadline)},
		false, func(reply Reply) { final <- reply })
	if err != nil {
		return Result{}, err
	}
	defer l.forget(c.ID)
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	select {
	case reply := <-final:
		return unpack(reply)
	case <-timer.C:
		return Result{}, timedOut(c.Timeout, DispatchedYes)
	case <-ctx.Done():
		return Result{}, stoppedWaiting(ctx, c.Timeout, DispatchedYes)
	}
}

func (r *Router) callRemote(ctx context.Context, owner Session, c Call, deadline time.Time) (Result, error) {
	w := r.waiters.add(c.ID, owner.Pod) // before sending, or a fast answer would find nobody
	defer r.waiters.remove(c.ID)
	sendCtx, cancel := context.WithDeadline(ctx, deadline)
	err := r.bus.Send(sendCtx, owner.Pod, Envelope{
		V: EnvelopeVersion, Kind: EnvelopeCall, Tenant: owner.Tenant, Session: owner.Key.Session,
		Generation: owner.Generation, CallID: c.ID, Tool: c.Route.Spec.Name, Args: c.Args,
		TimeoutMS: time.Until(deadline).Milliseconds(), ReplyTo: r.pod,
	})
	cancel()
	if err != nil {
		return Result{}, err
	}
	return r.await(ctx, w, c.Timeout, deadline)
}

// await waits for the final reply. Without a receipt it gives up early: the owner would have sent one.
func (r *Router) await(ctx context.Context, w *waiter, timeout time.Duration, deadline time.Time) (Result, error) {
	dispatched := DispatchedUnknown
	wait := time.Until(deadline)
	mayBeLost := wait > lostAfter
	if mayBeLost {
		wait = lostAfter
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		select {
		case reply := <-w.final:
			res, err := unpack(reply)
			if e := (*Error)(nil); errors.As(err, &e) && e.Code == CodeLost {
				err = e.With(dispatched)
			}
			return res, err
		case <-w.receipt:
			dispatched, mayBeLost = DispatchedYes, false
			timer.Reset(time.Until(deadline))
		case <-timer.C:
			if mayBeLost {
				return Result{}, lost().With(DispatchedUnknown)
			}
			return Result{}, timedOut(timeout, dispatched)
		case <-ctx.Done():
			return Result{}, stoppedWaiting(ctx, timeout, dispatched)
		}
	}
}

// HandleReply is called by the bus with what other pods answer.
func (r *Router) handleReply(reply Reply) {
	if !r.waiters.resolve(reply) && !reply.Delivered {
		r.log.Debug("answer for a call nobody waits for", "call", reply.CallID)
	}
}

// handleCall is called by the bus with a call for a socket of this pod.
func (r *Router) handleCall(e Envelope) {
	if !r.seen.first(e.CallID) {
		r.log.Warn("call received twice, delivered once", "call", e.CallID)
		return
	}
	answer := func(reply Reply) {
		if err := r.bus.Reply(e.ReplyTo, reply); err != nil {
			r.log.Error("answer not sent; its caller will time out", "call", e.CallID, "pod", e.ReplyTo, "error", err)
		}
	}
	refuse := func(err error) {
		answer(Reply{V: EnvelopeVersion, CallID: e.CallID, Err: AsError(err)})
	}
	if e.V != EnvelopeVersion {
		refuse(Errorf(CodeInternal, "The pods run versions that do not understand each other. Retry shortly.").With(DispatchedNo))
		return
	}
	l := r.presence.Get(e.Key())
	if l == nil {
		refuse(ErrNotOwner.With(DispatchedNo))
		return
	}
	timeout := time.Duration(e.TimeoutMS) * time.Millisecond
	err := l.deliver(DeviceCall{ID: e.CallID, Tool: e.Tool, Args: e.Args, Timeout: timeout}, true, answer)
	if err != nil {
		refuse(err)
	}
}

// failDeadPods answers the calls that wait for a pod whose lease has lapsed.
func (r *Router) failDeadPods(live []string) {
	alive := make(map[string]bool, len(live))
	for _, pod := range live {
		alive[pod] = true
	}
	r.waiters.failExcept(alive, lost())
}

// Waiting returns how many calls to other pods are waiting for their answer.
func (r *Router) Waiting() int { return r.waiters.len() }

func unpack(r Reply) (Result, error) {
	switch {
	case r.Err != nil:
		return Result{}, r.Err
	case r.Result != nil:
		return *r.Result, nil
	default:
		return Result{}, Errorf(CodeInternal, unknownErrorMessage).With(DispatchedUnknown)
	}
}

func timedOut(after time.Duration, d Dispatched) *Error {
	return Errorf(CodeTimeout, "The device did not answer within %v.", after.Round(time.Millisecond)).With(d)
}

func lost() *Error {
	return Errorf(CodeLost, "The pod that holds the device's connection went silent; whether the tool ran is not known.")
}

// stoppedWaiting tells a deadline of the caller's context from its cancellation.
func stoppedWaiting(ctx context.Context, timeout time.Duration, d Dispatched) *Error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return timedOut(timeout, d)
	}
	return Errorf(CodeCancelled, "The caller stopped waiting.").With(d)
}
