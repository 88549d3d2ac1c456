package agent

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/farhand/farhand/internal/trace"
	"github.com/farhand/farhand/registry"
)

// Queue holds calls for sleeping devices. *routing.Queue is one. Its methods are safe for concurrent use.
type Queue interface {
	// Known returns the known device that matches a target and offers a tool.
	Known(ctx context.Context, tenant, tool string, t registry.Target) (registry.KnownDevice, error)

	// Waits reports whether calls wait for the device with a registry.Session.DeviceKey.
	Waits(ctx context.Context, tenant, device string) (bool, error)

	// Enqueue adds a call to a queue, for the time life. A call that is there keeps its position.
	Enqueue(
		ctx context.Context, c registry.QueuedCall, life time.Duration,
	) (position int, expires time.Time, err error)
}

// checkQueue checks that a request with Queue may be queued.
func (i *Invoker) checkQueue(req *Request) error {
	t := &req.Target
	switch {
	case req.Queue == 0:
		return nil
	case req.Local != nil, t.IsZero(), req.Select != registry.SelectNone && req.child == nil:
		return registry.Errorf(registry.CodeInvalidRequest,
			"A call with queue needs a target that names one device, and no select.")
	}
	return i.checkTTL(req.Queue)
}

func (i *Invoker) checkTTL(ttl time.Duration) error {
	if i.cfg.Queue == nil {
		return registry.Errorf(registry.CodeInvalidRequest, "This gateway does not queue calls. Leave queue out.")
	}
	return registry.CheckQueueTTL(ttl, i.cfg.QueueTTL)
}

// CheckQueue returns why calls of the running local tool cannot wait in queues for the time ttl; nil: they can.
func CheckQueue(ctx context.Context, ttl time.Duration) error {
	call := toolCallOf(ctx)
	if call.invoker == nil {
		return errNoToolCall()
	}
	if err := call.invoker.checkTTL(ttl); err != nil {
		return registry.AsError(err).With(registry.DispatchedNo)
	}
	return nil
}

// resolveQueued is resolve for a call that may be queued. route and err are what the router has found: the connected
// device, or why there is none. It returns false if the call goes on as any other.
func (i *Invoker) resolveQueued(
	ctx context.Context, p *prepared, target registry.Target, route registry.Route, err error,
) (done bool, failed error) {
	tenant := p.req.Caller.Tenant
	if err == nil {
		device := route.Session.DeviceKey()
		if device == "" {
			return false, nil
		}
		waits := route.Session.InBackground() && route.Spec.Effects.Foreground()
		if !waits {
			if waits, err = i.cfg.Queue.Waits(ctx, tenant, device); err != nil || !waits {
				return err != nil, err
			}
		}
		p.route, p.queue = route, device
		return true, nil
	}
	if !isAway(err) && !errors.Is(err, registry.CodeToolNotFound) {
		return false, nil
	}
	known, unknown := i.cfg.Queue.Known(ctx, tenant, p.req.Tool, target)
	if errors.Is(unknown, registry.CodeAmbiguousTarget) { // a user's devices, all asleep: the default one
		if own, err := i.preferred(ctx, p.req.Caller, target, unknown); err == nil {
			if device, err := i.cfg.Queue.Known(ctx, tenant, p.req.Tool, own); err == nil {
				known, unknown = device, nil
			}
		}
	}
	switch {
	case errors.Is(unknown, registry.CodeSessionNotFound): // the error of a call without a queue
		return false, nil
	case unknown != nil:
		return true, unknown
	}
	p.route = registry.Route{Session: known.Session, Target: target}
	for _, t := range known.Tools {
		if t.Name == p.req.Tool {
			p.route.Spec = t
		}
	}
	p.queue = known.Session.DeviceKey()
	return true, nil
}

// isAway reports whether err says that the device is not connected, or not in the foreground, and that nothing ran.
func isAway(err error) bool {
	e := registry.AsError(err)
	return err != nil && (e.Dispatched == registry.DispatchedNo || e.Dispatched == "") &&
		(e.Code == registry.CodeNotConnected || e.Code == registry.CodeSessionNotFound ||
			e.Code == registry.CodeNeedsForeground)
}

// registerTime is how long after it connected a device may still register its tools.
const registerTime = 10 * time.Second

// isBlocked reports whether err says that a connected device, its pod or the store could not take the call now.
func isBlocked(err error) bool {
	e := registry.AsError(err)
	return err != nil && e.Dispatched == registry.DispatchedNo &&
		(e.Code == registry.CodeBusy || e.Code == registry.CodeStoreUnavailable || e.Code == registry.CodeDraining)
}

// stored returns a call as it is stored while it waits. approved is what an approval covers.
func (i *Invoker) stored(ctx context.Context, p *prepared, approved string) waitingCall {
	req := p.req
	call := waitingCall{
		Caller: req.Caller, Tool: req.Tool, Session: p.route.Session.Key.Session, Target: req.Target,
		Args: exactArgs{p.inv.Asked}, Order: req.Order, Timeout: p.inv.Timeout, Allowance: i.approvalAllowance(p),
		Endpoint: req.Endpoint, Context: req.Context, Model: req.Model,
		Approved: approved, Approver: p.approver, Charged: p.inv.charged, Trace: trace.Context(ctx),
	}
	if req.Queue > 0 {
		call.Queue = time.Now().Add(req.Queue)
	}
	return call
}

// queueCall stores the record of a call and adds the call to the queue of its device. No pod holds it from then on.
func (i *Invoker) queueCall(ctx context.Context, p *prepared, out *Outcome) error {
	req, end := p.req, p.end()
	request, err := json.Marshal(i.stored(ctx, p, p.approved)) // a child's was approved with its parent
	if err != nil {
		return err
	}
	p.rec.State, p.rec.HoldMS, p.rec.Queue = registry.StateQueued, req.Queue.Milliseconds(), p.queue
	ctx = timed{ctx, end}
	stored, created, err := i.cfg.CallLog.Hold(ctx, *p.rec)
	if err != nil {
		return registry.UnlessLate(err, end)
	}
	if created {
		out.Position, out.Expires, err = i.enqueue(ctx, p, stored.CallID, request, req.Queue)
		if err != nil {
			return i.notQueued(ctx, &stored, registry.UnlessLate(undispatched(err), end))
		}
		req.counted = true // counted when the call has ended
	}
	return i.follow(ctx, p, stored, !created, p.start, out)
}

// queueAgain adds the queued call of an earlier request to its queue, because that request may have failed before it
// did. A call that is in its queue keeps its position.
func (i *Invoker) queueAgain(ctx context.Context, p *prepared, rec *registry.Record, out *Outcome) error {
	p.queue = rec.Queue
	p.route.Session = registry.Session{
		Key: registry.Key{Tenant: rec.Tenant, Session: rec.SessionID}, DeviceID: rec.DeviceID,
	}
	request, err := json.Marshal(i.stored(ctx, p, ""))
	if err != nil {
		return err
	}
	end := p.end()
	ctx = timed{ctx, end}
	out.Position, out.Expires, err = i.enqueue(ctx, p, rec.CallID, request, time.Until(rec.Deadline))
	switch {
	case err == nil:
		return nil
	case errors.Is(err, registry.CodeBusy): // it is not in the queue, and does not fit
		return i.notQueued(ctx, rec, undispatched(err))
	default:
		return registry.UnlessLate(registry.AsError(err).With(registry.DispatchedUnknown), end)
	}
}

// notQueued ends the record of a call that Enqueue refused, and returns why. If the store's answer was lost, the call
// may be in the queue nevertheless: unless its record has ended, it may still run.
func (i *Invoker) notQueued(ctx context.Context, rec *registry.Record, why error) error {
	ended, failed := i.cfg.CallLog.Refuse(context.WithoutCancel(ctx), rec.Tenant, rec.CallID, undispatched(why))
	if ended && failed == nil {
		return why
	}
	i.cfg.Log.Warn("record of a call that was not queued not ended", "call", rec.CallID, "error", failed)
	unknown := *registry.AsError(why)
	return unknown.With(registry.DispatchedUnknown)
}

// enqueue adds a call to the queue of its device, and wakes the device.
func (i *Invoker) enqueue(
	ctx context.Context, p *prepared, callID string, request []byte, life time.Duration,
) (position int, expires time.Time, err error) {
	caller, device := &p.inv.Caller, &p.route.Session
	position, expires, err = i.cfg.Queue.Enqueue(ctx, registry.QueuedCall{
		Tenant: caller.Tenant, CallID: callID, Device: p.queue, Identity: chargedFor(caller), Request: request,
		Shared: caller.User != "" && caller.User != device.UserID,
	}, max(life, time.Millisecond))
	if err == nil {
		i.WakeDevice(ctx, caller.Tenant, p.queue)
	}
	return position, expires, err
}

// WakeDevice sends a push to a device for which calls wait, if that is set up. device is its
// registry.Session.DeviceKey. It does not block.
func (i *Invoker) WakeDevice(ctx context.Context, tenant, device string) {
	if i.cfg.Wake != nil {
		i.cfg.Wake(ctx, tenant, device)
	}
}

// mayQueue reports whether a call that failed with err may be queued: it has not reached its device, which is known by
// its session.
func (i *Invoker) mayQueue(p *prepared, err error) bool {
	return p.req.Queue > 0 && isAway(err) && p.route.Session.DeviceKey() != ""
}

// queueInstead queues a light call whose device left before it had the call. Its record is a new one.
func (i *Invoker) queueInstead(ctx context.Context, p *prepared, out *Outcome) error {
	req := p.req
	req.CallID = registry.NewCallID()
	p.inv.CallID, out.CallID = req.CallID, req.CallID
	req.Async, req.queued = true, true
	p.queue, p.inv.Args = p.route.Session.DeviceKey(), p.inv.Asked
	out.Session = p.route.Session
	return i.invokeDurable(ctx, p, false, nil, out)
}

// queueRun queues a durable call whose device left before it had the call. Nil: the call ends with err.
func (i *Invoker) queueRun(ctx context.Context, p *prepared, err error) error {
	if !i.mayQueue(p, err) {
		return nil
	}
	p.queue = p.route.Session.DeviceKey()
	call := i.stored(ctx, p, p.approved)
	return i.queueUntil(ctx, p, &call, call.Queue)
}

// queueUntil adds a call that runs on this pod to the queue of its device. Nil: it could not.
func (i *Invoker) queueUntil(ctx context.Context, p *prepared, call *waitingCall, until time.Time) error {
	request, err := json.Marshal(call)
	if err != nil {
		return nil
	}
	life := time.Until(until)
	if life <= 0 {
		return nil
	}
	_, expires, err := i.enqueue(ctx, p, p.inv.CallID, request, life)
	if err != nil {
		i.cfg.Log.Warn("call of a device that has left not queued", "call", p.inv.CallID, "error", err)
		return nil
	}
	return &registry.QueuedAgain{Until: expires}
}

// queueWaiting returns a waiting call that failed with err to its device's queue, or adds it there. Nil: the call goes
// on, or ends with err.
func (i *Invoker) queueWaiting(ctx context.Context, h waiting, call *waitingCall, p *prepared, err error) error {
	switch {
	case call.Queue.IsZero():
		return nil
	case !h.expires.IsZero():
		// Of many devices that come back at once, the store has the tools late.
		registers := errors.Is(err, registry.CodeToolNotFound) &&
			(time.Since(h.connected) < registerTime || h.offers(call.Tool))
		if isAway(err) || isBlocked(err) || registers {
			return &registry.QueuedAgain{Until: h.expires}
		}
		return nil
	case !isAway(err):
		return nil
	}
	target := call.Target
	target.Viewer = call.Caller.Viewer()
	known, unknown := i.cfg.Queue.Known(ctx, h.tenant, call.Tool, target)
	if unknown != nil {
		return nil
	}
	p.route.Session, p.queue = known.Session, known.Session.DeviceKey()
	call.Approver = h.approver
	return i.queueUntil(ctx, p, call, call.Queue)
}

// StartQueued gives the first call of a device's queue to the device, whose session is on this pod. It reports whether
// the call still waited.
func (i *Invoker) StartQueued(
	ctx context.Context, to registry.Session, offers func(tool string) bool, c registry.QueuedCall,
) (bool, error) {
	return i.startWaiting(ctx, waiting{
		tenant: c.Tenant, callID: c.CallID, since: c.Since, expires: c.Expires, session: to.Key.Session,
		connected: to.ConnectedAt, offers: offers,
	}, c.Request)
}
