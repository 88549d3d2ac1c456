package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/internal/strictjson"
	"github.com/farhand/farhand/internal/trace"
	"github.com/farhand/farhand/registry"
)

// joinGrace is how long past its timeout a caller waits for the call's final record.
const joinGrace = 100 * time.Millisecond

var keyPattern = regexp.MustCompile(`^[\x21-\x7e]{1,255}$`)

// bindIdentity returns a context, for a call that outlives its request, that ends when the caller's identity does.
func (i *Invoker) bindIdentity(ctx context.Context, caller *auth.Identity) (context.Context, func()) {
	if i.cfg.Live == nil {
		return ctx, func() {}
	}
	return i.cfg.Live.Bind(ctx, caller)
}

// unlessEnded returns err. If the call was cancelled because its caller's identity ended, the error says so.
func unlessEnded(ctx context.Context, err error) error {
	if !errors.Is(err, registry.CodeCancelled) || !errors.Is(context.Cause(ctx), registry.CodeUnauthenticated) {
		return err
	}
	why := registry.Errorf(registry.CodeCancelled, "The call was cancelled, because its caller lost access: %s",
		registry.AsError(context.Cause(ctx)).Message)
	return why.With(registry.AsError(err).Dispatched)
}

// endDurable runs the hooks on the outcome of a durable call, and returns the result to store, unless one is stored.
func (i *Invoker) endDurable(
	ctx context.Context, p *prepared, res registry.Result, err error,
) (registry.Result, error) {
	out := Outcome{CallID: p.inv.CallID, Session: p.route.Session, Result: res}
	if err == nil && i.custom.amendsTool(p.inv.Spec.Name) || dropped(err) {
		rec, failure := i.cfg.CallLog.Wait(ctx, p.rec.Tenant, p.rec.CallID, 0)
		if failure == nil && rec.Result != nil { // it was amended when it was stored
			out.Result, err = rec.Outcome()
			i.hooks.after(ctx, i.cfg.Log, &p.inv, out, err)
			return out.Result, err
		}
	}
	amended, failure := i.hooks.end(ctx, i.cfg.Log, &p.inv, out, err)
	return recordedOutcome(res, amended, err, failure)
}

// dropped reports whether a tool has run and its result was lost on its way. The pod of the device may have stored it.
func dropped(err error) bool {
	return errors.Is(err, registry.CodeLost) && registry.AsError(err).Dispatched == registry.DispatchedYes
}

// refuseDurable refuses a call that must not run, unless it repeats an earlier call that has a record.
func (i *Invoker) refuseDurable(ctx context.Context, p *prepared, refused error, out *Outcome) error {
	req := p.req
	if req.IdempotencyKey != "" {
		stored, err := i.cfg.CallLog.ByKey(timed{ctx, p.end()}, req.Caller.Tenant, p.rec.IdempotencyKey)
		if err == nil {
			return i.follow(ctx, req, stored, p.rec.RequestDigest, true, p.start, out)
		}
		if !registry.IsCallNotFound(err) {
			return registry.UnlessLate(err, p.end())
		}
	}
	if _, amended := i.hooks.end(ctx, i.cfg.Log, &p.inv, *out, refused); amended != nil {
		refused = amended // otherwise a hook returned a result, which a call that did not run cannot have
	}
	i.cfg.CallLog.Finish(p.rec, registry.Result{}, refused)
	return refused
}

// follow answers with the record of a call: immediately if the request is asynchronous, else when the call has ended.
// earlier is set if the record belongs to an earlier request. asked is when this request began.
func (i *Invoker) follow(
	ctx context.Context, req *Request, rec registry.Record, digest string, earlier bool, asked time.Time, out *Outcome,
) error {
	if rec.RequestDigest != digest {
		return registry.Errorf(registry.CodeIdempotency,
			"This idempotency key belongs to another request. Use a new key for each request.")
	}
	if earlier && !req.counted {
		req.counted = true
		if i.cfg.Meter != nil {
			i.cfg.Meter.CallEnded(CallEnd{Endpoint: req.Endpoint, Route: req.where, Outcome: OutcomeReplayed})
		}
	}
	out.Approval, out.Async = rec.Approval, req.Async
	out.CallID, out.State, out.Replayed = rec.CallID, rec.State, earlier && rec.State.Final()
	out.Session = registry.Session{
		Key: registry.Key{Tenant: rec.Tenant, Session: rec.SessionID}, DeviceID: rec.DeviceID,
	}
	if req.Async {
		return nil
	}
	if !rec.State.Final() {
		var err error
		wait := time.Until(asked.Add(time.Duration(rec.HoldMS+rec.TimeoutMS)*time.Millisecond + joinGrace))
		until := time.Now().Add(wait)
		ctx, cancel := context.WithDeadline(ctx, until)
		defer cancel()
		if rec, err = i.cfg.CallLog.WaitOutcome(ctx, rec.Tenant, rec.CallID, wait); err != nil {
			if registry.IsCallNotFound(err) { // the record existed, so the store was emptied
				err = registry.StoreUnavailable("follow a call", err)
			}
			return registry.UnlessLate(registry.AsError(err).With(registry.DispatchedUnknown), until)
		}
	}
	out.State = rec.State
	if !rec.State.Final() {
		dispatched := registry.DispatchedUnknown // a pod claims a call before it sends it to the device
		if rec.State == registry.StateRunning {
			dispatched = registry.DispatchedYes
		}
		return registry.Errorf(registry.CodeTimeout, "The call is still %s; GET /api/calls/%s returns its result.",
			rec.State, rec.CallID).With(dispatched)
	}
	if n := len(rec.Timeline); n > 0 {
		out.Duration = rec.Timeline[n-1].At.Sub(rec.Timeline[0].At)
	}
	var err error
	out.Result, err = rec.Outcome()
	return err
}

// digest is requestDigest with the memory for it reserved.
func (i *Invoker) digest(ctx context.Context, req *Request, deadline time.Time) (string, error) {
	by := req.Caller.Owner()
	release, err := i.cfg.Schemas.ReserveArgs(ctx, by, deadline, req.Args.Raw())
	if err != nil {
		return "", err
	}
	defer release()
	done, err := i.cfg.Schemas.ReadText(ctx, by, deadline, req.Args.Len())
	if err != nil {
		return "", err
	}
	defer done()
	return requestDigest(req)
}

// storedKey returns the idempotency key as stored. Each user and each credential has its own keys.
func storedKey(req *Request) string {
	scope := req.Caller.Scope()
	if scope == "" || req.IdempotencyKey == "" {
		return req.IdempotencyKey
	}
	return scope + "\n" + req.IdempotencyKey // keys contain no line feeds, so the result is unambiguous
}

// requestDigest returns a digest of a request. Two requests with one key are the same if their digests are equal.
func requestDigest(req *Request) (string, error) {
	if req.IdempotencyKey != "" && !keyPattern.MatchString(req.IdempotencyKey) {
		return "", registry.Errorf(registry.CodeInvalidRequest,
			"The idempotency key must be 1 to 255 printable ASCII characters without spaces.")
	}
	rest, err := json.Marshal(map[string]any{
		"tool": req.Tool, "target": req.Target, "select": req.Select, "timeout": req.Timeout, "async": req.Async,
	})
	if err != nil {
		return "", err
	}
	return strictjson.Digest(req.Args.Raw(), rest)
}

// deferredCall is an asynchronous call that waits for a person, as stored with its approval.
type deferredCall struct {
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
	Approved  string          `json:"approved"`          // what the approval covers
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

func (call *deferredCall) request(a registry.Approval) Request {
	target := call.Target
	if call.Session != "" {
		target.SessionID = call.Session
	}
	return Request{
		CallID: a.CallID, Caller: call.Caller, Tool: call.Tool, Args: call.Args.JSON, Target: target,
		Order: call.Order, Timeout: call.Timeout, Endpoint: call.Endpoint, Context: call.Context, Model: call.Model,
		Async:     true,
		argsBytes: call.Args.Len(),
	}
}

// StartDeferred continues the call of a final deferred approval on this pod if it was allowed. Else it ends the record.
// Only the first pod that tries does either, which the result reports. After an error, retry.
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
			return i.runDeferred(ctx, a, call, &rec, gone)
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
	ctx context.Context, a registry.Approval, call deferredCall, rec *registry.Record, gone bool,
) (registry.Result, error) {
	req := call.request(a)
	ctx, span := i.cfg.Tracer.Start(i.cfg.Tracer.Join(ctx, call.Trace), trace.Internal, operationTool, call.Tool)
	req.traceID, req.traced = trace.ID(ctx), span.Records()
	p := &prepared{start: time.Now(), approved: call.Approved, approver: approverOf(a), rec: rec}
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
		err = denial(registry.Approval{Tool: call.Tool, Verdict: registry.Verdict{State: registry.ApprovalWithdrawn}})
	}
	if err != nil {
		err = undispatched(err)
	}
	i.noteDecision(p, err)
	req.where = i.routeOf(p)
	var res registry.Result
	if err == nil {
		res, err = i.runTool(bound, p, true)
	}
	res, err = i.endDurable(ctx, p, res, unlessEnded(bound, err))
	if out.CallID, out.Result = a.CallID, res; span.Records() {
		endSpan(span, &req, &out, err)
	}
	i.count(&req, time.Since(p.start), res, err)
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
