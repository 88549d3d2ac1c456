package routing

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/farhand/farhand/internal/pause"
	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/internal/trace"
	"github.com/farhand/farhand/registry"
)

const (
	maxErrands  = 256                    // of other pods that run here at once
	ownerTries  = 3                      // how often a place may change its owner while a call looks for it
	ownerPause  = 200 * time.Millisecond // before an unreachable owner is looked up again
	errandGrace = time.Second            // how much longer than the tool's timeout the calling pod waits
)

// Run runs a tool where its place is: on the owner, which this pod may be or become. report is as in RunLocal. If the
// owner does not listen, Run waits until it does, or until its lease has lapsed and this pod becomes the owner. Every
// error but the tool's own is an *Error whose Dispatched says whether the tool can have run.
func (p *Places) Run(
	ctx context.Context, e registry.Errand, report func(registry.Report),
) (registry.Result, error) {
	deadline := time.Now().Add(e.Timeout)
	for tries := 1; ; tries++ {
		place, err := p.Claim(ctx, registry.PlaceClaim{Key: e.Place.Key, Kind: e.Kind, Fence: e.Fence})
		switch {
		case err != nil && isOver(ctx):
			return registry.Result{}, notBegun(ctx, e.Tool)
		case err != nil:
			return registry.Result{}, registry.AsError(err).With(registry.DispatchedNo)
		}
		e.Place, e.Timeout = place, time.Until(deadline)
		var res registry.Result
		if place.Pod == p.pod {
			p.counts.add(&p.counts.PlaceCallsHere, 1)
			res, err = p.runHere(ctx, e, report)
		} else {
			p.counts.add(&p.counts.PlaceCallsThere, 1)
			res, err = p.runThere(ctx, e)
		}
		wait := ownerPause
		switch {
		case !movedAway(err):
			return res, err
		case errors.Is(err, registry.CodeNotOwner) && place.Pod == p.pod && p.stops():
			p.release(ctx, place) // this pod got it while it stops
			return registry.Result{}, registry.Errorf(registry.CodeDraining,
				"This pod is stopping. Retry to reach another pod.").
				RetryIn(time.Second).With(registry.DispatchedNo)
		case errors.Is(err, registry.CodeNotOwner) && tries <= ownerTries:
			wait = 0
		}
		_ = pause.For(ctx, min(wait, time.Until(deadline)))
		if ctx.Err() != nil || !time.Now().Before(deadline) {
			return registry.Result{}, notBegun(ctx, e.Tool)
		}
	}
}

// notBegun is the error for a call that ends before its tool could run: it was cancelled, this pod stops, or its time
// is up while the owner of its place does not answer.
func notBegun(ctx context.Context, tool string) error {
	e := registry.Errorf(registry.CodeNotConnected, "The pod that holds the state of the tool %q does not answer. "+
		"Retry: if the pod is dead, another one starts with new state.", tool)
	switch {
	case errors.Is(causeOf(ctx), registry.ErrDraining):
		e = registry.Errorf(registry.CodeDraining, "The gateway stopped before the tool %q ran.", tool)
	case errors.Is(ctx.Err(), context.Canceled):
		return callCancelled(registry.DispatchedNo)
	}
	return e.RetryIn(time.Second).With(registry.DispatchedNo)
}

// runHere runs a tool on this pod, which owns its place.
func (p *Places) runHere(
	ctx context.Context, e registry.Errand, report func(registry.Report),
) (registry.Result, error) {
	leave, err := p.enter(ctx, &e)
	if err != nil {
		return registry.Result{}, err
	}
	result := false
	defer func() { leave(result) }()
	res, err := p.keeping().Run(ctx, e, report)
	result = err == nil
	if movedAway(err) { // the tool itself returned this: no reason to look for another owner
		err = registry.AsError(err).With(registry.DispatchedYes)
	}
	return res, err
}

// runThere runs a tool on the pod that owns its place.
func (p *Places) runThere(ctx context.Context, e registry.Errand) (registry.Result, error) {
	text, err := json.Marshal(e)
	if err != nil {
		return registry.Result{}, registry.Internal(err).With(registry.DispatchedNo)
	}
	args, err := registry.ParseJSON(text)
	if err != nil {
		return registry.Result{}, registry.Internal(err).With(registry.DispatchedNo)
	}
	c := registry.Call{ID: registry.NewCallID(), Timeout: e.Timeout}
	w := p.router.pending.add(&c, e.Place.Pod)
	defer p.router.pending.remove(w)
	wait := p.router.newWait(&c, w, time.Now().Add(e.Timeout+errandGrace))
	res, err := p.router.exchange(ctx, w, registry.Envelope{
		Kind: registry.EnvelopeErrand, Tenant: e.Place.Key.Tenant, Session: e.Place.Key.Session,
		Generation: e.Place.Generation, Tool: e.Tool, Args: args,
	}, wait)
	if err != nil {
		return registry.Result{}, toldOf(e, err)
	}
	return res, nil
}

// toldOf rewrites the error of an exchange for a tool instead of a device.
func toldOf(e registry.Errand, err error) error {
	told := *registry.AsError(err)
	switch told.Code {
	case registry.CodeLost:
		told.Message = fmt.Sprintf("The pod that holds the state of the tool %q stopped responding. Whether the tool "+
			"ran is not known. If the pod is dead, the next call starts with new state on another pod.", e.Tool)
	case registry.CodeTimeout:
		told.Message = fmt.Sprintf("The tool %q did not finish within %v.", e.Tool, e.Timeout.Round(time.Millisecond))
	case registry.CodeDraining:
		told.Message = fmt.Sprintf("A pod stopped before the tool %q had finished.", e.Tool)
	}
	return &told
}

// handleErrand is called by the bus with another pod's call for a place of this pod.
func (p *Places) handleErrand(e registry.Envelope) {
	var errand registry.Errand
	err := json.Unmarshal(e.Args.Raw(), &errand)
	switch {
	case e.V != registry.EnvelopeVersion || err != nil:
		p.router.refuse(e.ReplyTo, e.CallID, errVersions())
		return
	case !p.router.seen.add(e.CallID, 0, e.Generation):
		p.log.Warn("errand received twice, run once", "call", errand.CallID)
		return
	}
	errand.Timeout = max(time.Duration(e.TimeoutMS)*time.Millisecond-errandGrace, time.Millisecond)
	ctx, done, err := p.admit(e.CallID, share.Owner{Tenant: e.Tenant, Identity: errand.By}, errand.Timeout)
	if err != nil {
		p.router.refuse(e.ReplyTo, e.CallID, err)
		return
	}
	ctx = p.tracer.Join(ctx, e.Trace)
	go func() {
		defer done()
		p.carryOut(ctx, e, errand)
	}()
}

// admit counts an errand of another pod until done is called. Its context ends with its timeout, when it is cancelled,
// and when the pod stops.
func (p *Places) admit(
	id string, by share.Owner, timeout time.Duration,
) (ctx context.Context, done func(), err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	slot, err := p.admitted.Try(by, 1)
	if err != nil {
		p.counts.add(&p.counts.ErrandsRefused, 1)
		return nil, nil, registry.Errorf(registry.CodeBusy,
			"The pod that holds the tool's state has reached its limit of calls.").
			RetryIn(time.Second).With(registry.DispatchedNo)
	}
	if p.closed {
		slot.Release()
		return nil, nil, registry.ErrNotOwner.With(registry.DispatchedNo)
	}
	timed, stop := context.WithTimeout(p.base, timeout)
	ctx, cancel := context.WithCancelCause(timed)
	p.errands[id] = cancel
	p.running.Add(1)
	return ctx, func() {
		defer p.running.Done()
		defer slot.Release()
		cancel(nil)
		stop()
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.errands, id)
	}, nil
}

// carryOut runs an errand of another pod and replies. As with a device's call, a receipt precedes a slow answer. The
// tool's reports are in the log of the call before the call ends.
func (p *Places) carryOut(ctx context.Context, e registry.Envelope, errand registry.Errand) {
	receipt := time.AfterFunc(receiptAfter, func() {
		p.router.answer(e.ReplyTo, registry.Reply{CallID: e.CallID, Delivered: true, Running: true})
	})
	defer receipt.Stop()
	report := p.localReport(e.Tenant, errand.By, errand.Tool, errand.CallID)
	ctx, span := p.tracer.Start(ctx, trace.Internal, "errand", errand.Tool)
	span.Text(trace.Pod, p.pod).Text(trace.ToolCall, errand.CallID)
	res, err := p.guarded(ctx, errand, report.add)
	span.End(string(registry.CodeOf(err)))
	report.written(ctx)
	if err != nil {
		p.router.refuse(e.ReplyTo, e.CallID, err)
		return
	}
	p.router.answerResult(e.ReplyTo, registry.Reply{CallID: e.CallID, Result: &res, Owner: e.Tenant})
}

// guarded turns a panic into an error.
func (p *Places) guarded(
	ctx context.Context, errand registry.Errand, report func(registry.Report),
) (res registry.Result, err error) {
	defer func() {
		if v := recover(); v != nil {
			p.log.Error("panic in an errand", "tool", errand.Tool, "panic", v, "stack", string(debug.Stack()))
			err = registry.Internal(nil).With(registry.DispatchedUnknown)
		}
	}()
	return p.runHere(ctx, errand, report)
}

// cancelErrand ends an errand that runs here. It reports whether there was one.
func (p *Places) cancelErrand(id string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	cancel := p.errands[id]
	if cancel != nil {
		cancel(callCancelled(""))
	}
	return cancel != nil
}
