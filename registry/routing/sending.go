package routing

import (
	"context"
	"time"

	"github.com/farhand/farhand/registry"
)

// hasBeenSent reports whether the bus has sent the call, or may have. over says that the wait is over. If the wait is
// over, or the call was cancelled, or this pod found the other pod dead, hasBeenSent takes the call back from the bus
// if it can. The error is what the caller gets for a call that was taken back or could not be sent.
func (w *wait) hasBeenSent(ctx context.Context, got progress, over bool) (bool, error) {
	refused := got.answer != nil && got.answer.Err != nil
	arrived := got.answer != nil || got.receipt
	if got.sentAt.IsZero() { // the bus has not reported yet
		unwanted := refused || !arrived && (got.cancelled || over)
		switch {
		case unwanted && w.sending.Cancel():
			return false, takenBack(ctx, refused, got.cancelled)
		case !over && !got.receipt && refused && isOwnVerdict(got.answer):
			return false, nil // the bus is sending it, and says soon whether a pod that has just left can have got it
		case arrived, got.cancelled && !over:
		case !over:
			return false, nil
		default: // the bus is sending it at this moment
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
	default: // the wait was over during the sending: the device may have the call, and is told
		return true, nil
	}
}

// isOwnVerdict reports whether this pod made a reply itself, because it found the other pod dead.
func isOwnVerdict(r *registry.Reply) bool {
	return r.Err != nil && r.Err.Code == registry.CodeLost && r.Err.Dispatched == ""
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

// notSent ends the wait because the call was not sent, or may not have been. There can be an answer only if it may have
// been sent.
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
