package routing

import (
	"context"
	"errors"
	"time"

	"github.com/farhand/farhand/registry"
)

// lostAfter is how long a remote call may stay without answer or receipt before its fate is called unknown: the
// owning pod sends a receipt after receiptAfter, so silence means the message or the pod is gone. A durable call is
// claimed in the store before, which may take taskTimeout longer.
const lostAfter = 2 * time.Second

// await is the waiting for one answer.
type await struct {
	router     *Router
	record     *registry.Record // of the call, nil if it has none
	durable    bool             // the call is
	timeout    time.Duration    // of the call
	call       *pendingCall
	posted     registry.Posted // the call on its way to another pod; nil once it is known to have left, or if there is none
	since      time.Time       // when the call was handed over, or left if that is known
	deadline   time.Time
	dispatched registry.Dispatched
	mayBeLost  bool // no receipt yet, and the other pod would have sent one
}

// run waits. cancel tells the device that nobody waits any more.
func (a *await) run(ctx context.Context, cancel func(reason string)) (registry.Result, error) {
	timer := a.call.timer
	timer.Reset(time.Until(a.due()))
	for {
		expired, stopped := false, false
		select {
		case <-a.call.ready:
		case <-timer.C:
			expired = true
		case <-ctx.Done():
			stopped = true
		}
		final, receipt, running, abandoned := a.call.progress() // what has come counts, whatever woke this one
		if a.posted != nil {
			if err := a.left(ctx, final, receipt, abandoned, expired || stopped); err != nil {
				return a.unsent(err)
			}
		}
		if receipt { // also with an answer: others may know of the call already
			a.noteReceipt(running)
		}
		if final != nil {
			return a.unpack(final)
		}
		if expired {
			expired = a.isOver()
		}
		switch {
		case abandoned:
			cancel("cancelled")
			return a.afterCancel()
		case stopped:
			return a.stopped(ctx, cancel)
		case expired && a.mayBeLost:
			return a.giveUp(registry.Lost().With(registry.DispatchedUnknown))
		case expired:
			return a.giveUp(registry.TimedOut(a.timeout, a.dispatched))
		}
	}
}

// due is when the waiting ends if nothing new comes.
func (a *await) due() time.Time {
	silence := lostAfter
	if a.durable {
		silence += taskTimeout
	}
	due := a.since.Add(silence)
	if a.mayBeLost = a.mayBeLost && due.Before(a.deadline); !a.mayBeLost {
		due = a.deadline
	}
	if leave := a.since.Add(sendTimeout); a.posted != nil && leave.Before(due) {
		due = leave
	}
	return due
}

// isOver reports whether the waiting is over now that the timer has fired, which may be for less by now than what it
// was set for. If not, it fires again.
func (a *await) isOver() bool {
	left := time.Until(a.due())
	if left > 0 {
		a.call.timer.Reset(left)
	}
	return left <= 0
}

// left finds out how the sending stands, and notes it once the call may have left. over says that nobody waits any longer. A
// call that is cancelled, or whose waiting is over, before it left is taken back; so is one whose pod was found dead
// meanwhile, which this pod answers itself.
func (a *await) left(ctx context.Context, final *registry.Reply, receipt, abandoned, over bool) error {
	sent, failure := a.call.sendResult()
	arrived := final != nil || receipt
	switch {
	case !sent.IsZero():
	case final != nil && final.Err != nil && a.posted.Withdraw():
		return registry.ErrNoReceiver
	case arrived:
	case abandoned && a.posted.Withdraw():
		return registry.Errorf(registry.CodeCancelled, "The call was cancelled.").With(registry.DispatchedNo)
	case over && a.posted.Withdraw():
		return registry.StoreUnavailable("send", whyOver(ctx)).With(registry.DispatchedNo)
	case over:
		if sent, failure = a.call.sendResult(); sent.IsZero() {
			failure = registry.StoreUnavailable("send", whyOver(ctx)).With(registry.DispatchedUnknown)
		}
	case !abandoned:
		return nil // not known yet
	}
	if final != nil && final.Err != nil && final.Err.Code == registry.CodeLost && failure != nil && registry.AsError(failure).Dispatched == registry.DispatchedNo {
		return failure // this pod's own answer about a dead pod says less
	}
	// A caller that gave up while the call was leaving is one that stops waiting: the device may have the call, and is told.
	if !arrived && failure != nil && (ctx.Err() == nil || registry.AsError(failure).Dispatched == registry.DispatchedNo) {
		return failure
	}
	if sent.IsZero() {
		sent = time.Now()
	}
	a.posted, a.since = nil, sent
	note(a.record, registry.EventRoute, registry.Change{}, sent)
	return nil
}

// unsent ends the waiting because the call has not left, or may not have. Only if it may have, an answer can be one.
func (a *await) unsent(err error) (registry.Result, error) {
	e := registry.AsError(err)
	if final := a.call.close(); final != nil && e.Dispatched != registry.DispatchedNo {
		return a.unpack(final)
	}
	return registry.Result{}, e
}

// whyOver is why a call was waited for no longer.
func whyOver(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return context.DeadlineExceeded
}

// stopped ends the waiting because ctx has ended.
func (a *await) stopped(ctx context.Context, cancel func(reason string)) (registry.Result, error) {
	if final := a.call.close(); final != nil {
		return a.unpack(final)
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return registry.Result{}, registry.TimedOut(a.timeout, a.dispatched)
	}
	if errors.Is(causeOf(ctx), registry.ErrDraining) {
		e := registry.Errorf(registry.CodeDraining, "The gateway stopped before the device answered.")
		e.RetryAfter = time.Second
		return registry.Result{}, e.With(a.dispatched)
	}
	if !errors.Is(causeOf(ctx), registry.ErrAbandoned) {
		cancel("the caller stopped waiting")
	}
	return registry.Result{}, registry.Errorf(registry.CodeCancelled, "The caller stopped waiting.").With(a.dispatched)
}

// giveUp ends the waiting with e, unless the answer has come after all. One that comes later is told that nobody waits.
func (a *await) giveUp(e *registry.Error) (registry.Result, error) {
	if final := a.call.close(); final != nil {
		return a.unpack(final)
	}
	return registry.Result{}, e
}

// cancelWait is how long a cancelled call waits to hear whether it had reached the device, or was answered just before.
const cancelWait = 500 * time.Millisecond

// afterCancel finds out how a cancelled call stands.
func (a *await) afterCancel() (registry.Result, error) {
	a.call.timer.Reset(cancelWait)
	for {
		select {
		case <-a.call.ready:
			final, receipt, _, _ := a.call.progress()
			if final != nil {
				return a.unpack(final)
			}
			if receipt {
				a.dispatched = registry.DispatchedYes
			}
			if _, failure := a.call.sendResult(); failure != nil && registry.AsError(failure).Dispatched == registry.DispatchedNo {
				return a.giveUp(registry.Errorf(registry.CodeCancelled, "The call was cancelled.").With(registry.DispatchedNo))
			}
		case <-a.call.timer.C:
			return a.giveUp(registry.Errorf(registry.CodeCancelled, "The call was cancelled.").With(a.dispatched))
		}
	}
}

// noteReceipt notes that the call was written and takes its time. From here on it can be looked up and cancelled from
// every pod.
func (a *await) noteReceipt(running bool) {
	a.dispatched, a.mayBeLost = registry.DispatchedYes, false
	event := registry.EventDeliver
	if running {
		event = registry.EventRun
	}
	owner := a.call.pod
	if owner == "" {
		owner = a.router.pod
	}
	rec := a.record
	if rec == nil {
		return
	}
	rec.Pod = a.router.pod
	rec.Apply(event, registry.Change{Owner: owner}, time.Now().UTC())
	if !a.durable && rec.CallID != "" {
		a.router.rec.keepRunning(rec)
	}
}

func (a *await) unpack(r *registry.Reply) (registry.Result, error) {
	switch {
	case r.Err != nil && r.Err.Code == registry.CodeLost:
		return registry.Result{}, r.Err.With(a.dispatched)
	case r.Err != nil:
		return registry.Result{}, r.Err
	case r.Result != nil:
		return *r.Result, nil
	default:
		return registry.Result{}, registry.Internal(nil).With(registry.DispatchedUnknown)
	}
}

// causeOf returns why ctx ended, also for a context that hides its values and so the cause, but tells it by itself.
func causeOf(ctx context.Context) error {
	if c, ok := ctx.(interface{ Cause() error }); ok {
		return c.Cause()
	}
	return context.Cause(ctx)
}

// note moves the record of a call on, if the call has one.
func note(r *registry.Record, e registry.Event, c registry.Change, at time.Time) {
	if r != nil {
		r.Apply(e, c, at.UTC())
	}
}
