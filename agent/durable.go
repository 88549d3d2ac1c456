package agent

import (
	"context"
	"encoding/json"
	"errors"
	"regexp"
	"time"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/internal/strictjson"
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
			return i.follow(ctx, p, stored, true, p.start, out)
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
	ctx context.Context, p *prepared, rec registry.Record, earlier bool, asked time.Time, out *Outcome,
) error {
	req := p.req
	if rec.RequestDigest != p.rec.RequestDigest {
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
	if earlier && rec.State == registry.StateQueued {
		if err := i.queueAgain(ctx, p, &rec, out); err != nil {
			return err
		}
	}
	if req.Async || rec.State == registry.StateQueued {
		out.Async = true
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
	fields := map[string]any{
		"tool": req.Tool, "target": req.Target, "select": req.Select, "timeout": req.Timeout,
		"async": req.Async && !req.queued,
	}
	if req.Queue > 0 {
		fields["queue"] = req.Queue
	}
	rest, err := json.Marshal(fields)
	if err != nil {
		return "", err
	}
	return strictjson.Digest(req.Args.Raw(), rest)
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
