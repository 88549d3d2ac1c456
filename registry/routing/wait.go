package routing

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/farhand/farhand/registry"
)

// lostAfter is how long a remote call may stay without answer or receipt before it counts as lost. sendTimeout is the
// bus's time limit to send a call; the default gives 2 s. The owning pod sends a receipt after receiptAfter, so silence
// means that the message or the pod is gone. A durable call may take taskTimeout longer, because the owning pod first
// claims it in the store.
func lostAfter(sendTimeout time.Duration) time.Duration { return sendTimeout * 5 / 2 }

// cancelWait is how long the caller of a cancelled call still waits. In that time a receipt can confirm that the device
// has the call, and an answer that was already in flight can arrive.
const cancelWait = 500 * time.Millisecond

// phase is a call's last known progress. A wait only moves down in this table:
//
//	phase      begins when                 lasts at most                    after that the caller gets
//	sending    the bus takes the call      PodConfig.SendTimeout            store_unavailable
//	sent       the bus has sent the call   lostAfter; a durable call:       lost, dispatched=unknown
//	                                       lostAfter + taskTimeout
//	inOrder    an ordered call waits for    the call's timeout               timeout, dispatched=unknown
//	           its turn
//	delivered  the device has the call     the call's timeout               timeout, dispatched=yes
//
// The call's timeout limits every phase. In every phase an answer, a cancellation or the end of the caller's context
// ends the wait. A call to a socket of this pod begins in phase delivered.
type phase int

const (
	phaseSending phase = iota
	phaseSent
	phaseInOrder
	phaseDelivered
)

// wait is a caller's wait for the answer to one call.
type wait struct {
	router   *Router
	record   *registry.Record // of the call, nil if it has none
	durable  bool
	timeout  time.Duration
	inOrder  func()             // called when the call is queued in its order; may be nil
	long     *registry.LongArgs // dropped with the receipt; nil: the arguments are kept
	pending  *pendingCall
	phase    phase
	sending  registry.PendingSend // the send in progress; nil from phaseSent on
	since    time.Time            // when the bus got the call; from phaseSent on, when it was sent
	deadline time.Time
}

// trigger is the event that woke a wait.
type trigger int

const (
	notified trigger = iota // there is progress
	expired                 // the timer fired
	stopped                 // the caller's context ended
)

// forAnswer waits for the end of the call. cancel tells the device that no caller waits any more.
func (w *wait) forAnswer(ctx context.Context, cancel func(reason string)) (registry.Result, error) {
	for {
		why := w.next(ctx)
		got := w.pending.progress() // read after every trigger, because it has priority over the trigger
		if w.phase == phaseSending {
			sent, err := w.hasBeenSent(ctx, got, why != notified)
			if err != nil {
				return w.notSent(err)
			}
			if sent {
				w.beginSent(got.sentAt)
			}
		}
		if got.inOrder && w.phase == phaseSent {
			w.beginInOrder()
		}
		if got.receipt { // even together with an answer, because other pods may already know the call
			w.noteReceipt(got.running)
		}
		switch {
		case got.answer != nil && w.phase != phaseSending:
			if rec := w.record; rec != nil && rec.Owner == "" && got.answer.Result != nil {
				rec.Owner = w.pending.pod // faster than a receipt
			}
			return unpack(got.answer, w.dispatched())
		case got.cancelled:
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

func (w *wait) next(ctx context.Context) trigger {
	at, _ := w.due()
	w.pending.timer.Reset(time.Until(at))
	select {
	case <-w.pending.ready:
		return notified
	case <-w.pending.timer.C:
		return expired
	case <-ctx.Done():
		return stopped
	}
}

// due returns when the phase ends without further news, and whether the call is then lost.
func (w *wait) due() (at time.Time, lost bool) {
	at = w.deadline
	if w.phase < phaseInOrder {
		silence := lostAfter(w.router.timeout)
		if w.durable {
			silence += taskTimeout
		}
		if end := w.since.Add(silence); end.Before(at) {
			at, lost = end, true
		}
	}
	if end := w.since.Add(w.router.timeout); w.phase == phaseSending && end.Before(at) {
		at = end // hasBeenSent decides what the caller gets
	}
	return at, lost
}

// dispatched returns whether the device can have run the tool.
func (w *wait) dispatched() registry.Dispatched {
	if w.phase == phaseDelivered {
		return registry.DispatchedYes
	}
	return registry.DispatchedUnknown
}

// hasBeenSent reports whether the bus has sent the call, or may have. over says that the wait is over. It takes the
// call back from the bus, if it can, when the wait is over, the call was cancelled, or the other pod is dead. The error
// is the caller's result for a call that was taken back or could not be sent.
func (w *wait) hasBeenSent(ctx context.Context, got progress, over bool) (bool, error) {
	refused := got.answer != nil && got.answer.Err != nil
	arrived := got.answer != nil || got.receipt || got.inOrder
	if got.sentAt.IsZero() { // the bus has not reported yet
		unwanted := refused || !arrived && (got.cancelled || over)
		switch {
		case unwanted && w.sending.Cancel():
			return false, takenBack(ctx, refused, got.cancelled)
		case !over && !got.receipt && refused && madeForDeadPod(got.answer):
			return false, nil // the bus is sending it, and soon reports whether a pod that just left can have got it
		case arrived, got.cancelled && !over:
		case !over:
			return false, nil
		default: // the bus is sending it now
			got = w.pending.sendResult(got)
			if got.sentAt.IsZero() {
				got.sendErr = registry.StoreUnavailable("send", whyOver(ctx)).With(registry.DispatchedUnknown)
			}
		}
	}
	if got.sendErr == nil {
		return true, nil
	}
	certain := registry.AsError(got.sendErr).Dispatched == registry.DispatchedNo
	switch {
	case certain && refused && got.answer.Err.Code == registry.CodeLost:
		return false, got.sendErr // more precise than this pod's own answer about a dead pod
	case arrived:
		return true, nil
	case certain, ctx.Err() == nil:
		return false, got.sendErr
	default: // the wait ended during the sending: the device may have the call and gets a cancellation
		return true, nil
	}
}

// madeForDeadPod reports whether this pod made a reply itself, because it found the other pod dead.
func madeForDeadPod(r *registry.Reply) bool {
	return r.Err != nil && r.Err.Code == registry.CodeLost && r.Err.Dispatched == ""
}

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

// notSent ends the wait because the call was not sent, or may not have been. Only a call that may have been sent can
// have an answer.
func (w *wait) notSent(err error) (registry.Result, error) {
	e := registry.AsError(err)
	if answer := w.pending.close(); answer != nil && e.Dispatched != registry.DispatchedNo {
		return unpack(answer, w.dispatched())
	}
	return registry.Result{}, e
}

// whyOver returns why a wait is over.
func whyOver(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return context.DeadlineExceeded
}

// beginInOrder begins phaseInOrder. From here on every pod can look up and cancel the call.
func (w *wait) beginInOrder() {
	w.phase = phaseInOrder
	w.noteInOrder()
	if rec := w.record; rec != nil && !w.durable && rec.CallID != "" {
		rec.Pod = w.router.pod
		w.router.rec.keepRunning(rec)
	}
}

// noteInOrder reports that an ordered call is queued in its order, or is delivered.
func (w *wait) noteInOrder() {
	if w.inOrder != nil {
		w.inOrder()
	}
}

// noteReceipt begins phaseDelivered. From here on every pod can look up and cancel the call.
func (w *wait) noteReceipt(running bool) {
	w.phase = phaseDelivered
	w.noteInOrder()
	w.long.Drop()
	rec := w.record
	if rec == nil {
		return
	}
	event := registry.EventDeliver
	if running {
		event = registry.EventRun
	}
	rec.Pod = w.router.pod
	rec.Apply(event, registry.Change{Owner: cmp.Or(w.pending.pod, w.router.pod)}, time.Now().UTC())
	if !w.durable && rec.CallID != "" {
		w.router.rec.keepRunning(rec)
	}
}

// end ends the wait with e, unless the answer has already arrived. A later answer finds no caller.
func (w *wait) end(e *registry.Error) (registry.Result, error) {
	if answer := w.pending.close(); answer != nil {
		return unpack(answer, w.dispatched())
	}
	return registry.Result{}, e
}

// afterStop ends the wait because the caller's context has ended.
func (w *wait) afterStop(ctx context.Context, cancel func(reason string)) (registry.Result, error) {
	if answer := w.pending.close(); answer != nil {
		return unpack(answer, w.dispatched())
	}
	switch cause := causeOf(ctx); {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return registry.Result{}, registry.TimedOut(w.timeout, w.dispatched())
	case errors.Is(cause, registry.ErrDraining):
		return registry.Result{}, registry.Errorf(registry.CodeDraining,
			"The gateway stopped before the device answered.").RetryIn(time.Second).With(w.dispatched())
	case !errors.Is(cause, registry.ErrAbandoned):
		cancel("the caller stopped waiting")
	}
	return registry.Result{}, registry.Errorf(registry.CodeCancelled, "The caller stopped waiting.").
		With(w.dispatched())
}

// afterCancel waits for the outcome of a cancelled call, at most cancelWait. The end of the caller's context does not
// shorten this wait.
func (w *wait) afterCancel() (registry.Result, error) {
	w.pending.timer.Reset(cancelWait)
	for {
		select {
		case <-w.pending.ready:
		case <-w.pending.timer.C:
			return w.end(callCancelled(w.dispatched()))
		}
		got := w.pending.progress()
		if got.receipt {
			w.phase = phaseDelivered
		}
		switch {
		case got.answer != nil:
			return unpack(got.answer, w.dispatched())
		case got.sendErr != nil && registry.AsError(got.sendErr).Dispatched == registry.DispatchedNo:
			return w.end(callCancelled(registry.DispatchedNo))
		}
	}
}

// unpack returns the result or the error of a reply. A reply that this pod made for a dead pod does not know whether
// the device has the call, so unpack adds dispatched to its error.
func unpack(reply *registry.Reply, dispatched registry.Dispatched) (registry.Result, error) {
	switch {
	case madeForDeadPod(reply):
		return registry.Result{}, reply.Err.With(dispatched)
	case reply.Err != nil:
		return registry.Result{}, reply.Err
	case reply.Result != nil:
		return *reply.Result, nil
	default:
		return registry.Result{}, registry.Internal(nil).With(registry.DispatchedUnknown)
	}
}

func callCancelled(d registry.Dispatched) *registry.Error {
	return registry.Cancelled().With(d)
}

// causeOf returns why ctx ended. A context that hides the values of its parent also hides the cause. Such a context may
// return the cause from a method Cause.
func causeOf(ctx context.Context) error {
	if c, ok := ctx.(interface{ Cause() error }); ok {
		return c.Cause()
	}
	return context.Cause(ctx)
}

// note applies an event to the record of a call, if the call has a record.
func note(rec *registry.Record, event registry.Event, change registry.Change, at time.Time) {
	if rec != nil {
		rec.Apply(event, change, at.UTC())
	}
}
