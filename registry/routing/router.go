package routing

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/farhand/farhand/internal/cache"
	"github.com/farhand/farhand/internal/trace"
	"github.com/farhand/farhand/registry"
)

// Router routes calls to the socket that can answer them: directly on this pod, otherwise over the Bus. It is safe for
// concurrent use.
type Router struct {
	core
	hub     *Hub
	timeout time.Duration // for the bus to send a call: the time it has for one batch
	pending *pendingCalls
	seen    *seenCalls
	routes  *routeCache
	returns *returns
}

func newRouter(c core, hub *Hub, sendTimeout time.Duration) *Router {
	return &Router{
		core: c, hub: hub, timeout: sendTimeout, pending: newPendingCalls(), seen: newSeenCalls(),
		routes: newRouteCache(), returns: newReturns(c.store.Version),
	}
}

// Call delivers c and waits for the answer, at most c.Timeout. Cancelling ctx ends the wait, and tells the device
// unless the cause is ErrAbandoned. Every error is an *Error whose Dispatched says whether the device can have run the
// tool. Call never resends a call that may have reached a device. If the call certainly did not, Call looks up the
// session's pod once more and tries there.
//
// A call never reaches a device whose session no longer matches the target, has other attributes than
// c.Route.Attributes, or has another definition of the tool than c.Route.Spec: it fails with CodeStaleRoute. Call fails
// with the same code if the device has left and is expected back, and if a cached route is wrong in any other way. The
// caller then decides again on the route that ResolveAgain returns, and calls again with the next c.Attempt. A device
// that wants a person to decide first gives the call back: it fails with CodeAsksPerson, and the caller may call again,
// with the next c.Attempt and c.Approved.
func (r *Router) Call(ctx context.Context, c registry.Call) (registry.Result, error) {
	deadline := time.Now().Add(c.Timeout)
	res, err := r.call(ctx, &c, deadline)
	if err != nil {
		err = registry.UnlessLate(err, deadline)
	}
	return res, err
}

func (r *Router) call(ctx context.Context, c *registry.Call, deadline time.Time) (registry.Result, error) {
	began := time.Now()
	res, err := r.attempt(ctx, &c.Route.Session, c, deadline)
	if err == nil {
		return res, nil
	}
	if mayHaveMoved(err) {
		r.routes.drop(c.Route.Session.Key, began)
	}
	switch {
	case toolGone(err), c.Route.Remembered && movedAway(err):
		return registry.Result{}, registry.StaleRoute() // the caller decided on a session that has changed
	case !movedAway(err):
		return res, err
	}
	if c.Order != registry.OrderNone && c.Accepted.IsZero() {
		c.Accepted = began
	}
	session, failure := r.relocate(ctx, c.Route, deadline)
	if failure != nil {
		return registry.Result{}, failure
	}
	res, err = r.attempt(ctx, &session, c, deadline)
	if movedAway(err) || toolGone(err) {
		return registry.Result{}, registry.StaleRoute()
	}
	return res, err
}

// attempt sends the call to the socket on this pod if there is one, or else to the pod that owns the session.
func (r *Router) attempt(
	ctx context.Context, session *registry.Session, c *registry.Call, deadline time.Time,
) (registry.Result, error) {
	if l := r.hub.Get(session.Key); l != nil {
		if generation := l.generation(); generation >= session.Generation {
			if c.Route.Remembered && generation != session.Generation {
				return registry.Result{}, registry.StaleRoute()
			}
			if c.Route.Target.AsksMore() && !c.Route.Target.Matches(l.Session()) {
				return registry.Result{}, registry.StaleRoute() // the device may not have introduced itself yet
			}
			return r.callLocal(ctx, l, c, deadline)
		}
		if session.Pod != r.pod {
			l.replaced() // the eviction was lost on its way
		}
	}
	if session.Pod == r.pod || session.Pod == "" { // the route is old: the socket has moved or is gone
		return registry.Result{}, registry.ErrNotOwner.With(registry.DispatchedNo)
	}
	return r.callRemote(ctx, session, c, deadline)
}

// mayHaveMoved reports whether the session may be elsewhere, or offer other tools, than the call assumed. The next call
// then reads it again.
func mayHaveMoved(err error) bool {
	return hasCode(err, registry.CodeNotOwner, registry.CodeNotConnected, registry.CodeToolNotFound,
		registry.CodeStaleRoute, registry.CodeConnectionLost, registry.CodeTimeout, registry.CodeLost)
}

// movedAway reports whether err means that the session's socket is not where the call went. Then nothing was
// dispatched, and the socket may be found elsewhere.
func movedAway(err error) bool {
	return err != nil && registry.AsError(err).Dispatched == registry.DispatchedNo &&
		hasCode(err, registry.CodeNotOwner, registry.CodeNotConnected)
}

// toolGone reports whether err means that the session has no such tool: the device has withdrawn it, or has not
// registered it again yet.
func toolGone(err error) bool { return errors.Is(err, registry.CodeToolNotFound) }

// hasCode reports whether the code of an error is one of codes.
func hasCode(err error, codes ...registry.Code) bool {
	return slices.Contains(codes, registry.AsError(err).Code)
}

// relocate asks the directory which pod owns the session now. If that is still the claim that was already tried,
// relocate waits until there is a newer one. It fails with stale_route if the device is expected back, or if the
// session no longer matches the target, as before its device has introduced itself. If the device is away otherwise, it
// fails with not_connected.
func (r *Router) relocate(ctx context.Context, tried registry.Route, deadline time.Time) (registry.Session, error) {
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	asked := time.Now()
	entry, err := r.store.Entry(ctx, tried.Session.Key)
	if err != nil {
		return registry.Session{}, r.awayNow(ctx, tried, entry.Session, err)
	}
	r.routes.put(entry, asked)
	switch {
	case !tried.Target.Sees(entry.Session.UserID):
		return registry.Session{}, registry.UnknownSession().With(registry.DispatchedNo)
	case !tried.Target.Matches(entry.Session):
		return registry.Session{}, registry.StaleRoute()
	case isClaim(&entry.Session, &tried.Session):
		return registry.Session{}, r.awaitMove(ctx, tried)
	}
	return entry.Session, nil
}

func (r *Router) callLocal(
	ctx context.Context, l *LocalSession, c *registry.Call, deadline time.Time,
) (registry.Result, error) {
	p := r.pending.add(c, "")
	defer r.pending.remove(p)
	request := DeviceCall{
		ID: c.ID, Tool: c.Route.Spec.Name, Args: c.Arguments(), Timeout: time.Until(deadline), Order: c.Order,
		Age: c.Age(), Approved: c.Approved, UserID: userOf(c),
	}
	onReply := func(reply registry.Reply) {
		if !p.deliver(reply) {
			r.storeMissedAnswer(reply)
		}
	}
	decided := basis{c.Route.Spec.Hash(), c.Route.Attributes}
	f, waits, err := l.deliver(ctx, request, decided, c.Durable, onReply)
	if err != nil {
		return registry.Result{}, err
	}
	defer f.abandon()
	w := r.newWait(c, p, deadline)
	if waits {
		if c.Record != nil && !c.Durable {
			c.Record.Proof = l.ownerProof()
		}
		w.beginInOrder()
		res, err := w.forAnswer(ctx, f.cancel)
		if sent, _ := f.endUnlessSent(false); err != nil && !sent {
			err = registry.AsError(err).With(registry.DispatchedNo)
		}
		return res, err
	}
	w.noteInOrder()
	c.Long.Drop()
	note(c.Record, registry.EventDeliver, registry.Change{Owner: r.pod, Proof: l.ownerProof()}, time.Now())
	w.phase = phaseDelivered
	return w.forAnswer(ctx, f.cancel)
}

func (r *Router) callRemote(
	ctx context.Context, session *registry.Session, c *registry.Call, deadline time.Time,
) (registry.Result, error) {
	if c.Record != nil && !c.Durable { // the owning pod writes the proof of a durable call
		c.Record.Proof = session.OwnerProof()
	}
	p := r.pending.add(c, session.Pod) // before the call is sent, or a fast answer would find no caller
	defer r.pending.remove(p)
	res, err := r.exchange(ctx, p, registry.Envelope{
		Kind: registry.EnvelopeCall, Tenant: session.Tenant, Session: session.Key.Session,
		Generation: session.Generation, Exact: c.Route.Target.AsksMore() || c.Route.Remembered,
		Tool: c.Route.Spec.Name, Spec: c.Route.Spec.Hash(), Attributes: c.Route.Attributes,
		Attempt: c.Attempt, Args: c.Arguments(), Durable: c.Durable, Approved: c.Approved,
		Order: c.Order, AgeMS: c.Age().Milliseconds(), UserID: userOf(c),
	}, r.newWait(c, p, deadline))
	unsent := err != nil && registry.AsError(err).Dispatched == registry.DispatchedNo
	if unsent && p.progress().cancelled { // after another error Call might try the next pod
		return registry.Result{}, callCancelled(registry.DispatchedNo)
	}
	return res, err
}

// userOf returns the user who makes a call; empty: none.
func userOf(c *registry.Call) string {
	if c.Record == nil {
		return ""
	}
	return c.Record.UserID
}

// exchange sends an envelope to the pod of a pending call, and waits for the answer.
func (r *Router) exchange(
	ctx context.Context, p *pendingCall, e registry.Envelope, w wait,
) (res registry.Result, err error) {
	ctx, span := trace.Start(ctx, trace.Client, "send", string(e.Kind))
	defer func() { span.End(string(registry.CodeOf(err))) }()
	span.Text(trace.Pod, p.pod)
	e.Trace = trace.Context(ctx)
	remaining := w.deadline.Sub(p.since)
	e.V, e.CallID, e.TimeoutMS, e.ReplyTo = registry.EnvelopeVersion, p.id, remaining.Milliseconds(), r.pod
	sendCtx := ctx
	if remaining < r.timeout { // the bus has its own limit, but a short call has less time than that
		var cancel context.CancelFunc
		sendCtx, cancel = context.WithDeadline(ctx, w.deadline)
		defer cancel()
	}
	sending, err := r.bus.SendAsync(sendCtx, p.pod, e, p)
	if err != nil {
		return registry.Result{}, err
	}
	w.phase, w.sending = phaseSending, sending
	key := e.Key() // not e, whose arguments may be long
	return w.forAnswer(ctx, func(reason string) { r.cancelRemote(p.pod, key, p.id, reason) })
}

// newWait returns the wait for a call's answer. It does not refer to c, so that calls need not be on the heap.
func (r *Router) newWait(c *registry.Call, p *pendingCall, deadline time.Time) wait {
	return wait{
		router: r, record: c.Record, durable: c.Durable, timeout: c.Timeout, long: c.Long, inOrder: c.InOrder,
		pending: p, since: p.since, deadline: deadline,
	}
}

// DefaultSendTimeout is short, because a caller must find out soon that the bus is stuck.
const DefaultSendTimeout = 800 * time.Millisecond

// Limits of each of the two generations of cached sessions and of their tool lists. 100,000 sessions take about 55 MB
// (BenchmarkRememberedRoutes). A pod that calls more of them reads some again.
const (
	routeBytes     = 32 << 20
	routeToolBytes = 16 << 20
)

// routeCache caches where sessions of other pods are and what they offer, for calls that name the session only by its
// id. Stale entries are harmless: the pod that holds the socket rejects a call that was decided on another claim, other
// attributes or another tool definition. Then the session is read again. It is safe for concurrent use.
type routeCache struct {
	bySession *cache.Cache[registry.Key, *cachedEntry]
	lists     toolLists // the sessions' tools; a route without its list is dropped
	live      atomic.Pointer[livePods]

	remembered, read atomic.Int64 // sessions of other pods that calls named by id: found in the cache, in the store
}

type cachedEntry struct {
	session    registry.Session
	attributes uint64
	tools      toolListKey
	asked      time.Time // when its read began: earlier changes are in it
}

// livePods are the pods that had a lease at this pod's last check.
type livePods struct {
	pods  map[string]bool
	asked time.Time
}

func newRouteCache() *routeCache {
	return &routeCache{
		bySession: cache.New[registry.Key, *cachedEntry](routeBytes, 0), lists: newToolLists(routeToolBytes),
	}
}

// get returns the cached entry of a session, read-only, and the digest of its attributes. It returns false if there is
// none, or if the session's pod has lost its lease since: a hung pod cannot reject stale calls.
func (r *routeCache) get(key registry.Key) (e registry.Entry, attributes uint64, ok bool) {
	c, ok := r.bySession.Get(key)
	if !ok {
		return e, 0, false
	}
	if live := r.live.Load(); live != nil && !live.pods[c.session.Pod] && !c.asked.After(live.asked) {
		return e, 0, false
	}
	tools, ok := r.lists.get(c.tools)
	return registry.Entry{Session: c.session, Tools: tools}, c.attributes, ok
}

// put caches a session whose read began at the time asked.
func (r *routeCache) put(e registry.Entry, asked time.Time) {
	tools := r.lists.keep(e.Tools)
	c := &cachedEntry{session: e.Session, attributes: e.Session.AttributesDigest(), tools: tools, asked: asked}
	r.bySession.Put(e.Session.Key, c, e.Session.MemorySize())
}

// drop removes a session that turned out to be elsewhere, or to offer something else, or whose pod did not answer a
// call. relied is when that call began. A route whose read began later is kept, because it is newer.
func (r *routeCache) drop(key registry.Key, relied time.Time) {
	if c, ok := r.bySession.Get(key); ok && !c.asked.After(relied) {
		r.bySession.Delete(key)
	}
}

// setLive sets the pods that had a lease at the time asked.
func (r *routeCache) setLive(pods map[string]bool, asked time.Time) {
	r.live.Store(&livePods{pods, asked})
}
