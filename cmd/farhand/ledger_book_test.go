package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// ledger is what all sides wrote down: callers what they asked and heard, devices what reached them and what they
// answered, and the faults injected, with their times. Afterwards the books must agree (ledger_audit_test.go).
type ledger struct {
	mu      sync.Mutex
	asked   []ledgerCall
	arrived []ledgerArrival
	answers []ledgerAnswer
	acks    []ledgerAck
	drops   []ledgerDrop
	faults  []ledgerFault
	control []ledgerControl
	seen    []ledgerRecord
	ruled   []ledgerRuling
	events  map[string][]string // of a call, as its log had them in the end: states, and a point for each report

	confirms bool // the store confirms calls only when a replica has them
}

// ledgerCall is one request and what its caller heard.
type ledgerCall struct {
	nonce, session, tool, shape, pod string
	key                              string // of idempotency
	asked, heard                     time.Time
	limit                            time.Duration // its timeout
	broken                           bool          // the connection broke, or the caller hung up: it heard nothing
	answer
	state    string
	expires  time.Time // of a queued call
	approval string    // the id of the approval it waits for
}

// ledgerRuling is a decision on the approval of a call: what its approver sent, and what the approval was then.
type ledgerRuling struct {
	callID, decision string
	state            string // empty: the approver heard nothing
	sent             time.Time
}

// ledgerArrival is a call that a device got.
type ledgerArrival struct {
	callID, session, tool, nonce string
	at                           time.Time
}

// ledgerAnswer is an answer a device sent; turn numbers those of one call.
type ledgerAnswer struct {
	callID, output string
	turn           int
	at             time.Time
}

// ledgerAck is an acknowledgement. The device knows which answer it is of only by the order of those it sent.
type ledgerAck struct {
	callID  string
	ignored bool
	at      time.Time
}

// ledgerDrop is a connection a device cut without reading what was still on its way to it.
type ledgerDrop struct {
	session string
	at      time.Time
}

// ledgerFault is what was broken, from when to when. What it wipes is gone; what it stops does not answer meanwhile.
type ledgerFault struct {
	name     string
	from, to time.Time
	wipes    bool   // the store lost what it had
	failover bool   // the store lost what its replica did not have yet
	store    bool   // the store did not answer
	pod      string // the pod that did not; empty: none
}

// ledgerControl is how long a call took on a pod without faults: what the machine can do just now.
type ledgerControl struct {
	at   time.Time
	took time.Duration
}

// ledgerRecord is what was read of a call's record.
type ledgerRecord struct {
	callID, state, output string
	dispatched            string
	late, last            bool // last: read when all was over
	missing               bool
	at                    time.Time
}

func add[T any](b *ledger, list *[]T, entry T) {
	b.mu.Lock()
	defer b.mu.Unlock()
	*list = append(*list, entry)
}

// history tells all that is known of a call, in order.
func (b *ledger) history(callID, nonce string) string {
	type line struct {
		at   time.Time
		text string
	}
	var lines []line
	note := func(at time.Time, format string, args ...any) {
		lines = append(lines, line{at, fmt.Sprintf(format, args...)})
	}
	first, last := time.Time{}, time.Time{}
	session := ""
	for _, c := range b.asked {
		if c.CallID == callID && callID != "" || c.nonce == nonce {
			note(c.asked, "asked: %s of %s at %s, %s, nonce %s, timeout %v, key %q", c.tool, c.session, c.pod, c.shape,
				c.nonce, c.limit, c.key)
			note(c.heard, "heard: %d %s %s dispatched %s, %q, broken %v: %s", c.status, c.state, c.Code, c.Dispatched,
				c.Output, c.broken, c.Detail)
			if first.IsZero() || c.asked.Before(first) {
				first = c.asked
			}
			last, session = c.heard, c.session
		}
	}
	for _, a := range b.arrived {
		if a.callID == callID || a.nonce == nonce {
			note(a.at, "reached: %s %s, nonce %s, as %s", a.session, a.tool, a.nonce, a.callID)
		}
	}
	for _, a := range b.answers {
		if a.callID == callID {
			note(a.at, "answered: %q (%d)", a.output, a.turn)
			last = a.at
		}
	}
	for _, a := range b.acks {
		if a.callID == callID {
			note(a.at, "acknowledged: ignored %v", a.ignored)
		}
	}
	for _, r := range b.ruled {
		if r.callID == callID {
			note(r.sent, "approver: %s, then it was %q", r.decision, r.state)
		}
	}
	for _, r := range b.seen {
		if r.callID == callID {
			note(r.at, "record: %s late %v dispatched %s %q missing %v", r.state, r.late, r.dispatched, r.output,
				r.missing)
		}
	}
	for _, f := range b.faults {
		if f.to.After(first.Add(-5*time.Second)) && f.from.Before(last.Add(5*time.Second)) {
			note(f.from, "FAULT %s", f.name)
			note(f.to, "end of %s", f.name)
		}
	}
	for _, d := range b.drops {
		if d.session == session && d.at.After(first.Add(-5*time.Second)) && d.at.Before(last.Add(5*time.Second)) {
			note(d.at, "the device dropped its connection")
		}
	}
	slices.SortStableFunc(lines, func(a, b line) int { return cmp.Compare(a.at.UnixNano(), b.at.UnixNano()) })
	var out strings.Builder
	fmt.Fprintf(&out, "call %s", callID)
	for _, l := range lines {
		fmt.Fprintf(&out, "\n    %s %s", l.at.Format("15:04:05.000"), l.text)
	}
	if e := b.events[callID]; len(e) > 0 {
		fmt.Fprintf(&out, "\n    events: %s", strings.Join(e, " "))
	}
	return out.String()
}
