package routing_test

import (
	"slices"
	"time"

	"github.com/farhand/farhand/registry"
)

// The rules that hold at every instant. They know nothing of how a pod works, only what it promises. The lock is held.

// checkArrival: nothing runs twice, on the wrong device, or after its caller was told that it never would.
func (s *simulation) checkArrival(a arrival) {
	b := &s.book
	if n := len(b.arrivals[a.id]); n > 1 {
		s.violateLocked("once", a.id, "%s reached devices %d times, last %s", a.id, n, a.device)
	}
	plan, ok := s.plans[a.nonce]
	switch asked := s.devices[plan.device]; {
	case !ok:
		s.violateLocked("routed", a.id, "nobody asked for %s", a.nonce)
	case a.session != asked.key.Session || a.tool != simTools[plan.tool].Name:
		s.violateLocked("routed", a.id, "%s was for tool %d of %s and reached %s of %s", a.id, plan.tool, asked.name,
			a.tool, a.session)
	case plan.named && asked.id != "" && a.device != asked.name:
		s.violateLocked("routed", a.id, "%s was for %s by its name and reached %s", a.id, asked.name, a.device)
	}
	if ids := b.runs[a.nonce]; len(ids) > 1 && !b.wiped(b.byID[ids[0]].asked, a.at) {
		s.violateLocked("once", a.id, "one request ran as the calls %v", ids)
	}
	for _, r := range b.requests {
		if r.heard != nil && r.heard.callID == a.id && r.heard.dispatched == registry.DispatchedNo {
			s.violateLocked("dispatched", a.id, "%s was told that it did not run: %v", r.id, r.heard)
		}
	}
}

// checkHeard: what a caller hears is true, and comes in time.
func (s *simulation) checkHeard(r *request) {
	b, o := &s.book, r.heard
	switch {
	case o.accepted && o.code == "":
	case o.answered:
		if n := len(b.arrivals[o.callID]); n != 1 {
			s.violateLocked("told", o.callID, "%s was answered, and its call reached a device %d times", r.id, n)
		}
		switch first := b.firstAnswer(o.callID); {
		case first == nil:
			s.violateLocked("answer", o.callID, "%s heard %q, which no device said", r.id, o.output)
		case !b.mayBe(first, o.output) || first.output == o.output && first.success != o.success:
			s.violateLocked("answer", o.callID, "%s heard %q, the device's first answer was %q", r.id, o.output,
				first.output)
		}
	case o.dispatched == registry.DispatchedNo:
		if len(b.arrivals[o.callID]) > 0 {
			s.violateLocked("dispatched", o.callID, "%s was told that it did not run, and it did: %v", r.id, o)
		}
	case o.dispatched == registry.DispatchedYes:
		if len(b.handed[o.callID]) == 0 && !b.claimed(r) {
			s.violateLocked("dispatched", o.callID,
				"%s was told that it reached its device, and no connection was given it: %v", r.id, o)
		}
	case o.dispatched != registry.DispatchedUnknown:
		s.violateLocked("dispatched", o.callID, "%s was not told whether it ran: %v", r.id, o)
	}
	s.checkGone(r)
	s.checkTime(r)
}

// simComeback is how long a device whose connection broke off is expected, at least.
const simComeback = 2 * time.Second

// checkGone: nobody is told that a tool is gone whose device is only about to connect anew.
func (s *simulation) checkGone(r *request) {
	o := r.heard
	if o.code != registry.CodeToolNotFound && o.code != registry.CodeSessionNotFound {
		return
	}
	contested := slices.ContainsFunc(s.plan, func(st step) bool {
		return st.kind == stepRival && st.device == r.plan.device
	})
	unwell := during(s.book.storms, "", s.began, o.at) || during(s.book.stops, "", s.began, o.at)
	if o.offered.After(r.asked.Add(-simComeback)) && !contested && !unwell {
		s.violateLocked("gone", o.callID, "%s was told %s, and its device offered the tool %v before", r.id, o.code,
			o.at.Sub(o.offered))
	}
}

// Times a caller may have to wait longer than its call may take.
const (
	slackLight   = 20 * time.Millisecond
	slackDurable = 350 * time.Millisecond // a last look at the record
	slackCancel  = 550 * time.Millisecond // a cancelled call finds out whether it had reached its device
)

// checkTime: deadlines are kept; and of a pod that dies its callers hear within a lease.
func (s *simulation) checkTime(r *request) {
	b := &s.book
	slack := slackLight
	switch {
	case r.plan.durable():
		slack = slackDurable
	case r.plan.shape == shapeCancelled:
		slack = slackCancel
	}
	limit := r.asked.Add(r.plan.timeout + slack)
	for _, sp := range b.stops {
		if sp.pod == r.pod && !sp.to.Before(r.asked) {
			limit = latest(limit, sp.to.Add(slack)).Add(sp.to.Sub(sp.from))
		}
	}
	if r.heard.at.After(limit) {
		s.violateLocked("time", r.heard.callID, "%s took %v, and had %v: %v", r.id, r.heard.at.Sub(r.asked),
			r.plan.timeout, r.heard)
	}
	for _, a := range b.arrivals[r.id] { // of a call that it made itself
		for _, k := range b.kills {
			late := r.heard.at.Sub(k.from)
			quiet := !during(b.storms, "", k.from.Add(-simLease), r.heard.at) &&
				!during(b.stops, r.pod, k.from, r.heard.at) && !during(b.stops, a.pod, k.from.Add(-simLease), k.from)
			if k.pod == a.pod && a.at.Before(k.from) && r.asked.Before(k.from) && late > simLease && quiet &&
				!r.heard.answered {
				s.violateLocked("lease", r.heard.callID, "%s waited for a dead pod for %v: %v", r.id, late, r.heard)
			}
		}
	}
}

// checkSeen: after its end a record changes for a late answer only. A pod that stood still may show what it had read
// before, a record with a shorter timeline; what the store has at the end is checked by checkRecord.
func (s *simulation) checkSeen(id string, r registry.Record) {
	was, ok := s.book.seen[id]
	if !ok || len(r.Timeline) < len(was.Timeline) || !was.State.Final() || was.State == r.State ||
		s.book.wiped(s.book.byID[id].asked, time.Now()) {
		return
	}
	if !r.Late || was.State.Answered() || !r.State.Answered() {
		s.violateLocked("record", id, "it was %s, and became %s, late %v", was.State, r.State, r.Late)
	}
}

// checkStep is what is looked at after each step: no session is listed at a pod that has been dead for a lease.
func (s *simulation) checkStep() {
	s.mu.Lock()
	kills := slices.Clone(s.book.kills)
	s.mu.Unlock()
	if len(kills) == 0 {
		return
	}
	listed := s.listed()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range kills {
		if time.Since(k.from) <= simLease || during(s.book.storms, "", k.from.Add(-simLease), time.Now()) {
			continue
		}
		for session, pod := range listed {
			if pod == k.pod {
				s.violateLocked("lease", "", "%s is listed at %s, which died %v ago", session, pod, time.Since(k.from))
			}
		}
	}
}

// checkAck: of the answers to a call one counts.
func (s *simulation) checkAck(a ack) {
	if a.ignored {
		return
	}
	first, ok := s.book.counted[a.id]
	if !ok {
		s.book.counted[a.id] = a
		return
	}
	// A pod that stood still may take the answer that was sent again elsewhere meanwhile.
	if first.turn != a.turn || first.pod == a.pod || !s.book.troubled(s.began, time.Now()) {
		s.violateLocked("acknowledged", a.id, "two answers counted: number %d at %s, and number %d at %s",
			first.turn, first.pod, a.turn, a.pod)
	}
}
