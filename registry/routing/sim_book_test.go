package routing_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/farhand/farhand/registry"
)

// simBook is what callers, devices and the breaker of things wrote down. All of it is guarded by the lock of the
// simulation.
type simBook struct {
	requests []*request
	byID     map[string]*request
	arrivals map[string][]arrival // by call
	runs     map[string][]string  // calls that reached a device, by nonce
	answers  []said
	acks     []ack
	counted  map[string]ack        // the first answer to a call that was not ignored
	handed   map[string][]*simConn // connections that were given a call
	seen     map[string]registry.Record

	kills, ends, stops []span
	storms             []span // the store or the network was not well
	wipes              []time.Time
	violations         []violation
}

// request is what somebody asked for, and heard.
type request struct {
	id    string // of the request, and of the call if it begins one
	plan  callPlan
	pod   string
	asked time.Time
	heard *outcome // nil until then; a caller whose pod dies never hears
}

// outcome is what the caller heard.
type outcome struct {
	callID     string
	accepted   bool // its record tells the rest; with a code: its time was up
	answered   bool
	success    bool
	output     string
	code       registry.Code
	dispatched registry.Dispatched
	offered    time.Time // when its device offered tools last, as the caller heard
	at         time.Time
}

func (o outcome) String() string {
	switch {
	case o.accepted && o.code == "":
		return "accepted as " + o.callID
	case o.answered:
		return fmt.Sprintf("%s: success %v, %q", o.callID, o.success, o.output)
	default:
		return fmt.Sprintf("%s: %s, dispatched %s", o.callID, o.code, o.dispatched)
	}
}

// arrival is a call that reached a device.
type arrival struct {
	id, nonce, session, device, tool, pod string
	at                                    time.Time
}

// said is the first answer of a device.
type said struct {
	id, output string
	success    bool
}

// ack is what a device was told of an answer.
type ack struct {
	id      string
	turn    int
	ignored bool
	pod     string
}

// span is a time in which something was broken.
type span struct {
	from, to time.Time
	pod      string
}

// violation is a rule that does not hold.
type violation struct {
	rule, call, text string
}

func (s *simulation) violate(rule, call, format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.violateLocked(rule, call, format, args...)
}

func (s *simulation) violateLocked(rule, call, format string, args ...any) {
	if len(s.book.violations) < 20 {
		s.book.violations = append(s.book.violations,
			violation{rule, call, fmt.Sprintf("%v: ", time.Since(s.began)) + fmt.Sprintf(format, args...)})
	}
}

// note writes something down.
func (s *simulation) note(list any, entry any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch list := list.(type) {
	case *[]span:
		*list = append(*list, entry.(span))
	case *[]time.Time:
		*list = append(*list, entry.(time.Time))
	case *[]said:
		*list = append(*list, entry.(said))
	}
	s.traceLocked("%T %+v", entry, entry)
}

func (s *simulation) begin(r request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.book.requests = append(s.book.requests, &r)
	s.book.byID[r.id] = &r
	s.traceLocked("%s asks %s", r.id, r.pod)
}

func (s *simulation) hear(id string, o outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.book.byID[id].heard = &o
	s.traceLocked("%s hears %v", id, o)
	s.checkHeard(s.book.byID[id])
}

// acknowledge writes down what a device was told of an answer.
func (s *simulation) acknowledge(a ack) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.book.acks = append(s.book.acks, a)
	s.traceLocked("ack %+v", a)
	s.checkAck(a)
}

func (s *simulation) arrive(a arrival) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.book.arrivals[a.id] = append(s.book.arrivals[a.id], a)
	if len(s.book.arrivals[a.id]) == 1 {
		s.book.runs[a.nonce] = append(s.book.runs[a.nonce], a.id)
	}
	s.traceLocked("%s reaches %s", a.id, a.device)
	s.checkArrival(a)
}

func (s *simulation) handed(id string, c *simConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.book.handed[id] = append(s.book.handed[id], c)
	s.traceLocked("%s is handed to %s", id, c.id)
}

// see compares what is read of a call with what was read before.
func (s *simulation) see(id string, r registry.Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.traceLocked("%s is seen %s, late %v, dispatched %s", id, r.State, r.Late, r.Dispatched)
	s.checkSeen(id, r)
	if len(r.Timeline) >= len(s.book.seen[id].Timeline) {
		s.book.seen[id] = r
	}
}

// troubled reports whether the store, the network or one of the pods was not well in a time.
func (b *simBook) troubled(from, to time.Time) bool {
	return during(b.storms, "", from, to) || during(b.stops, "", from, to) || during(b.kills, "", from, to)
}

// wiped reports whether the store lost all it had in a time.
func (b *simBook) wiped(from, to time.Time) bool {
	for _, at := range b.wipes {
		if !at.Before(from) && !at.After(to) {
			return true
		}
	}
	return false
}

// during reports whether one of the spans, of a pod or of any, touches a time.
func during(spans []span, pod string, from, to time.Time) bool {
	for _, sp := range spans {
		if (pod == "" || sp.pod == pod) && !sp.to.Before(from) && !sp.from.After(to) {
			return true
		}
	}
	return false
}

// firstAnswer returns the first answer of a device to a call.
func (b *simBook) firstAnswer(id string) *said {
	for i := range b.answers {
		if b.answers[i].id == id {
			return &b.answers[i]
		}
	}
	return nil
}

// mayBe reports whether an output is that of the answer that counts: the first one, or the second one if the device was
// told that the first one does not.
func (b *simBook) mayBe(first *said, output string) bool {
	if output == first.output {
		return true
	}
	return output == strings.TrimSuffix(first.output, "1")+"2" && slices.ContainsFunc(b.acks, func(a ack) bool {
		return a.id == first.id && a.turn == 1 && a.ignored
	})
}

// claimed reports whether the pod of the device may have claimed the call in its record without giving it to the
// device: a pod that dies, or does not hear that it has the call, between the two. Whoever reads the record meanwhile
// takes it for delivered. Not the caller who heard that the call was lost: a receipt would have come.
func (b *simBook) claimed(r *request) bool {
	return r.plan.durable() && r.heard.code != registry.CodeLost && b.troubled(r.asked.Add(-simLease), r.heard.at)
}
