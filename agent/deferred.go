package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
)

// deferredCall is an asynchronous call that waits for a person, as stored with its approval. All other fields are
// looked up again when the call starts.
type deferredCall struct {
	Caller   auth.Identity   `json:"caller"`
	Tool     string          `json:"tool"`
	Session  string          `json:"session,omitempty"` // empty: a local tool
	Target   registry.Target `json:"target"`            // as requested
	Args     registry.JSON   `json:"args"`              // as requested, before any hook
	Timeout  time.Duration   `json:"timeout"`           // of the tool, once it may run
	Hold     time.Duration   `json:"hold,omitempty"`    // how much longer it may take, as of holdOf
	Endpoint Endpoint        `json:"endpoint"`
	Context  ContextKind     `json:"context,omitempty"`
	Model    bool            `json:"model,omitempty"`
	Approved string          `json:"approved"`          // what the approval covers
	Charged  []string        `json:"charged,omitempty"` // the rate-limit windows that have counted the call
}

// request returns the request for the call of an approval.
func (call *deferredCall) request(a registry.Approval) Request {
	target := call.Target
	if call.Session != "" {
		target.SessionID = call.Session
	}
	return Request{
		CallID: a.CallID, Caller: call.Caller, Tool: call.Tool, Args: call.Args, Target: target,
		Timeout: call.Timeout, Endpoint: call.Endpoint, Context: call.Context, Model: call.Model, Async: true,
		argsBytes: call.Args.Len(),
	}
}

// deferCall stores the record of a call that needs approval, and asks for it. No pod holds the call from then on.
func (i *Invoker) deferCall(ctx context.Context, req *Request, d durable, out *Outcome) error {
	a := *d.ask
	a.Deferred, a.Pod = true, ""
	life := cmp.Or(a.Within, i.cfg.DeferredTimeout)
	d.rec.HoldMS = life.Milliseconds()
	request, err := json.Marshal(deferredCall{
		Caller: req.Caller, Tool: req.Tool, Session: a.SessionID, Target: req.Target, Args: req.Args,
		Timeout: d.inv.Timeout, Hold: i.holdOf(&d.prepared),
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
		asked, err := i.cfg.Approvals.Ask(ctx, a, life, request)
		if err != nil {
			if _, failed := i.cfg.CallLog.Refuse(ctx, d.rec.Tenant, d.rec.CallID, undispatched(err)); failed != nil {
				i.cfg.Log.Warn("record of a call that cannot be approved not ended",
					"call", d.rec.CallID, "error", failed)
			}
			return err
		}
		req.counted = true // counted when the call has ended
		req.tell(asked)
		out.Approvers = asked.Approvers
	}
	return i.follow(ctx, req, stored, d.rec.RequestDigest, !created, d.start, out)
}

// StartDeferred continues the call of a final deferred approval. It starts the call on this pod if it was allowed, and
// ends its record otherwise. If several pods try to start a call, only the first does. The result reports whether this
// pod started or ended it. After an error, retry.
func (i *Invoker) StartDeferred(ctx context.Context, a registry.Approval, request []byte) (bool, error) {
	var call deferredCall
	unread := json.Unmarshal(request, &call)
	refuse := func(err error) (bool, error) {
		done, failed := i.cfg.CallLog.Refuse(ctx, a.Tenant, a.CallID, undispatched(err))
		if registry.IsCallNotFound(failed) {
			return false, nil
		}
		if done && unread == nil {
			counted := call.request(a)
			if counted.where = RouteRemote; call.Session == "" {
				counted.where = RouteLocalTool
			}
			i.count(&counted, time.Since(a.CreatedAt), registry.Result{}, err)
		}
		return done, failed
	}
	if err := denial(a); err != nil {
		return refuse(err)
	}
	if unread != nil {
		return refuse(fmt.Errorf("read a deferred call: %w", unread))
	}
	gone, err := i.callerGone(ctx, call.Caller, a.CreatedAt)
	if err != nil {
		return false, err
	}
	of := share.Owner{Tenant: a.Tenant, Identity: cmp.Or(call.Caller.User, call.Caller.Note())} // as in the request
	begun, err := i.cfg.CallLog.Begin(ctx, of, a.CallID, call.Timeout+call.Hold,
		func(ctx context.Context, rec registry.Record) (registry.Result, error) {
			return i.runDeferred(ctx, a, call, rec, gone)
		})
	if registry.IsCallNotFound(err) {
		return false, nil
	}
	return begun, err
}

// callerGone reports whether the caller's identity has ended. If the time of issue is unknown, the identity counts as
// issued when the call was requested. An error means that the state is unknown.
func (i *Invoker) callerGone(ctx context.Context, caller auth.Identity, asked time.Time) (bool, error) {
	if i.cfg.Live == nil {
		return caller.Expired(time.Now()), nil
	}
	if caller.Issued.IsZero() {
		caller.Issued = asked
	}
	err := i.cfg.Live.Verify(ctx, &caller)
	if errors.Is(err, registry.CodeUnauthenticated) {
		return true, nil
	}
	return false, err
}

// runDeferred checks an approved call again, because anything may have changed since the request, and runs it.
func (i *Invoker) runDeferred(
	ctx context.Context, a registry.Approval, call deferredCall, rec registry.Record, gone bool,
) (registry.Result, error) {
	req := call.request(a)
	d := durable{prepared: prepared{start: time.Now(), approved: call.Approved, consent: approvedBy(a)}, rec: rec}
	d.inv.charged = call.Charged
	held, letGo := i.hold(ctx, &call.Caller)
	defer letGo()
	var out Outcome
	var err error
	if gone || held.Err() != nil {
		req.refused = registry.Errorf(registry.CodeUnauthenticated,
			"The credentials of the caller ended, or were revoked, while the call waited.")
	}
	if err = i.prepare(ctx, &req, &d.prepared, &out); err == nil && d.ask != nil {
		err = denial(registry.Approval{Tool: call.Tool, Verdict: registry.Verdict{State: registry.ApprovalWithdrawn}})
	}
	if err != nil {
		err = undispatched(err)
	}
	i.noteDecision(&req, &d.prepared, err)
	req.where = i.routeOf(&d.prepared)
	var res registry.Result
	if err == nil {
		res, err = i.runTool(held, &d.prepared, &rec, true)
	}
	res, err = i.endDurable(ctx, d, res, unlessEnded(held, err))
	i.count(&req, time.Since(d.start), res, err)
	return res, err
}

// Suspended is a call that waits for a person and is held by no pod, with all that Invoke needs to continue it. It must
// be stored where it cannot be modified, and used once only.
type Suspended struct {
	CallID     string   `json:"call"`
	ApprovalID string   `json:"approval"`
	Binding    string   `json:"binding"`           // what the approval covers
	Charged    []string `json:"charged,omitempty"` // the rate-limit windows that have counted the call

	Approval registry.Approval `json:"-"` // what the person is asked
}

// suspend asks for the approval that a call needs, unless an earlier request has. It stores in out what is needed to
// continue.
func (i *Invoker) suspend(ctx context.Context, req *Request, p *prepared, out *Outcome) error {
	binding := bindingOf(*p.ask)
	if r := req.Resume; r != nil {
		if r.Binding != binding {
			return errChanged
		}
		p.ask.ID, p.ask.Pod = r.ApprovalID, ""
	} else {
		p.ask.Pod = "" // no pod holds the call
		asked, err := i.cfg.Approvals.Ask(timed{ctx, p.inv.Deadline}, *p.ask, i.approvalTime(p), nil)
		if err != nil {
			return err
		}
		p.ask = &asked
		req.tell(asked)
	}
	if req.Suspend {
		req.counted = true // counted when the call has ended
		out.Suspended = &Suspended{
			CallID: req.CallID, ApprovalID: p.ask.ID, Binding: binding, Charged: p.inv.charged, Approval: *p.ask,
		}
	}
	return nil
}

// question asks for the approval of a call, with the lifetime life. If the call is resumed, an earlier request has
// already asked.
func (i *Invoker) question(ctx context.Context, p *prepared, life time.Duration) (registry.Approval, error) {
	if p.resumed == nil {
		return i.cfg.Approvals.Ask(ctx, *p.ask, life, nil)
	}
	asked := *p.ask
	asked.CreatedAt = time.Now() // the store enforces the expiry of the question
	asked.ExpiresAt = asked.CreatedAt.Add(life)
	return asked, nil
}
