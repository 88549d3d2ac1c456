package main

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/farhand/farhand/registry"
)

// ledgerSlack is how much longer than its timeout a call may take, on a machine that has nothing else to do.
// ledgerScale times what the control call took meanwhile comes on top.
const (
	ledgerSlack = 500 * time.Millisecond
	ledgerScale = 4
	ledgerStore = 800 * time.Millisecond // what a pod waits for Redis: redisFails
)

// replicaLag is how long before a failover Redis may have acknowledged what its replica never had, as replication is
// asynchronous. Nothing older may be lost, nor what is newer than the end of the failover.
const replicaLag = time.Second

// violation is a rule that does not hold.
type violation struct {
	rule, callID, nonce, text string
}

// audit compares the books. It knows nothing of how the gateway works, only what it promises.
func (b *ledger) audit() (found []violation) {
	report := func(rule, callID, nonce, format string, args ...any) {
		found = append(found, violation{rule, callID, nonce, fmt.Sprintf(format, args...)})
	}
	reached := make(map[string][]ledgerArrival)
	for _, a := range b.arrived {
		reached[a.callID] = append(reached[a.callID], a)
	}
	answered := make(map[string][]ledgerAnswer)
	for _, a := range b.answers {
		answered[a.callID] = append(answered[a.callID], a)
	}
	byNonce := make(map[string]ledgerCall)
	for _, c := range b.asked {
		byNonce[c.nonce] = c
	}
	b.auditArrivals(reached, byNonce, report)
	ids := make(map[string]string) // call id to nonce
	for _, c := range b.asked {
		if c.broken {
			continue
		}
		b.auditHeard(c, ids, reached[c.CallID], answered[c.CallID], report)
		b.auditTime(c, report)
	}
	b.auditQueued(reached, answered, report)
	b.auditApprovals(reached, report)
	b.auditKept(report)
	b.auditRecords(answered, report)
	b.auditEvents(report)
	b.auditAcks(report)
	return found
}

type reporter func(rule, callID, nonce, format string, args ...any)

// auditArrivals: nothing runs twice, nothing reaches a device, a tool or arguments it was not for.
func (b *ledger) auditArrivals(reached map[string][]ledgerArrival, byNonce map[string]ledgerCall, report reporter) {
	runs := make(map[string]map[string]bool) // nonce to call ids
	for id, arrivals := range reached {
		if len(arrivals) > 1 {
			report("once", id, arrivals[0].nonce, "reached devices %d times", len(arrivals))
		}
		for _, a := range arrivals {
			c, ok := byNonce[a.nonce]
			switch {
			case !ok:
				report("routed", id, a.nonce, "nobody asked for this")
			case c.session != a.session || c.tool != a.tool:
				report("routed", id, a.nonce, "asked of %s %s, reached %s %s", c.session, c.tool, a.session, a.tool)
			}
			if runs[a.nonce] == nil {
				runs[a.nonce] = make(map[string]bool)
			}
			runs[a.nonce][id] = true
		}
	}
	for nonce, ids := range runs {
		if len(ids) < 2 {
			continue
		}
		from, to := b.span(nonce)
		if !b.forgotten(from.Add(-time.Second), to, to.Add(time.Second)) {
			report("once", "", nonce, "one request ran as %d calls", len(ids))
		}
	}
}

// span is from when a request was first asked to when it was last heard of.
func (b *ledger) span(nonce string) (from, to time.Time) {
	for _, c := range b.asked {
		if c.nonce != nonce {
			continue
		}
		if from.IsZero() || c.asked.Before(from) {
			from = c.asked
		}
		if c.heard.After(to) {
			to = c.heard
		}
	}
	return from, to
}

// auditHeard: what a caller hears is true.
func (b *ledger) auditHeard(c ledgerCall, ids map[string]string, arrivals []ledgerArrival, answers []ledgerAnswer,
	report reporter) {
	if c.CallID == "" {
		report("told", "", c.nonce, "no call id")
		return
	}
	if other, taken := ids[c.CallID]; taken && other != c.nonce {
		report("told", c.CallID, c.nonce, "the call id of another request, nonce %s", other)
	}
	ids[c.CallID] = c.nonce
	switch {
	case c.status == 202: // its record tells the rest
	case c.status == 200:
		if len(arrivals) != 1 {
			report("told", c.CallID, c.nonce, "answered, but reached a device %d times", len(arrivals))
		}
		switch first := firstAnswer(answers); {
		case first == nil:
			report("answer", c.CallID, c.nonce, "heard %q, no device said so", c.Output)
		case first.output != c.Output:
			report("answer", c.CallID, c.nonce, "heard %q, the device's first answer was %q", c.Output, first.output)
		}
	case c.Dispatched == "no":
		if len(arrivals) > 0 && !b.revived(c) {
			report("dispatched", c.CallID, c.nonce, "dispatched no, but it reached a device")
		}
	case c.Dispatched == "yes":
		from, _ := b.span(c.nonce) // a repeated request hears of the call that the first one made
		if len(arrivals) == 0 && !b.dropped(c.session, from, c.heard) {
			report("dispatched", c.CallID, c.nonce, "dispatched yes, but it reached no device")
		}
	case c.Dispatched != "unknown":
		report("dispatched", c.CallID, c.nonce, "a failure that does not say whether it reached the device")
	}
}

// revived reports whether a call that failed before it was in a queue was put there by a repetition of its request.
func (b *ledger) revived(c ledgerCall) bool {
	return c.key != "" && slices.ContainsFunc(b.asked, func(again ledgerCall) bool {
		return again.nonce == c.nonce && again.status == http.StatusAccepted && !again.asked.Before(c.heard)
	})
}

func firstAnswer(answers []ledgerAnswer) *ledgerAnswer {
	for i := range answers {
		if answers[i].turn == 1 {
			return &answers[i]
		}
	}
	return nil
}

// auditTime: a call is answered when its time is up.
func (b *ledger) auditTime(c ledgerCall, report reporter) {
	took, limit := c.heard.Sub(c.asked), b.patienceOf(c)
	if took > limit {
		report("time", c.CallID, c.nonce, "took %v, timeout %v, allowed %v", took, c.limit, limit)
	}
}

// patienceOf is how long a call may take: its timeout, and what the machine and a pod that was stopped need. A call
// that could not be stored for later asks the store once more, past its timeout, whether it may still run. When no
// approver answered, the end of the question is read from the store, and then written to it.
func (b *ledger) patienceOf(c ledgerCall) time.Duration {
	limit := c.limit + ledgerSlack + ledgerScale*b.worstControl(c)
	for _, f := range b.faults {
		if f.pod != "" && f.pod == c.pod && f.to.After(c.asked) && f.from.Before(c.heard) {
			limit += f.to.Sub(f.from)
		}
	}
	waits := strings.HasPrefix(c.shape, "queued") || c.shape == "approved"
	if waits && b.during(c.asked, c.heard, func(f ledgerFault) bool { return f.store }) {
		limit += ledgerStore
		if c.tool == ledgerAsked {
			limit += ledgerStore
		}
	}
	return limit
}

// worstControl is the longest that a control took around the time of the call: a machine that stalls does so for
// seconds, and controls only sample it.
func (b *ledger) worstControl(c ledgerCall) time.Duration {
	const around = 3 * time.Second
	worst := time.Duration(0)
	for _, m := range b.control {
		if m.at.After(c.asked.Add(-around)) && m.at.Add(-m.took).Before(c.heard.Add(around)) {
			worst = max(worst, m.took)
		}
	}
	return worst
}

// auditRecords: a record agrees with what the caller was told, and with what devices did; after its end it only takes a
// late answer.
func (b *ledger) auditRecords(answered map[string][]ledgerAnswer, report reporter) {
	final := make(map[string]ledgerRecord)
	before := make(map[string]ledgerRecord)
	asked := make(map[string]time.Time)
	for _, c := range b.asked {
		asked[c.CallID] = c.asked
	}
	for _, r := range b.seen {
		if r.missing {
			continue
		}
		was, ok := before[r.callID]
		if ok && registry.State(was.state).Final() && (was.state != r.state || was.output != r.output) {
			answeredLate := r.late && !registry.State(was.state).Answered() && registry.State(r.state).Answered()
			// The feed has no outputs. Before the record was lost, or by the pod that made the call,
			// the whole was told.
			summary := was.state == r.state && r.output == "" && b.wiped(asked[r.callID], r.at)
			if !answeredLate && !summary && !b.failedOver(asked[r.callID], was.at) {
				report("record", r.callID, "", "was %s (%q), became %s (%q), late %v", was.state, was.output, r.state,
					r.output, r.late)
			}
		}
		before[r.callID] = r
		if r.last {
			final[r.callID] = r
		}
	}
	for _, c := range b.asked {
		r, ok := final[c.CallID]
		if c.broken || !ok {
			continue
		}
		b.auditRecord(c, r, report)
	}
	for id, r := range final {
		switch first := firstAnswer(answered[id]); {
		case !registry.State(r.state).Final():
			report("record", id, "", "still %s when all was over", r.state)
		case !registry.State(r.state).Answered():
		case first == nil:
			report("record", id, "", "%s, but no device answered", r.state)
		case r.output != "" && r.output != first.output: // a summary has none
			report("record", id, "", "holds %q, the device's first answer was %q", r.output, first.output)
		}
	}
}

func (b *ledger) auditRecord(c ledgerCall, r ledgerRecord, report reporter) {
	state := registry.State(r.state)
	answeredInTime := state.Answered() && !r.late
	switch {
	case c.status == 200:
		// The end of a call without a key is written a moment after its caller has it: a pod that is killed, or a store
		// that is away just then, loses it, and the record that the call's reports made is ended by its deadline.
		lost := c.key == "" && state == registry.StateTimedOut && b.stopped(c.heard, c.heard.Add(time.Second))
		lost = lost || b.failedOver(c.asked, c.heard.Add(time.Second))
		if string(state) != c.state && !lost || r.late && !b.stopped(c.asked, c.heard.Add(5*time.Second)) {
			report("agrees", c.CallID, c.nonce, "told %s, recorded %s, late %v", c.state, r.state, r.late)
		}
	case c.status == 202, b.revived(c):
	case c.Dispatched == "unknown" && (c.key != "" || strings.HasPrefix(c.shape, "queued")): // told only that
	case c.Dispatched == "unknown" && c.Code == string(registry.CodeStoreUnavailable): // the same; it may still run
	case c.key != "" && strings.HasPrefix(c.Detail, "The call is still "): // and where it is told how it ends
	case answeredInTime:
		report("agrees", c.CallID, c.nonce, "told %s, recorded %s in time", c.Code, r.state)
	case c.Dispatched == "no" && r.dispatched != "no":
		report("agrees", c.CallID, c.nonce, "told dispatched no, recorded %s", r.dispatched)
	}
}

// auditEvents: the log of a call is in order, and ends with it.
func (b *ledger) auditEvents(report reporter) {
	ranks := map[string]int{"queued": 0, "accepted": 0, "routed": 1, "delivered": 2, "running": 3, ".": 4,
		"cancelled": 5, "timed_out": 5, "lost": 5}
	for id, events := range b.events {
		last := -1
		for _, e := range events {
			if e == "queued" && last < 3 { // its device sleeps, or has left before it got the call
				last = -1
				continue
			}
			rank, ok := ranks[e]
			if !ok {
				rank = 6
			}
			if rank < last || rank == last && e != "." {
				report("events", id, "", "%v", events)
				break
			}
			last = rank
		}
	}
}

// auditAcks: of all answers to a call at most one counts.
func (b *ledger) auditAcks(report reporter) {
	counted := make(map[string]int)
	for _, a := range b.acks {
		if !a.ignored {
			counted[a.callID]++
		}
	}
	for id, n := range counted {
		if n > 1 {
			report("acknowledged", id, "", "%d answers of it counted", n)
		}
	}
}

func (b *ledger) wiped(from, to time.Time) bool {
	return b.during(from, to, func(f ledgerFault) bool { return f.wipes })
}

// failedOver reports whether a failover may have lost what the store acknowledged in that time.
func (b *ledger) failedOver(from, to time.Time) bool {
	return b.during(from, to.Add(replicaLag), func(f ledgerFault) bool { return f.failover })
}

// forgotten reports whether calls that the store acknowledged between from and to may have been lost before until.
func (b *ledger) forgotten(from, to, until time.Time) bool {
	return b.wiped(from, until) || !b.confirms && b.failedOver(from, to)
}

func (b *ledger) stopped(from, to time.Time) bool {
	return b.during(from, to, func(f ledgerFault) bool { return f.pod != "" || f.store })
}

func (b *ledger) during(from, to time.Time, is func(ledgerFault) bool) bool {
	for _, f := range b.faults {
		if is(f) && f.to.After(from) && f.from.Before(to) {
			return true
		}
	}
	return false
}

// dropped reports whether the device cut its connection about that time, or before it, while a pod was stopped that
// noticed only when it went on.
func (b *ledger) dropped(session string, from, to time.Time) bool {
	from = from.Add(-time.Second)
	for _, d := range b.drops {
		if d.session != session || !d.at.Before(to.Add(time.Second)) {
			continue
		}
		noticedLate := func(f ledgerFault) bool { return f.pod != "" && f.from.Before(d.at) }
		if d.at.After(from) || b.during(from, to, noticedLate) {
			return true
		}
	}
	return false
}
