package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

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
	out := Outcome{CallID: req.CallID}
	err := i.invoke(ctx, &req, &out, start)
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

// mode is how long a call lasts: whether it outlives its request, and where it waits for a person.
type mode int

const (
	modeLight     mode = iota // the call ends with its request; its record is written at the end
	modeSuspended             // light, but its request returns once a person was asked; Request.Resume continues it
	modeDurable               // the call has a record first, and runs on without its request
	modeDeferred              // durable, and no pod holds the call while a person decides; StartDeferred continues it
)

// invoke is the path of every call:
//
//	 request
//	    │ prepare: find the tool, run the hooks
//	    ├──── needs no approval ───────────────────────────────────────────────────────▶ RUNS
//	    │                                                                                 ▲
//	    └──── needs approval                                                              │
//	            ├─ light, durable ──▶ ASKED ── this pod waits ─────────────▶ recheck ─────┤
//	            ├─ suspended ───────▶ ASKED ── Request.Resume, prepare, wait ▶ recheck ───┤
//	            └─ deferred ────────▶ ASKED ── StartDeferred on any pod, prepare ─────────┘
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
	if p.resumed = req.Resume; p.resumed != nil {
		p.inv.charged = p.resumed.Charged
	}
	refused := i.prepare(ctx, req, &p, out)
	if refused == nil && req.AsyncIfLonger > 0 && (p.approval != nil || p.inv.Timeout > req.AsyncIfLonger) {
		req.Async = true
	}
	if refused == nil && p.approval != nil && p.resumed != nil && !req.durable() {
		refused = p.resumeApproval()
	}
	if refused != nil {
		refused = undispatched(refused)
	}
	switch mode := modeOf(req, &p, refused); mode {
	case modeDurable, modeDeferred:
		return i.invokeDurable(ctx, req, &p, mode, refused, out)
	case modeSuspended:
		if refused = i.suspend(ctx, req, &p, out); refused == nil {
			return nil
		}
	case modeLight:
	}
	return i.invokeLight(ctx, req, &p, refused, out)
}

// modeOf returns the mode of a prepared call. refused is why it must not run; nil: it may.
func modeOf(req *Request, p *prepared, refused error) mode {
	switch needsApproval := refused == nil && p.approval != nil; {
	case req.Async && needsApproval:
		return modeDeferred
	case req.durable():
		return modeDurable
	case req.Suspend && needsApproval:
		return modeSuspended
	default:
		return modeLight
	}
}

// invokeLight runs a call that ends with its request. refused is why it must not run; nil: it may.
func (i *Invoker) invokeLight(ctx context.Context, req *Request, p *prepared, refused error, out *Outcome) error {
	rec, err := i.recordOf(req, p, &out.Session), refused
	if err == nil && p.approval != nil {
		err = i.waitWithRecord(ctx, p, &rec)
	}
	i.noteDecision(req, p, err)
	req.where = i.routeOf(p)
	if req.Release != nil {
		p.sent = func() {
			rec.DigestArgs()
			req.dropArgs()
			req.Release()
			req.Release = nil
		}
	}
	if err == nil {
		out.Result, err = i.runTool(ctx, p, &rec, false)
		out.State, out.Session = out.Result.State(), p.route.Session
	}
	return i.finish(ctx, &p.inv, &rec, out, err)
}

// suspend asks for the approval that a call needs, unless an earlier request has. It stores in out what is needed to
// continue.
func (i *Invoker) suspend(ctx context.Context, req *Request, p *prepared, out *Outcome) error {
	if p.resumed == nil {
		p.approval.Pod = "" // no pod holds the call
		if err := i.ask(timed{ctx, p.inv.Deadline}, p, i.approvalTime(p), nil); err != nil {
			return undispatched(err)
		}
	}
	req.counted = true // counted when the call has ended
	out.Suspended = &Suspended{
		CallID: req.CallID, ApprovalID: p.approval.ID, Binding: bindingOf(*p.approval), Charged: p.inv.charged,
		Approval: *p.approval,
	}
	return nil
}

// invokeDurable stores the call's record, then runs the call even if the caller disconnects. refused is why it must not
// run; an earlier call with the same key may still have run.
func (i *Invoker) invokeDurable(
	ctx context.Context, req *Request, p *prepared, mode mode, refused error, out *Outcome,
) error {
	d := durableCall{prepared: *p, rec: i.recordOf(req, p, &out.Session)}
	if refused == nil && d.approval != nil {
		d.rec.Approval = d.approval.ID // the decision is noted after the answer
	} else {
		i.noteDecision(req, p, refused)
	}
	req.where = i.routeOf(p)
	digest, err := i.digest(ctx, req, d.start.Add(d.inv.Timeout))
	if err != nil {
		return err
	}
	d.rec.IdempotencyKey, d.rec.RequestDigest, d.rec.Mode = storedKey(req), digest, registry.ModeSync
	if req.Async {
		d.rec.Mode = registry.ModeAsync
	}
	switch {
	case refused != nil:
		return i.refuseDurable(ctx, req, d, refused, out)
	case mode == modeDeferred:
		return i.deferCall(ctx, req, d, out)
	case d.approval != nil: // the timeout covers the wait for approval and the tool
		d.rec.TimeoutMS += i.approvalTime(&d.prepared).Milliseconds()
	}
	d.rec.DigestArgs() // so that the record does not keep the arguments
	release := func() {}
	if req.Release != nil {
		release = sync.OnceFunc(req.Release)
		d.sent = release
	}
	about := Request{
		CallID: req.CallID, Caller: req.Caller, Tool: req.Tool, Turn: req.Turn, Endpoint: req.Endpoint,
		where: req.where, argsBytes: req.argsBytes,
	}
	start := d.start // an approval moves d.start
	stored, created, err := i.cfg.CallLog.Start(timed{ctx, start.Add(d.inv.Timeout)}, d.rec,
		func(ctx context.Context) (registry.Result, error) {
			defer release()
			return i.runDurable(ctx, &d, &about)
		})
	if err != nil {
		return err
	}
	req.dropArgs() // the running call has its own copy; a request that joins a call needs none
	switch {
	case created:
		req.Release, req.counted = nil, true // released when the device has the call or it ends; counted when it ends
	case req.Release != nil:
		req.Release()
		req.Release = nil
	}
	return i.follow(ctx, req, stored, digest, !created, start, out)
}

// runDurable asks for the approval that a durable call needs, and runs its tool. about is the request, without its
// arguments. It returns the result to store.
func (i *Invoker) runDurable(ctx context.Context, d *durableCall, about *Request) (registry.Result, error) {
	bound, release := i.bindIdentity(ctx, &d.inv.Caller)
	defer release()
	rec, res := d.rec, registry.Result{}
	var err error
	if d.approval != nil {
		err = i.waitForApproval(bound, &d.prepared)
		i.noteDecision(about, &d.prepared, err)
	}
	if err == nil {
		res, err = i.runTool(bound, &d.prepared, &rec, true)
	}
	res, err = i.endDurable(ctx, *d, res, unlessEnded(bound, err))
	i.count(about, time.Since(d.start), res, err)
	return res, err
}

// deferCall stores the record of a call that needs approval, and asks for it. No pod holds the call from then on.
func (i *Invoker) deferCall(ctx context.Context, req *Request, d durableCall, out *Outcome) error {
	a := *d.approval
	a.Deferred, a.Pod = true, ""
	life := cmp.Or(a.Within, i.cfg.DeferredTimeout)
	d.approval, d.rec.HoldMS = &a, life.Milliseconds()
	request, err := json.Marshal(deferredCall{
		Caller: req.Caller, Tool: req.Tool, Session: a.SessionID, Target: req.Target, Args: req.Args,
		Timeout: d.inv.Timeout, Allowance: i.approvalAllowance(&d.prepared),
		Endpoint: req.Endpoint, Context: req.Context, Model: req.Model,
		Approved: bindingOf(a), Charged: d.inv.charged,
	})
	if err != nil {
		return err
	}
	ctx = timed{ctx, d.start.Add(d.inv.Timeout)}
	stored, created, err := i.cfg.CallLog.Hold(ctx, d.rec)
	if err != nil {
		return err
	}
	if created {
		if err := i.ask(ctx, &d.prepared, life, request); err != nil {
			if _, failed := i.cfg.CallLog.Refuse(ctx, d.rec.Tenant, d.rec.CallID, undispatched(err)); failed != nil {
				i.cfg.Log.Warn("record of a call that cannot be approved not ended",
					"call", d.rec.CallID, "error", failed)
			}
			return err
		}
		req.counted = true // counted when the call has ended
		out.Approvers = d.approval.Approvers
	}
	return i.follow(ctx, req, stored, d.rec.RequestDigest, !created, d.start, out)
}

// finish runs the amending hooks on the outcome of a call, and records the call. callErr is the error of the call
// itself. The hooks decide what the caller reads; the record says whether the tool ran.
func (i *Invoker) finish(
	ctx context.Context, inv *Invocation, rec *registry.Record, out *Outcome, callErr error,
) error {
	res, err := i.hooks.end(ctx, i.cfg.Log, inv, *out, callErr)
	switch {
	case callErr == nil && err != nil:
		i.cfg.CallLog.Finish(rec, withoutOutput(out.Result, err), nil)
	case callErr != nil && err == nil:
		i.cfg.CallLog.Finish(rec, registry.Result{}, callErr)
	default:
		i.cfg.CallLog.Finish(rec, res, err)
	}
	out.Result, out.State = res, res.State()
	return err
}

// withoutOutput returns the result to record when a hook withheld res with err.
func withoutOutput(res registry.Result, err error) registry.Result {
	e := registry.AsError(err)
	return registry.Result{Success: res.Success, Error: e.Message, Withheld: e.With(registry.DispatchedYes)}
}

// recordOf creates the record of a call.
func (i *Invoker) recordOf(req *Request, p *prepared, session *registry.Session) registry.Record {
	rec := registry.NewRecord(req.CallID, req.Caller.Tenant, req.Tool, req.Args.Raw())
	rec.UserID, rec.Turn, rec.TimeoutMS = req.Caller.User, req.Turn, p.inv.Timeout.Milliseconds()
	rec.Caller = req.Caller.Note()
	rec.SessionID, rec.DeviceID = session.Key.Session, session.DeviceID
	if p.local != nil {
		rec.Tool, rec.Source = p.inv.Spec.Name, cmp.Or(p.inv.Source, registry.SourceLocal)
	}
	rec.HoldMS = i.approvalAllowance(p).Milliseconds()
	if w := p.waited; w != nil {
		rec.Stored, rec.Pod, rec.Timeline = w.Stored, w.Pod, w.Timeline
	}
	return rec
}

// approvalAllowance returns how much longer than its timeout a call may take because its own calls wait for approval.
func (i *Invoker) approvalAllowance(p *prepared) time.Duration {
	if p.local == nil {
		return 0
	}
	if _, calls := madeBy(p.local).(DeviceCaller); !calls {
		return 0
	}
	return i.longestApproval()
}

// runTool runs the tool, on this pod or on a device.
func (i *Invoker) runTool(
	ctx context.Context, p *prepared, rec *registry.Record, durable bool,
) (registry.Result, error) {
	if p.local != nil {
		return i.runLocal(ctx, *p, rec, durable)
	}
	limit := time.Now().Add(p.remaining) // reading a changed definition does not extend the call
	for attempt := int64(0); ; attempt++ {
		call := registry.Call{
			ID: p.inv.CallID, Route: p.route, Args: p.inv.Args, Timeout: p.remaining, Durable: durable,
			Attempt: attempt,
		}
		if p.sent != nil {
			call.Args, call.Long = registry.JSON{}, &registry.LongArgs{Args: p.inv.Args, Sent: p.dropArgs}
		}
		if !durable {
			call.Record = rec
		}
		// The router enforces the timeout of a call itself, so the context needs no timer.
		res, err := i.cfg.Router.Call(deadlineOnly{ctx}, call)
		if !errors.Is(err, registry.CodeStaleRoute) {
			return res, err
		}
		if attempt == maxAttempts-1 {
			e := registry.Errorf(registry.CodeBusy,
				"The device changes its session or the tool all the time. Retry in a moment.")
			return registry.Result{}, e.With(registry.DispatchedNo)
		}
		if err := i.admitAnew(ctx, p, err); err != nil && !errors.Is(err, registry.CodeStaleRoute) {
			err := undispatched(err) // the record of the previous attempt only says that the state is unknown
			i.noteDecision(&Request{Caller: p.inv.Caller, Tool: p.inv.Spec.Name, CallID: p.inv.CallID,
				Turn: p.inv.Turn}, p, err)
			return registry.Result{}, err
		}
		if p.approval != nil {
			return registry.Result{}, registry.Errorf(registry.CodeApprovalDenied,
				"The tool has changed just now and needs a person's approval. Call again to ask for it.",
			).With(registry.DispatchedNo)
		}
		rec.DeviceID = p.route.Session.DeviceID
		if p.remaining = min(p.remaining, time.Until(limit)); p.remaining <= 0 {
			return registry.Result{}, registry.Errorf(registry.CodeTimeout,
				"The time of the call was up before its tool could run.").With(registry.DispatchedNo)
		}
	}
}

// maxAttempts is how often a call is tried while its session keeps changing. It is more than the moves of a session in
// a rolling restart.
const maxAttempts = 6
