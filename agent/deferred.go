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
	Caller    auth.Identity   `json:"caller"`
	Tool      string          `json:"tool"`
	Session   string          `json:"session,omitempty"` // empty: a local tool
	Target    registry.Target `json:"target"`            // as requested
	Args      registry.JSON   `json:"args"`              // as requested, before any hook
	Timeout   time.Duration   `json:"timeout"`           // of the tool, once it may run
	Allowance time.Duration   `json:"hold,omitempty"`    // how much longer it may take, as of approvalAllowance
	Endpoint  Endpoint        `json:"endpoint"`
	Context   ContextKind     `json:"context,omitempty"`
	Model     bool            `json:"model,omitempty"`
	Approved  string          `json:"approved"`          // what the approval covers
	Charged   []string        `json:"charged,omitempty"` // the rate-limit windows that have counted the call
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
	begun, err := i.cfg.CallLog.Begin(ctx, of, a.CallID, call.Timeout+call.Allowance,
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
	d := durableCall{prepared: prepared{start: time.Now(), approved: call.Approved, approver: approverOf(a)}, rec: rec}
	d.inv.charged = call.Charged
	bound, release := i.bindIdentity(ctx, &call.Caller)
	defer release()
	var out Outcome
	var err error
	if gone || bound.Err() != nil {
		req.refused = registry.Errorf(registry.CodeUnauthenticated,
			"The credentials of the caller ended, or were revoked, while the call waited.")
	}
	if err = i.prepare(ctx, &req, &d.prepared, &out); err == nil && d.approval != nil {
		err = denial(registry.Approval{Tool: call.Tool, Verdict: registry.Verdict{State: registry.ApprovalWithdrawn}})
	}
	if err != nil {
		err = undispatched(err)
	}
	i.noteDecision(&req, &d.prepared, err)
	req.where = i.routeOf(&d.prepared)
	var res registry.Result
	if err == nil {
		res, err = i.runTool(bound, &d.prepared, &rec, true)
	}
	res, err = i.endDurable(ctx, d, res, unlessEnded(bound, err))
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
