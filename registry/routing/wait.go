package routing

import (
	"context"
	"errors"
	"time"

	"github.com/farhand/farhand/registry"
)

// lostAfter is how long a remote call may stay without answer or receipt before its fate is called unknown. The owning
// pod sends a receipt after receiptAfter, so silence means that the message or the pod is gone. A durable call is
// claimed in the store first, which may take taskTimeout longer.
const lostAfter = 2 * time.Second

// cancelWait is how long a cancelled call waits for word of whether it had reached the device, or was answered just
// before.
const cancelWait = 500 * time.Millisecond

// phase is how far a call is known to have come. A wait only moves down in this table:
//
//	phase      begins when                      lasts at most            then the caller gets
//	sending    the bus took the call            sendTimeout              store_unavailable
//	sent       the bus has sent it              lostAfter (more, if      lost, dispatched=unknown
//	                                            it is durable)
//	delivered  the device has it                the call's timeout       timeout, dispatched=yes
//
// The call's timeout bounds every phase. An answer ends the wait in any of them; so does a cancellation, and so does
// the caller's context. A call to a socket of this pod begins as delivered.
type phase int

const (
	phaseSending phase = iota
	phaseSent
	phaseDelivered
)

// wait is a caller's wait for the answer to one call.
type wait struct {
	router   *Router
	record   *registry.Record // of the call, nil if it has none
	durable  bool
	timeout  time.Duration
	call     *pendingCall
	phase    phase
	sending  registry.PendingSend // in phaseSending: the call on its way
	since    time.Time            // when the call was handed to the bus; from phaseSent on, when it was sent
	deadline time.Time
}

// trigger is what made a wait look at its call.
type trigger int

const (
	notified trigger = iota // there is progress
	expired                 // the timer fired
	stopped                 // the caller's context ended
)

// run waits. cancel tells the device that nobody waits any more.
func (w *wait) run(ctx context.Context, cancel func(reason string)) (registry.Result, error) {
	for {
		why := w.next(ctx)
		p := w.call.progress() // progress counts, whatever the trigger was
		if w.phase == phaseSending {
			sent, err := w.hasBeenSent(ctx, p, why != notified)
			if err != nil {
				return w.notSent(err)
			}
			if sent {
				w.beginSent(p.sentAt)
			}
		}
		if p.receipt { // also together with an answer, because others may know of the call already
			w.noteReceipt(p.running)
		}
		switch {
		case p.answer != nil:
			return unpack(p.answer, w.dispatched())
		case p.cancelled:
			cancel("cancelled")
			return w.afterCancel()
		case why == stopped:
			return w.afterStop(ctx, cancel)
		case why == expired:
			at, lost := w.due()
			switch {
			case time.Now().Before(at): // a later phase has begun since the timer was set
			case lost:
				return w.end(registry.Lost().With(registry.DispatchedUnknown))
			default:
				return w.end(registry.TimedOut(w.timeout, w.dispatched()))
			}
		}
	}
}

// next waits for the next trigger.
func (w *wait) next(ctx context.Context) trigger {
	at, _ := w.due()
	w.call.timer.Reset(time.Until(at))
	select {
	case <-w.call.ready:
		return notified
	case <-w.call.timer.C:
		return expired
	case <-ctx.Done():
		return stopped
	}
}

// due returns when the phase ends if nothing new comes, and whether the call is lost then.
func (w *wait) due() (at time.Time, lost bool) {
	at = w.deadline
	if w.phase < phaseDelivered {
		silence := lostAfter
		if w.durable {
			silence += taskTimeout
		}
		if end := w.since.Add(silence); end.Before(at) {
			at, lost = end, true
		}
	}
	if end := w.since.Add(sendTimeout); w.phase == phaseSending && end.Before(at) {
		at = end // hasBeenSent decides what the caller gets
	}
	return at, lost
}

// dispatched says whether the device can have run the tool.
func (w *wait) dispatched() registry.Dispatched {
	if w.phase == phaseDelivered {
		return registry.DispatchedYes
	}
	return registry.DispatchedUnknown
}

// hasBeenSent reports whether the bus has sent the call, or may have. over says that the wait is over. If the wait is
// over, or the call was cancelled, or this pod found the other pod dead, hasBeenSent takes the call back from the bus
// if it can. The error is what the caller gets for a call that was taken back or could not be sent.
func (w *wait) hasBeenSent(ctx context.Context, p progress, over bool) (bool, error) {
	refused := p.answer != nil && p.answer.Err != nil
	arrived := p.answer != nil || p.receipt
	if p.sentAt.IsZero() { // the bus has not reported yet
		unwanted := refused || !arrived && (p.cancelled || over)
		switch {
		case unwanted && w.sending.Cancel():
			return false, takenBack(ctx, refused, p.cancelled)
		case arrived, p.cancelled && !over:
		case !over:
			return false, nil
		default: // the bus is sending it at this moment
			p = w.call.sendResult(p)
			if p.sentAt.IsZero() {
				p.sendErr = registry.StoreUnavailable("send", whyOver(ctx)).With(registry.DispatchedUnknown)
			}
		}
	}
	if p.sendErr == nil {
		return true, nil
	}
	certain := registry.AsError(p.sendErr).Dispatched == registry.DispatchedNo
	switch {
	case certain && refused && p.answer.Err.Code == registry.CodeLost:
		return false, p.sendErr // more precise than this pod's own answer about a dead pod
	case arrived:
		return true, nil
	case certain, ctx.Err() == nil:
		return false, p.sendErr
	default: // the wait was over during the sending: the device may have the call, and is told
		return true, nil
	}
}

// takenBack is the error for the caller of a call that was taken back before it was sent.
func takenBack(ctx context.Context, refused, cancelled bool) error {
	switch {
	case refused:
		return registry.ErrNoReceiver
	case cancelled:
		return callCancelled(registry.DispatchedNo)
	default:
		return registry.StoreUnavailable("send", whyOver(ctx)).With(registry.DispatchedNo)
	}
}

// beginSent begins phaseSent. at is zero if the bus has not reported the time.
func (w *wait) beginSent(at time.Time) {
	if at.IsZero() {
		at = time.Now()
	}
	w.phase, w.since, w.sending = phaseSent, at, nil
	note(w.record, registry.EventRoute, registry.Change{}, at)
}

// noteReceipt begins phaseDelivered. From here on the call can be looked up and cancelled from every pod.
func (w *wait) noteReceipt(running bool) {
	w.phase = phaseDelivered
	rec := w.record
	if rec == nil {
		return
	}
	event := registry.EventDeliver
	if running {
		event = registry.EventRun
	}
	owner := w.call.pod
	if owner == "" {
		owner = w.router.pod
	}
	rec.Pod = w.router.pod
	rec.Apply(event, registry.Change{Owner: owner}, time.Now().UTC())
	if !w.durable && rec.CallID != "" {
		w.router.rec.keepRunning(rec)
	}
}

// end ends the wait with e, unless the answer has come after all. A later answer finds no caller.
func (w *wait) end(e *registry.Error) (registry.Result, error) {
	if answer := w.call.close(); answer != nil {
		return unpack(answer, w.dispatched())
	}
	return registry.Result{}, e
}

// notSent ends the wait because the call was not sent, or may not have been. There can be an answer only if it may have
// been sent.
func (w *wait) notSent(err error) (registry.Result, error) {
	e := registry.AsError(err)
	if answer := w.call.close(); answer != nil && e.Dispatched != registry.DispatchedNo {
		return unpack(answer, w.dispatched())
	}
	return registry.Result{}, e
}

// afterStop ends the wait because the caller's context has ended.
func (w *wait) afterStop(ctx context.Context, cancel func(reason string)) (registry.Result, error) {
	if answer := w.call.close(); answer != nil {
		return unpack(answer, w.dispatched())
	}
	switch cause := causeOf(ctx); {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return registry.Result{}, registry.TimedOut(w.timeout, w.dispatched())
	case errors.Is(cause, registry.ErrDraining):
		e := registry.Errorf(registry.CodeDraining, "The gateway stopped before the device answered.")
		e.RetryAfter = time.Second
		return registry.Result{}, e.With(w.dispatched())
	case !errors.Is(cause, registry.ErrAbandoned):
		cancel("the caller stopped waiting")
	}
	e := registry.Errorf(registry.CodeCancelled, "The caller stopped waiting.")
	return registry.Result{}, e.With(w.dispatched())
}

// afterCancel waits for the outcome of a cancelled call, at most cancelWait. The end of the caller's context does not
// shorten it.
func (w *wait) afterCancel() (registry.Result, error) {
	w.call.timer.Reset(cancelWait)
	for {
		select {
		case <-w.call.ready:
		case <-w.call.timer.C:
			return w.end(callCancelled(w.dispatched()))
		}
		p := w.call.progress()
		if p.receipt {
			w.phase = phaseDelivered
		}
		switch {
		case p.answer != nil:
			return unpack(p.answer, w.dispatched())
		case p.sendErr != nil && registry.AsError(p.sendErr).Dispatched == registry.DispatchedNo:
			return w.end(callCancelled(registry.DispatchedNo))
		}
	}
}

// unpack returns the result or the error of a reply. dispatched completes a reply that this pod made itself because the
// other pod is dead.
func unpack(r *registry.Reply, dispatched registry.Dispatched) (registry.Result, error) {
	switch {
	case r.Err != nil && r.Err.Code == registry.CodeLost:
		return registry.Result{}, r.Err.With(dispatched)
	case r.Err != nil:
		return registry.Result{}, r.Err
	case r.Result != nil:
		return *r.Result, nil
	default:
		return registry.Result{}, registry.Internal(nil).With(registry.DispatchedUnknown)
	}
}

// callCancelled is the error for the caller of a call that somebody cancelled.
func callCancelled(d registry.Dispatched) *registry.Error {
	return registry.Errorf(registry.CodeCancelled, "The call was cancelled.").With(d)
}

// whyOver returns why a wait is over.
func whyOver(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return context.DeadlineExceeded
}

// causeOf returns why ctx ended. A context that hides its values hides its cause with them, so such a context may have
// a method Cause.
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
