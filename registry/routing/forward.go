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

// What a pod says about an answer that was passed on to it.
const (
	answerTaken   = "taken"   // the call was open there, and this is its answer now
	answerKnown   = "known"   // the call had been answered
	answerUnknown = "unknown" // no such call waits there
)

// formerPods are the pods a session has left lately, which may still have callers that wait for its device.
type formerPods struct {
	pods  []string
	until time.Time
}

// newFormerPods returns those of a session that is on pod now.
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

// forwardAnswer offers an answer to the pods that had the session before this one, where its caller may still be
// waiting. The pod that has the call decides; what it says is returned.
func (p *Hub) forwardAnswer(ctx context.Context, l *LocalSession, callID string, r registry.Result) string {
	pods := l.formerPods.current()
	if len(pods) == 0 {
		return answerUnknown
	}
	heard, end := p.forwarded.begin(callID, len(pods))
	defer end()
	asked := 0
	for _, pod := range pods {
		err := p.bus.Send(ctx, pod, registry.Envelope{
			V: registry.EnvelopeVersion, Kind: registry.EnvelopeAnswer, Tenant: l.key.Tenant, Session: l.key.Session,
			Generation: l.generation(), CallID: callID, Result: &r, ReplyTo: p.pod, Proofs: l.proofs(),
		})
		if err == nil {
			asked++
		}
	}
	limit := time.NewTimer(formerTimeout)
	defer limit.Stop()
	for range asked {
		select {
		case said := <-heard:
			if said != answerUnknown {
				return said
			}
		case <-limit.C:
			return answerUnknown
		case <-ctx.Done():
			return answerUnknown
		}
	}
	return answerUnknown
}

// handleAnswer takes the answer of a device that has moved to another pod, if its call waits here, and tells that pod.
func (p *Hub) handleAnswer(e registry.Envelope) {
	if e.Result == nil {
		return
	}
	if l := p.Get(e.Key()); l != nil && l.generation() < e.Generation {
		l.replaced() // the eviction was lost on its way
	}
	tell := func(said string) {
		if e.ReplyTo == "" {
			return
		}
		if err := p.bus.Reply(e.ReplyTo, registry.Reply{V: registry.EnvelopeVersion, CallID: e.CallID, Answer: said}); err != nil {
			p.log.Debug("verdict on an answer not sent", "call", e.CallID, "pod", e.ReplyTo, "error", err)
		}
	}
	f := p.detached.takeAnswered(e.Key(), e.CallID, e.Proofs, p.noteAnswer)
	if f == nil {
		// One that waits for another device than this changes nothing either.
		if p.completing.is(e.CallID) || p.answered.has(e.CallID, 0) || p.detached.has(e.Key(), e.CallID) {
			tell(answerKnown)
		} else {
			tell(answerUnknown)
		}
		return
	}
	p.complete(f, *e.Result, func(ignored bool) {
		if ignored {
			tell(answerKnown)
		} else {
			tell(answerTaken)
		}
	})
}

// forwardedAnswers are the answers that were passed on and are not decided. The zero value is ready.
type forwardedAnswers struct {
	mu   sync.Mutex
	byID map[string]chan string
}

// begin returns a channel for what is said about a call, with room for so much, and what ends the listening.
func (i *forwardedAnswers) begin(callID string, room int) (<-chan string, func()) {
	c := make(chan string, room)
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.byID == nil {
		i.byID = make(map[string]chan string)
	}
	i.byID[callID] = c
	return c, func() {
		i.mu.Lock()
		defer i.mu.Unlock()
		if i.byID[callID] == c {
			delete(i.byID, callID)
		}
	}
}

func (i *forwardedAnswers) tell(callID, said string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	select {
	case i.byID[callID] <- said: // a nil channel takes nothing
	default:
	}
}

// completingCalls are the ids of calls whose answer is being stored: the answers after it come too late. The zero value
// is ready.
type completingCalls struct {
	mu  sync.Mutex
	ids map[string]int
}

// begin reports whether no other answer to the call is being stored.
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
