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
