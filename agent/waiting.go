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
	"github.com/farhand/farhand/internal/trace"
	"github.com/farhand/farhand/registry"
)

// waitingCall is a call that waits and runs on no pod, as stored with its approval or in the queue of its device.
type waitingCall struct {
	Caller    auth.Identity   `json:"caller"`
	Tool      string          `json:"tool"`
	Session   string          `json:"session,omitempty"` // empty: a local tool
	Target    registry.Target `json:"target"`            // as requested
	Order     registry.Order  `json:"order,omitempty"`
	Args      exactArgs       `json:"args"`           // as requested, before any hook
	Timeout   time.Duration   `json:"timeout"`        // of the tool, once it may run
	Allowance time.Duration   `json:"hold,omitempty"` // how much longer it may take, as of approvalAllowance
	Endpoint  Endpoint        `json:"endpoint"`
	Context   ContextKind     `json:"context,omitempty"`
	Model     bool            `json:"model,omitempty"`
	Approved  string          `json:"approved"` // what the approval covers; empty: none was needed
	Approver  string          `json:"approver,omitempty"`
	Queue     time.Time       `json:"queue,omitzero"`    // until when it may wait for its device; zero: not at all
	Charged   []string        `json:"charged,omitempty"` // the rate-limit windows that have counted the call
	Trace     string          `json:"trace,omitempty"`   // as of trace.Context
}

// exactArgs are arguments that keep their spelling in JSON, because an approval covers the digest of their text.
// encoding/json would remove white space, and escape signs of HTML.
type exactArgs struct{ registry.JSON }

// MarshalJSON implements json.Marshaler. It returns the text of the arguments as a string.
func (a exactArgs) MarshalJSON() ([]byte, error) { return json.Marshal(string(a.Raw())) }

// UnmarshalJSON implements json.Unmarshaler. It also reads the arguments themselves, as earlier builds stored them.
func (a *exactArgs) UnmarshalJSON(text []byte) (err error) {
	raw := string(text)
	if raw[0] == '"' {
		if err = json.Unmarshal(text, &raw); err != nil {
			return err
		}
	}
	a.JSON, err = registry.ParseJSON([]byte(raw))
	return err
}

func (call *waitingCall) request(callID string) Request {
	target := call.Target
	if call.Session != "" {
		target.SessionID = call.Session
	}
	return Request{
		CallID: callID, Caller: call.Caller, Tool: call.Tool, Args: call.Args.JSON, Target: target,
		Timeout: call.Timeout, Order: call.Order, Endpoint: call.Endpoint, Context: call.Context, Model: call.Model,
		Async:     true,
		argsBytes: call.Args.Len(),
	}
}

// StartDeferred continues the call of a final deferred approval on this pod if it was allowed. Else it ends the record.
// Only the first pod that tries does either, which the result reports. After an error, retry.
func (i *Invoker) StartDeferred(ctx context.Context, a registry.Approval, request []byte) (bool, error) {
	h := waiting{tenant: a.Tenant, callID: a.CallID, since: a.CreatedAt, approver: approverOf(a), refused: denial(a)}
	return i.startWaiting(ctx, h, request)
}

// waiting is what is known of a waiting call besides its request.
type waiting struct {
	tenant, callID string
	since          time.Time
	expires        time.Time              // of a queued call, by the store's clock; zero: it is not queued
	asked          time.Time              // when this pod asked the store to begin it, by the pod's clock
	approver       string                 // as of prepared
	session        string                 // that its device has now; empty: as requested
	connected      time.Time              // since when; with session
	offers         func(tool string) bool // whether the device has registered a tool; with session
	refused        error                  // why it must not start; nil: it may
}

// overdue reports whether a queued call that the store has begun has expired since. It compares no clocks: the store
// has noted when it began the call, and the pod, which may have been frozen, knows how long that is ago at most.
func (h *waiting) overdue(rec *registry.Record) bool {
	if h.expires.IsZero() {
		return false
	}
	begun := rec.Timeline[len(rec.Timeline)-1].At
	return time.Since(h.asked) >= h.expires.Sub(begun)
}

// startWaiting starts a waiting call on this pod, or ends it. It reports whether it still waited.
func (i *Invoker) startWaiting(ctx context.Context, h waiting, request []byte) (bool, error) {
	var call waitingCall
	if err := json.Unmarshal(request, &call); err != nil {
		h.refused = cmp.Or(h.refused, fmt.Errorf("read a waiting call: %w", err))
	}
	if h.session != "" {
		call.Session = h.session
	}
	h.approver = cmp.Or(h.approver, call.Approver)
	if h.refused != nil {
		return i.refuseWaiting(ctx, h, &call)
	}
	gone, err := i.callerGone(ctx, call.Caller, h.since)
	if err != nil {
		return false, err
	}
	h.asked = time.Now()
	begun, err := i.cfg.CallLog.Begin(ctx, share.Owner{Tenant: h.tenant, Identity: chargedFor(&call.Caller)}, h.callID,
		call.Timeout+call.Allowance, func(ctx context.Context, rec registry.Record) (registry.Result, error) {
			return i.runWaiting(ctx, h, call, &rec, gone)
		})
	if registry.IsCallNotFound(err) {
		return false, nil
	}
	return begun, err
}

// errUnapproved is the error of a waiting call that needs an approval which it does not have.
func errUnapproved(tool string, h waiting) error {
	if h.expires.IsZero() {
		return denial(registry.Approval{Tool: tool, Verdict: registry.Verdict{State: registry.ApprovalWithdrawn}})
	}
	return registry.Errorf(registry.CodeApprovalDenied, "The policy or a grant changed while this call of %q waited "+
		"for its device: it now needs a person's approval. Call again to request it.", tool)
}

// chargedFor returns the identity that a durable call is charged to.
func chargedFor(caller *auth.Identity) string { return cmp.Or(caller.User, caller.Note()) }

func (i *Invoker) refuseWaiting(ctx context.Context, h waiting, call *waitingCall) (bool, error) {
	done, failed := i.cfg.CallLog.Refuse(ctx, h.tenant, h.callID, undispatched(h.refused))
	if registry.IsCallNotFound(failed) {
		return false, nil
	}
	if done && call.Tool != "" {
		counted := call.request(h.callID)
		if counted.where = RouteRemote; call.Session == "" {
			counted.where = RouteLocalTool
		}
		i.count(&counted, time.Since(h.since), registry.Result{}, h.refused)
	}
	return done, failed
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

// runWaiting checks a call again, because anything may have changed since the request, and runs it. If its device
// sleeps, it returns to the queue.
func (i *Invoker) runWaiting(
	ctx context.Context, h waiting, call waitingCall, rec *registry.Record, gone bool,
) (registry.Result, error) {
	req := call.request(h.callID)
	ctx, span := i.cfg.Tracer.Start(i.cfg.Tracer.Join(ctx, call.Trace), trace.Internal, operationTool, call.Tool)
	req.trace, req.traced = trace.RefOf(ctx), span.Records()
	p := &prepared{start: time.Now(), approved: call.Approved, approver: h.approver, rec: rec}
	p.inv.charged = call.Charged
	bound, release := i.bindIdentity(ctx, &call.Caller)
	defer release()
	var out Outcome
	var err error
	if gone || bound.Err() != nil {
		req.refused = registry.Errorf(registry.CodeUnauthenticated,
			"The caller's credentials expired or were revoked while the call waited.")
	}
	if err = i.prepare(ctx, &req, p, &out); err == nil && p.approval != nil {
		err = errUnapproved(call.Tool, h)
	}
	if err != nil {
		err = undispatched(err)
	}
	again := i.queueWaiting(ctx, h, &call, p, err)
	if err == nil && h.overdue(rec) {
		again = &registry.QueuedAgain{Until: h.expires} // the sweep ends it
	}
	if again != nil {
		return registry.Result{}, again
	}
	i.noteDecision(p, err)
	req.where = i.routeOf(p)
	var res registry.Result
	if err == nil {
		res, err = i.runTool(bound, p, true)
		if again := i.queueWaiting(ctx, h, &call, p, err); again != nil {
			return registry.Result{}, again
		}
	}
	res, err = i.endDurable(ctx, p, res, unlessEnded(bound, err))
	if out.CallID, out.Result = h.callID, res; span.Records() {
		endSpan(span, &req, &out, err)
	}
	i.count(&req, time.Since(p.start), res, err)
	return res, err
}
