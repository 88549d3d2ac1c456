package routing

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/farhand/farhand/registry"
)

// formerTimeout is how long a former pod may take to report what it knows of a call.
const formerTimeout = time.Second

// Verdicts of a pod on a forwarded answer.
const (
	answerTaken   = "taken"   // the call was open there, and this is now its answer
	answerKnown   = "known"   // the call had been answered
	answerUnknown = "unknown" // no such call waits there
)

// formerPods are the recent former pods of a session. Callers on them may still wait for its device.
type formerPods struct {
	pods  []string
	until time.Time
}

// newFormerPods returns the former pods of a session that is now on pod.
func newFormerPods(pods []string, pod string) formerPods {
	pods = slices.DeleteFunc(slices.Clone(pods), func(p string) bool { return p == pod })
	return formerPods{pods: pods, until: time.Now().Add(registry.FormerTerm)}
}

func (f formerPods) current() []string {
	if len(f.pods) == 0 || time.Now().After(f.until) {
		return nil
	}
	return f.pods
}

// forwardAnswer offers an answer to the session's former pods, where its caller may still wait. It returns the verdict
// of the pod that has the call, or answerUnknown.
func (p *Hub) forwardAnswer(ctx context.Context, l *LocalSession, callID string, r registry.Result) string {
	pods := l.formerPods.current()
	if len(pods) == 0 {
		return answerUnknown
	}
	verdicts, stop := p.verdicts.listen(callID, len(pods))
	defer stop()
	asked := p.sendToFormers(ctx, l, registry.Envelope{CallID: callID, Result: &r, ReplyTo: p.pod})
	limit := time.After(formerTimeout)
	for range asked {
		select {
		case verdict := <-verdicts:
			if verdict != answerUnknown {
				return verdict
			}
		case <-limit:
			return answerUnknown
		case <-ctx.Done():
			return answerUnknown
		}
	}
	return answerUnknown
}

// sendToFormers sends a device's message about a call to the session's former pods. It returns how many it was sent to.
func (p *Hub) sendToFormers(ctx context.Context, l *LocalSession, e registry.Envelope) (sent int) {
	e.Kind, e.Tenant, e.Session = registry.EnvelopeAnswer, l.key.Tenant, l.key.Session
	e.Generation, e.Proofs = l.generation(), l.proofs()
	for _, pod := range l.formerPods.current() {
		if p.send(ctx, pod, e) == nil {
			sent++
		}
	}
	return sent
}

// handleAnswer handles an answer that another pod forwards, because the device has moved there. It replies with the
// verdict.
func (p *Hub) handleAnswer(e registry.Envelope) {
	if e.Result == nil && e.Err == nil {
		return
	}
	if l := p.Get(e.Key()); l != nil && l.generation() < e.Generation {
		l.replaced() // the eviction was lost on its way
	}
	if e.Err != nil {
		if f := p.detached.take(e.Key(), e.CallID, e.Proofs, nil); f != nil {
			f.finish(registry.Reply{Err: e.Err})
		}
		return
	}
	reply := func(verdict string) {
		if e.ReplyTo != "" {
			p.tryReply(e.ReplyTo, registry.Reply{CallID: e.CallID, Answer: verdict})
		}
	}
	f := p.detached.take(e.Key(), e.CallID, e.Proofs, p.noteAnswer)
	if f == nil {
		// A detached call that this device may not answer is also known: the answer changes nothing.
		if p.completing.is(e.CallID) || p.answered.has(e.CallID, 0) || p.detached.has(e.Key(), e.CallID) {
			reply(answerKnown)
		} else {
			reply(answerUnknown)
		}
		return
	}
	p.complete(f, *e.Result, func(ignored bool) {
		if ignored {
			reply(answerKnown)
		} else {
			reply(answerTaken)
		}
	})
}

// completingCalls are the ids of calls whose answers are being stored. A second answer is too late.
type completingCalls struct {
	mu  sync.Mutex
	ids map[string]int
}

// begin marks that an answer to the call is being stored. It reports whether it is the only one.
func (s *completingCalls) begin(callID string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ids[callID]++
	return s.ids[callID] == 1
}

func (s *completingCalls) end(callID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ids[callID]--; s.ids[callID] <= 0 {
		delete(s.ids, callID)
	}
}

func (s *completingCalls) is(callID string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ids[callID] > 0
}

// hasBeenSent reports whether the bus has sent the call, or may have. over says that the wait is over. It takes the
// call back from the bus, if it can, when the wait is over, the call was cancelled, or the other pod is dead. The error
// is the caller's result for a call that was taken back or could not be sent.
func (w *wait) hasBeenSent(ctx context.Context, got progress, over bool) (bool, error) {
	refused := got.answer != nil && got.answer.Err != nil
	arrived := got.answer != nil || got.receipt
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
