package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/farhand/farhand/internal/trace"
	"github.com/farhand/farhand/registry"
)

// Invoke resolves, checks and runs a call. Cancelling ctx cancels the call, unless it is asynchronous or has an
// idempotency key. The error is always an *registry.Error with CallID and Dispatched set. A tool that ran and failed is
// not an error.
func (i *Invoker) Invoke(ctx context.Context, req Request) (Outcome, error) {
	start := time.Now()
	if req.CallID == "" {
		req.CallID = registry.NewCallID()
	}
	if req.Resume != nil {
		req.CallID = req.Resume.CallID
	}
	req.argsBytes = req.Args.Len()
	if req.Release != nil {
		defer func() {
			if req.Release != nil { // otherwise the call continues
				req.Release()
			}
		}()
	}
	ctx, span := trace.Start(ctx, trace.Internal, operationTool, req.Tool)
	req.trace, req.traced = trace.RefOf(ctx), span.Records()
	out := Outcome{CallID: req.CallID}
	err := i.invoke(ctx, &req, &out, start)
	if span.Records() {
		endSpan(span, &req, &out, err)
	}
	if out.Duration == 0 {
		out.Duration = time.Since(start)
	}
	if !req.counted {
		i.count(&req, out.Duration, out.Result, err)
	}
	if err == nil {
		return out, nil
	}
	e := *undispatched(err)
	e.CallID = out.CallID
	return out, &e
}

// undispatched returns err with DispatchedNo, unless err already states whether the call was dispatched.
func undispatched(err error) *registry.Error {
	e := registry.AsError(err)
	if e.Dispatched == "" {
		return e.With(registry.DispatchedNo)
	}
	return e
}

// unlessCancelled returns err, unless a request to the store failed only because the call was cancelled before it
// reached its device.
func unlessCancelled(ctx context.Context, err error) error {
	if err == nil || !errors.Is(ctx.Err(), context.Canceled) || !errors.Is(err, registry.CodeStoreUnavailable) ||
		registry.AsError(err).Dispatched != registry.DispatchedNo {
		return err
	}
	return registry.Cancelled().With(registry.DispatchedNo)
}

// invoke is the path of every call. A light call ends with its request, and its record is written at the end. A
// suspended call is light, but its request returns once a person was asked. A durable call has a record first, and runs
// on without its request. A deferred call is durable, and no pod holds it while a person decides.
//
//	request
//	   │ prepare: find the tool, run the hooks
//	   ├──── needs no approval ───────────────────────────────────────────────────────▶ RUNS
//	   │                                                                                 ▲
//	   └──── needs approval                                                              │
//	           ├─ light, durable ──▶ ASKED ── this pod waits ─────────────▶ recheck ─────┤
//	           ├─ suspended ───────▶ ASKED ── Request.Resume, prepare, wait ▶ recheck ───┤
//	           └─ deferred ────────▶ ASKED ── StartDeferred on any pod, prepare ─────────┘
//
// A call with Request.Queue whose device sleeps is queued instead of RUNS: StartQueued, on the pod that has the device,
// prepares it again.
//
//	RUNS ─▶ ENDED: amending hooks, after hooks, record. A refusal ends the call from every state.
//
// Each state has one place: Invoker.prepare, Invoker.ask, Invoker.waitForApproval, Invoker.runTool, and finish or
// endDurable.
func (i *Invoker) invoke(ctx context.Context, req *Request, out *Outcome, start time.Time) error {
	if req.Args.IsZero() {
		req.Args = noArgs
	}
	if err := i.checkRequestArgs(ctx, req, start); err != nil {
		if req.Conversation == (registry.Key{}) && req.history == nil || req.durable() {
			return err
		}
		req.refused = err // every call of a model in a turn gets a record, even if it cannot run
	}
	p := prepared{start: start}
	switch {
	case req.Resume != nil:
		p.inv.charged = req.Resume.Charged
	case req.child != nil && req.child.Asked != nil:
		p.inv.charged, p.approved, p.approver = req.child.Asked.Charged, req.child.Asked.Binding, req.child.AllowedBy
	}
	refused := i.prepare(ctx, req, &p, out)
	if refused == nil && req.AsyncIfLonger > 0 && (p.approval != nil || p.inv.Timeout > req.AsyncIfLonger) {
		req.Async = true
	}
	if refused == nil && p.queue != "" {
		req.Async, req.queued = true, !req.Async
	}
	if refused == nil && p.approval != nil && req.Resume != nil && !req.durable() {
		if req.Resume.Binding != bindingOf(*p.approval) {
			refused = errChanged
		}
		p.approval.ID, p.approval.Pod = req.Resume.ApprovalID, "" // continue the question of the suspended call
	}
	if refused != nil {
		refused = unlessCancelled(ctx, registry.UnlessLate(undispatched(refused), p.end()))
	}
	needsApproval := refused == nil && p.approval != nil
	if needsApproval && req.child != nil {
		out.Suspended, req.counted = p.suspended(), true // AskTogether asks
		return nil
	}
	if req.durable() {
		return i.invokeDurable(ctx, &p, req.Async && needsApproval, refused, out)
	}
	if req.Suspend && needsApproval {
		if refused = i.suspend(ctx, &p, out); refused == nil {
			return nil
		}
	}
	return i.invokeLight(ctx, &p, refused, out)
}

// invokeLight runs a call that ends with its request. refused is why it must not run; nil: it may.
func (i *Invoker) invokeLight(ctx context.Context, p *prepared, refused error, out *Outcome) error {
	req, err := p.req, refused
	p.rec = i.recordOf(p, &out.Session)
	if err == nil && p.approval != nil {
		err = i.waitWithRecord(ctx, p)
	}
	i.noteDecision(p, err)
	req.where = i.routeOf(p)
	if req.Release != nil {
		p.sent = func() {
			p.rec.DigestArgs()
			req.dropArgs()
			req.Release()
			req.Release = nil
		}
	}
	if err == nil {
		out.Result, err = i.runTool(ctx, p, false)
		if i.mayQueue(p, err) && !p.rec.Stored {
			return i.queueInstead(ctx, p, out)
		}
		out.State, out.Session = out.Result.State(), p.route.Session
	}
	return i.finish(ctx, p, out, err)
}

// suspend asks for the approval that a call needs, unless an earlier request has, and sets Outcome.Suspended.
func (i *Invoker) suspend(ctx context.Context, p *prepared, out *Outcome) error {
	if p.req.Resume == nil {
		p.approval.Pod = "" // no pod holds the call
		if err := i.ask(timed{ctx, p.inv.Deadline}, p, i.approvalTime(p), nil); err != nil {
			return registry.UnlessLate(undispatched(err), p.inv.Deadline)
		}
	}
	p.req.counted = true // counted when the call has ended
	out.Suspended = p.suspended()
	return nil
}

func (p *prepared) suspended() *Suspended {
	return &Suspended{
		CallID: p.inv.CallID, ApprovalID: p.approval.ID, Binding: bindingOf(*p.approval), Charged: p.inv.charged,
		Approval: *p.approval,
	}
}

// invokeDurable stores the call's record, then runs the call even if the caller disconnects. refused is why it must not
// run; an earlier call with the same key may still have run.
func (i *Invoker) invokeDurable(ctx context.Context, p *prepared, deferred bool, refused error, out *Outcome) error {
	req := p.req
	p.rec = i.recordOf(p, &out.Session)
	if refused == nil && p.approval != nil {
		p.rec.Approval = p.approval.ID // the decision is noted after the answer
	} else {
		i.noteDecision(p, refused)
	}
	req.where = i.routeOf(p)
	digest, err := i.digest(ctx, req, p.start.Add(p.inv.Timeout))
	if err != nil {
		return err
	}
	p.rec.IdempotencyKey, p.rec.RequestDigest, p.rec.Mode = storedKey(req), digest, registry.ModeSync
	if req.Async {
		p.rec.Mode = registry.ModeAsync
	}
	switch {
	case refused != nil:
		return i.refuseDurable(ctx, p, refused, out)
	case deferred:
		return i.deferCall(ctx, p, out)
	case p.queue != "":
		return i.queueCall(ctx, p, out)
	case p.approval != nil: // the timeout covers the wait for approval and the tool
		p.rec.TimeoutMS += i.approvalTime(p).Milliseconds()
	}
	return i.startDurable(ctx, p, out)
}

// startDurable stores the record of a durable call, starts the call, and waits for its outcome unless the call is
// asynchronous.
func (i *Invoker) startDurable(ctx context.Context, p *prepared, out *Outcome) error {
	req := p.req
	p.rec.DigestArgs() // so that the record does not keep the arguments
	inOrder := make(chan struct{})
	if req.Order != registry.OrderNone {
		p.inOrder = sync.OnceFunc(func() { close(inOrder) })
	}
	release := func() {}
	if req.Release != nil {
		release = sync.OnceFunc(req.Release)
		p.sent = release
	}
	asked := ctx
	start, end := p.start, p.end() // an approval moves p.start
	stored, created, err := i.cfg.CallLog.Start(timed{ctx, end}, *p.rec,
		func(ctx context.Context) (registry.Result, error) {
			defer release()
			if p.inOrder != nil {
				defer p.inOrder()
			}
			return i.runDurable(trace.Carry(ctx, asked), p)
		})
	if err != nil {
		return registry.UnlessLate(err, end)
	}
	req.dropArgs() // the running call has its own copy; a request that joins a call needs none
	switch {
	case created:
		req.Release, req.counted = nil, true // released when the device has the call or it ends; counted when it ends
	case req.Release != nil:
		req.Release()
		req.Release = nil
	}
	if created && req.Async && req.Order != registry.OrderNone {
		select { // later calls of the caller must not overtake it
		case <-inOrder:
		case <-ctx.Done(): // the call continues
		}
	}
	return i.follow(ctx, p, stored, !created, start, out)
}

// runDurable asks for the approval that a durable call needs, and runs its tool. It returns the result to store.
func (i *Invoker) runDurable(ctx context.Context, p *prepared) (registry.Result, error) {
	bound, release := i.bindIdentity(ctx, &p.inv.Caller)
	defer release()
	var res registry.Result
	var err error
	if p.approval != nil {
		err = i.waitForApproval(bound, p)
		i.noteDecision(p, err)
	}
	if err == nil {
		res, err = i.runTool(bound, p, true)
		if again := i.queueRun(ctx, p, err); again != nil {
			return registry.Result{}, again
		}
	}
	res, err = i.endDurable(ctx, p, res, unlessEnded(bound, err))
	i.count(p.req, time.Since(p.start), res, err)
	return res, err
}

// deferCall stores the record of a call that needs approval, and asks for it. No pod holds the call from then on.
func (i *Invoker) deferCall(ctx context.Context, p *prepared, out *Outcome) error {
	req, a := p.req, *p.approval
	a.Deferred, a.Pod = true, ""
	life := cmp.Or(a.Within, i.cfg.DeferredTimeout)
	p.approval, p.rec.HoldMS = &a, life.Milliseconds()
	request, err := json.Marshal(i.stored(ctx, p, bindingOf(a)))
	if err != nil {
		return err
	}
	end := p.end()
	ctx = timed{ctx, end}
	stored, created, err := i.cfg.CallLog.Hold(ctx, *p.rec)
	if err != nil {
		return registry.UnlessLate(err, end)
	}
	if created {
		if err := i.ask(ctx, p, life, request); err != nil {
			err = registry.UnlessLate(err, end)
			if _, failed := i.cfg.CallLog.Refuse(ctx, p.rec.Tenant, p.rec.CallID, undispatched(err)); failed != nil {
				i.cfg.Log.Warn("record of a call without approval not ended",
					"call", p.rec.CallID, "error", failed)
			}
			return err
		}
		req.counted = true // counted when the call has ended
		out.Approvers = p.approval.Approvers
	}
	return i.follow(ctx, p, stored, !created, p.start, out)
}

// finish runs the amending hooks on the outcome of a call, which its caller reads, and records whether the tool ran.
func (i *Invoker) finish(ctx context.Context, p *prepared, out *Outcome, callErr error) error {
	res, err := i.hooks.end(ctx, i.cfg.Log, &p.inv, *out, callErr)
	recorded, failure := recordedOutcome(out.Result, res, callErr, err)
	i.cfg.CallLog.Finish(p.rec, recorded, failure)
	out.Result, out.State = res, res.State()
	return err
}

// recordedOutcome returns the outcome to record of a call that ended with was and callErr. Its record says whether the
// tool ran, even if hooks have made another outcome of it.
func recordedOutcome(was, amended registry.Result, callErr, err error) (registry.Result, error) {
	switch {
	case callErr == nil && err != nil:
		return withoutOutput(was, err), nil
	case callErr != nil && err == nil:
		return registry.Result{}, callErr
	default:
		return amended, err
	}
}

// withoutOutput returns the result to record when a hook withheld res with err.
func withoutOutput(res registry.Result, err error) registry.Result {
	e := registry.AsError(err)
	return registry.Result{Success: res.Success, Error: e.Message, Withheld: e.With(registry.DispatchedYes)}
}

func (i *Invoker) recordOf(p *prepared, session *registry.Session) *registry.Record {
	req := p.req
	rec := registry.NewRecord(req.CallID, req.Caller.Tenant, req.Tool, req.Args.Raw())
	rec.UserID, rec.Turn, rec.TimeoutMS = req.Caller.User, req.Turn, p.inv.Timeout.Milliseconds()
	rec.Caller, rec.TraceID = req.Caller.Note(), req.trace.String()
	rec.SessionID, rec.DeviceID = session.Key.Session, session.DeviceID
	if p.local != nil {
		rec.Tool, rec.Source = p.inv.Spec.Name, cmp.Or(p.inv.Source, registry.SourceLocal)
	}
	if req.child != nil {
		rec.Parent = req.child.parent
	}
	if group, ok := madeBy(p.local).(GroupTool); ok {
		rec.Group = &registry.GroupNote{Mode: group.GroupMode(p.inv.Args.Raw())}
	}
	rec.HoldMS = i.approvalAllowance(p).Milliseconds()
	if req.Queue > 0 {
		rec.Queue = session.DeviceKey()
	}
	if w := p.waited; w != nil {
		rec.Stored, rec.Pod, rec.Timeline = w.Stored, w.Pod, w.Timeline
	}
	return &rec
}

// approvalAllowance returns how much longer than its timeout a call may take because its own calls wait for approval.
func (i *Invoker) approvalAllowance(p *prepared) time.Duration {
	if p.local == nil {
		return 0
	}
	if _, group := madeBy(p.local).(GroupTool); group && !p.within.IsZero() { // its end includes approvals
		return 0
	}
	if _, calls := madeBy(p.local).(DeviceCaller); !calls {
		return 0
	}
	return i.longestApproval()
}

func (i *Invoker) runTool(ctx context.Context, p *prepared, durable bool) (registry.Result, error) {
	if p.local != nil {
		return i.runLocal(ctx, p, durable)
	}
	accepted := time.Now()
	limit := accepted.Add(p.remaining) // reading a changed definition does not extend the call
	for attempt := int64(0); ; attempt++ {
		call := registry.Call{
			ID: p.inv.CallID, Route: p.route, Args: p.inv.Args, Timeout: p.remaining, Durable: durable,
			Attempt: attempt, Order: p.req.Order, InOrder: p.inOrder, Approved: p.decided(),
		}
		if attempt > 0 {
			call.Accepted = accepted
		}
		if p.sent != nil {
			call.Args, call.Long = registry.JSON{}, &registry.LongArgs{Args: p.inv.Args, Sent: p.dropArgs}
		}
		if !durable {
			call.Record = p.rec
		}
		// The router enforces the timeout of a call itself, so the context needs no timer.
		res, err := i.cfg.Router.Call(onlyDeadline(ctx), call)
		if errors.Is(err, registry.CodeAsksPerson) {
			if limit, err = i.askForDevice(ctx, p, registry.AsError(err).Message, durable, limit); err != nil {
				return registry.Result{}, unlessCancelled(ctx, err)
			}
			continue
		}
		if !errors.Is(err, registry.CodeStaleRoute) {
			return res, unlessCancelled(ctx, err)
		}
		if attempt == maxAttempts-1 {
			e := registry.Errorf(registry.CodeBusy,
				"The device's session or the tool changes too often. Retry in a moment.")
			return registry.Result{}, e.With(registry.DispatchedNo)
		}
		if err := i.admitAnew(ctx, p, err); err != nil && !errors.Is(err, registry.CodeStaleRoute) {
			// The record of the previous attempt only says that the state is unknown.
			err := unlessCancelled(ctx, registry.UnlessLate(undispatched(err), limit))
			i.noteDecision(p, err)
			return registry.Result{}, err
		}
		if p.approval != nil {
			return registry.Result{}, registry.Errorf(registry.CodeApprovalDenied,
				"The tool just changed and now needs a person's approval. Call again to request it.",
			).With(registry.DispatchedNo)
		}
		p.rec.DeviceID = p.route.Session.DeviceID
		if p.remaining = min(p.remaining, time.Until(limit)); p.remaining <= 0 {
			return registry.Result{}, registry.OutOfTime().With(registry.DispatchedNo)
		}
	}
}

// maxAttempts is how often a call is tried while its session keeps changing: more than in a rolling restart.
const maxAttempts = 6
