package agent

import (
	"cmp"
	"context"
	"errors"
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
	err := i.prepare(ctx, req, &p, out)
	if err == nil && req.AsyncOver > 0 && (p.ask != nil || p.inv.Timeout > req.AsyncOver) {
		req.Async = true
	}
	if err == nil && p.ask != nil && !req.durable() && (req.Suspend || req.Resume != nil) {
		if err = i.suspend(ctx, req, &p, out); err == nil && req.Suspend {
			return nil
		}
	}
	if err != nil {
		err = undispatched(err)
	}
	rec := i.recordOf(req, &p, &out.Session)
	if p.waited != nil {
		rec.Stored, rec.Pod, rec.Timeline = p.waited.Stored, p.waited.Pod, p.waited.Timeline
	}
	if err == nil && p.ask != nil {
		rec.Approval = p.ask.ID
		if !req.durable() {
			err = i.attend(ctx, &p, &rec, req.tell)
		}
	}
	if p.ask == nil || err != nil { // otherwise it is decided later
		i.noteDecision(req, &p, err)
	}
	req.where = i.routeOf(&p)
	if req.durable() {
		return i.invokeDurable(ctx, req, durable{prepared: p, rec: rec, refused: err}, out)
	}
	if req.Release != nil {
		p.sent = func() {
			rec.DigestArgs()
			req.forget()
			req.Release()
			req.Release = nil
		}
	}
	if err == nil {
		out.Result, err = i.runTool(ctx, &p, &rec, false)
		out.State, out.Session = out.Result.State(), p.route.Session
	}
	return i.finish(ctx, &p.inv, &rec, out, err)
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
	rec.HoldMS = i.holdOf(p).Milliseconds()
	return rec
}

// holdOf returns how much longer than its timeout a call may take because its own calls wait for approval.
func (i *Invoker) holdOf(p *prepared) time.Duration {
	if p.local == nil {
		return 0
	}
	if _, calls := inner(p.local).(DeviceCaller); !calls {
		return 0
	}
	return i.longestQuestion()
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
			call.Args, call.Long = registry.JSON{}, &registry.LongArgs{Args: p.inv.Args, Sent: p.forget}
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
		if p.ask != nil {
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
