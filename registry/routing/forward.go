package routing

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/farhand/farhand/registry"
)

// formerTimeout is how long a former pod may take to say what it knows of a call.
const formerTimeout = time.Second

// The verdicts of a pod on an answer that was forwarded to it.
const (
	answerTaken   = "taken"   // the call was open there, and this is its answer now
	answerKnown   = "known"   // the call had been answered
	answerUnknown = "unknown" // no such call waits there
)

// formerPods are the pods that held a session until recently. Callers on them may still wait for its device.
type formerPods struct {
	pods  []string
	until time.Time
}

// newFormerPods returns the former pods of a session that is on pod now.
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

// forwardAnswer offers an answer to the pods that held the session before this one, where its caller may still be
// waiting. It returns the verdict of the pod that has the call, or answerUnknown.
func (p *Hub) forwardAnswer(ctx context.Context, l *LocalSession, callID string, r registry.Result) string {
	pods := l.formerPods.current()
	if len(pods) == 0 {
		return answerUnknown
	}
	verdicts, stop := p.verdicts.listen(callID, len(pods))
	defer stop()
	asked := p.sendToFormers(ctx, l, registry.Envelope{CallID: callID, Result: &r, ReplyTo: p.pod})
	limit := time.NewTimer(formerTimeout)
	defer limit.Stop()
	for range asked {
		select {
		case verdict := <-verdicts:
			if verdict != answerUnknown {
				return verdict
			}
		case <-limit.C:
			return answerUnknown
		case <-ctx.Done():
			return answerUnknown
		}
	}
	return answerUnknown
}

// sendToFormers sends what a device says of a call to the pods that held its session before this one. It returns to how
// many it was sent.
func (p *Hub) sendToFormers(ctx context.Context, l *LocalSession, e registry.Envelope) (sent int) {
	e.V, e.Kind = registry.EnvelopeVersion, registry.EnvelopeAnswer
	e.Tenant, e.Session, e.Generation, e.Proofs = l.key.Tenant, l.key.Session, l.generation(), l.proofs()
	for _, pod := range l.formerPods.current() {
		if p.bus.Send(ctx, pod, e) == nil {
			sent++
		}
	}
	return sent
}

// handleAnswer takes an answer that another pod forwards, because its device has moved there, and replies with the
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
		if e.ReplyTo == "" {
			return
		}
		r := registry.Reply{V: registry.EnvelopeVersion, CallID: e.CallID, Answer: verdict}
		if err := p.bus.Reply(e.ReplyTo, r); err != nil {
			p.log.Debug("verdict on an answer not sent", "call", e.CallID, "pod", e.ReplyTo, "error", err)
		}
	}
	f := p.detached.take(e.Key(), e.CallID, e.Proofs, p.noteAnswer)
	if f == nil {
		// A detached call that this device may not answer is known, too: the answer changes nothing.
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

// completingCalls are the ids of calls whose answers are being stored. A second answer comes too late. The zero value
// is ready.
type completingCalls struct {
	mu  sync.Mutex
	ids map[string]int
}

// begin notes that an answer to the call is being stored. It reports whether it is the only one.
func (s *completingCalls) begin(callID string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ids == nil {
		s.ids = make(map[string]int)
	}
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
