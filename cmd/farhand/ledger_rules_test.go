package main

import (
	"testing"
	"time"
)

// agreeing are books of one call that went well, in which nothing is wrong.
func agreeing() *ledger {
	at := func(ms int) time.Time { return time.Unix(1000, 0).Add(time.Duration(ms) * time.Millisecond) }
	output := ledgerOutput("n", "device-0", "work", 1)
	return &ledger{
		asked: []ledgerCall{{
			nonce: "n", session: "device-0", tool: "work", pod: "http://a", asked: at(0), heard: at(400),
			limit:  time.Second,
			answer: answer{status: 200, CallID: "c", Success: true, Output: output}, state: "succeeded",
		}},
		arrived: []ledgerArrival{{"c", "device-0", "work", "n", at(10)}},
		answers: []ledgerAnswer{{"c", output, 1, at(390)}, {"c", ledgerOutput("n", "device-0", "work", 2), 2, at(390)}},
		acks:    []ledgerAck{{"c", false, at(400)}, {"c", true, at(400)}},
		control: []ledgerControl{{at(100), 20 * time.Millisecond}},
		seen: []ledgerRecord{
			{callID: "c", state: "delivered", dispatched: "yes", at: at(300)},
			{callID: "c", state: "succeeded", output: output, dispatched: "yes", last: true, at: at(9000)},
		},
		events: map[string][]string{"c": {"delivered", "running", ".", ".", "succeeded"}},
	}
}

// failed turns the call into one that failed for its caller.
func failed(b *ledger, code, dispatched string) {
	c := &b.asked[0]
	c.status, c.Success, c.Output, c.state, c.Code, c.Dispatched = 504, false, "", "", code, dispatched
}

// waited turns the call into one that waited for its device, and was heard of at 20 ms.
func waited(b *ledger) {
	c := &b.asked[0]
	c.status, c.state, c.expires, c.heard = 202, "queued", c.asked.Add(3*time.Second), c.asked.Add(5*time.Millisecond)
	c.Success, c.Output = false, ""
	b.events["c"] = []string{"queued", "accepted", "queued", "accepted", "delivered", "succeeded"}
}

// notQueuedAtFirst turns the call into one that a repetition of its request has put into its queue.
func notQueuedAtFirst(b *ledger) {
	waited(b)
	b.asked[0].shape, b.asked[0].key = "queued, keyed", "k"
	again := b.asked[0]
	again.asked, again.heard = again.asked.Add(2*time.Millisecond), again.heard.Add(2*time.Millisecond)
	b.asked = append(b.asked, again)
	failed(b, "timeout", "no")
	b.asked[0].heard = b.asked[0].asked.Add(time.Millisecond)
}

// waitedTwo adds a second call, which was asked for when the first was known to wait, and reached the device at ms.
func waitedTwo(b *ledger, ms int) {
	waited(b)
	c := b.asked[0]
	at := c.asked.Add(time.Duration(ms) * time.Millisecond)
	c.nonce, c.CallID, c.asked, c.heard = "m", "d", c.heard.Add(time.Millisecond), c.heard.Add(2*time.Millisecond)
	b.asked = append(b.asked, c)
	output := ledgerOutput("m", "device-0", "work", 1)
	b.arrived = append(b.arrived, ledgerArrival{"d", "device-0", "work", "m", at})
	b.answers = append(b.answers, ledgerAnswer{"d", output, 1, at.Add(time.Millisecond)})
	b.seen = append(b.seen, ledgerRecord{
		callID: "d", state: "succeeded", output: output, dispatched: "yes", last: true, at: at.Add(time.Second),
	})
}

// Each rule of the ledger is broken once, and noticed; what is allowed is not.
func TestLedgerNoticesWhatIsWrong(t *testing.T) {
	for name, c := range map[string]struct {
		rule string // "" if nothing is wrong
		do   func(b *ledger)
	}{
		"all is well": {"", func(*ledger) {}},
		"ran twice":   {"once", func(b *ledger) { b.arrived = append(b.arrived, b.arrived[0]) }},
		"ran on two devices": {"once", func(b *ledger) {
			b.arrived = append(b.arrived, ledgerArrival{"c", "device-1", "work", "n", time.Time{}})
		}},
		"one key, two calls": {"once", func(b *ledger) {
			b.arrived = append(b.arrived, ledgerArrival{"d", "device-0", "work", "n", time.Time{}})
		}},
		"other device":        {"routed", func(b *ledger) { b.arrived[0].session = "device-1" }},
		"other tool":          {"routed", func(b *ledger) { b.arrived[0].tool = "play" }},
		"other arguments":     {"routed", func(b *ledger) { b.arrived[0].nonce = "m" }},
		"never ran":           {"told", func(b *ledger) { b.arrived = nil }},
		"no call id":          {"told", func(b *ledger) { b.asked[0].CallID = "" }},
		"other answer":        {"answer", func(b *ledger) { b.asked[0].Output = "x" }},
		"second answer":       {"answer", func(b *ledger) { b.asked[0].Output = b.answers[1].output }},
		"nobody answered":     {"answer", func(b *ledger) { b.answers = nil }},
		"said no, ran":        {"dispatched", func(b *ledger) { failed(b, "not_connected", "no") }},
		"said yes, never ran": {"dispatched", func(b *ledger) { failed(b, "timeout", "yes"); b.arrived = nil }},
		"did not say":         {"dispatched", func(b *ledger) { failed(b, "timeout", "") }},
		"too late": {"time",
			func(b *ledger) { b.asked[0].heard = b.asked[0].asked.Add(1700 * time.Millisecond) }},
		"recorded otherwise":    {"agrees", func(b *ledger) { b.seen[1].state, b.seen[1].output = "timed_out", "" }},
		"recorded as late":      {"agrees", func(b *ledger) { b.seen[1].late = true }},
		"failed, not so":        {"agrees", func(b *ledger) { failed(b, "connection_lost", "yes") }},
		"lost, not so":          {"agrees", func(b *ledger) { failed(b, "lost", "unknown") }},
		"store away, said yes":  {"agrees", func(b *ledger) { failed(b, "store_unavailable", "yes") }},
		"recorded second":       {"record", func(b *ledger) { b.seen[1].output = b.answers[1].output }},
		"never ended":           {"record", func(b *ledger) { b.seen[1].state = "delivered" }},
		"changed after its end": {"record", func(b *ledger) { b.seen[0].state = "cancelled" }},
		"out of order": {"events", func(b *ledger) {
			b.events["c"] = []string{"delivered", "succeeded",
				"accepted"}
		}},
		"after the end":        {"events", func(b *ledger) { b.events["c"] = []string{"running", "succeeded", "."} }},
		"both answers counted": {"acknowledged", func(b *ledger) { b.acks[1].ignored = false }},

		"waited, ran late": {"expired", func(b *ledger) {
			waited(b)
			b.arrived[0].at = b.asked[0].expires.Add(2 * time.Second)
		}},
		"waited, was cancelled, ran": {"cancelled", func(b *ledger) {
			waited(b)
			b.seen[0].state, b.seen[0].dispatched = "cancelled", "no"
		}},
		"waited, never ended":          {"record", func(b *ledger) { waited(b); b.seen[1].state = "queued" }},
		"waited, ran first":            {"order", func(b *ledger) { waitedTwo(b, 9) }},
		"waited, ran beside the first": {"order", func(b *ledger) { waitedTwo(b, 200) }},
		"waited again after it ran": {"events", func(b *ledger) {
			waited(b)
			b.events["c"] = []string{"queued", "accepted", "running", "queued"}
		}},

		"waited, ran beside one that gave up": {"", func(b *ledger) {
			waitedTwo(b, 200)
			b.seen[0].state, b.seen[1].late = "timed_out", true
		}},
		"not queued at first": {"", func(b *ledger) { notQueuedAtFirst(b) }},
		"not queued at first, and never repeated": {"dispatched", func(b *ledger) {
			notQueuedAtFirst(b)
			b.asked = b.asked[:1]
		}},
		"stored late while Redis is away": {"", func(b *ledger) {
			waited(b)
			c := &b.asked[0]
			c.shape, c.heard = "queued", c.asked.Add(2*time.Second)
			b.faults = []ledgerFault{{from: c.asked, to: c.heard, store: true}}
		}},

		"waited":     {"", waited},
		"two waited": {"", func(b *ledger) { waitedTwo(b, 500) }},
		"late": {"", func(b *ledger) {
			failed(b, "timeout", "yes")
			b.seen[0].state, b.seen[1].late = "timed_out",
				true
		}},
		"dropped": {"", func(b *ledger) {
			failed(b, "connection_lost", "yes")
			b.arrived, b.answers, b.acks = nil, nil, nil
			b.seen[1].state, b.seen[1].output = "lost", ""
			b.drops = []ledgerDrop{{"device-0", b.asked[0].asked}}
		}},
		"a busy machine": {"", func(b *ledger) {
			b.asked[0].heard = b.asked[0].asked.Add(1700 * time.Millisecond)
			b.control[0].took = 60 * time.Millisecond
		}},
		"a summary after a wipe": {"", func(b *ledger) {
			b.seen[0] = b.seen[1]
			b.seen[0].last, b.seen[1].output = false, ""
			b.faults = []ledgerFault{{from: b.seen[0].at.Add(-time.Second), to: b.seen[1].at.Add(time.Second),
				wipes: true}}
			b.seen[1].at = b.seen[1].at.Add(time.Second)
		}},
		"an output that vanished": {"record", func(b *ledger) {
			b.seen[0] = b.seen[1]
			b.seen[0].last, b.seen[1].output = false, ""
		}},
		"told that it goes on": {"", func(b *ledger) {
			failed(b, "timeout", "yes")
			b.asked[0].key, b.asked[0].Detail = "k", "The call is still delivered; GET /api/calls/c returns its result."
		}},
		"store away, not known": {"", func(b *ledger) { failed(b, "store_unavailable", "unknown") }},
		"a stopped pod": {"", func(b *ledger) {
			b.asked[0].heard = b.asked[0].asked.Add(3 * time.Second)
			b.faults = []ledgerFault{{from: b.asked[0].asked, to: b.asked[0].asked.Add(2 * time.Second),
				pod: "http://a"}}
		}},
	} {
		noticed(t, name, c.rule, c.do)
	}
}

// noticed checks that the audit breaks that rule over the books that do makes; no rule: none.
func noticed(t *testing.T, name, rule string, do func(b *ledger)) {
	t.Helper()
	b := agreeing()
	do(b)
	rules := make(map[string]bool)
	for _, v := range b.audit() {
		rules[v.rule] = true
	}
	if rule == "" && len(rules) > 0 || rule != "" && !rules[rule] {
		t.Errorf("%s: noticed %v, want %q", name, rules, rule)
	}
}

// fault adds a fault that lasts from one time to another, in milliseconds after the call was asked.
func fault(b *ledger, from, to int, f ledgerFault) {
	asked := b.asked[0].asked
	f.from = asked.Add(time.Duration(from) * time.Millisecond)
	f.to = asked.Add(time.Duration(to) * time.Millisecond)
	b.faults = append(b.faults, f)
}

// A store may forget what it had when it was wiped, and shortly before a failover; nothing else, and what was denied
// runs in no case.
func TestLedgerKnowsWhatAStoreMayForget(t *testing.T) {
	gone := func(b *ledger) { waited(b); b.seen[1].missing = true }
	twice := func(b *ledger) {
		b.arrived = append(b.arrived, ledgerArrival{"d", "device-0", "work", "n", b.arrived[0].at})
	}
	wentBack := func(b *ledger) { b.seen[0].state = "cancelled"; b.seen[0].dispatched = "unknown" }
	ruled := func(b *ledger, rulings ...ledgerRuling) {
		waited(b)
		b.asked[0].tool, b.arrived[0].tool = ledgerAsked, ledgerAsked
		for _, r := range rulings {
			r.callID, r.sent = "c", b.asked[0].asked.Add(8*time.Millisecond)
			b.ruled = append(b.ruled, r)
		}
	}
	unseen := func(b *ledger) {
		failed(b, "connection_lost", "yes")
		b.arrived, b.answers, b.acks = nil, nil, nil
		b.seen[1].state, b.seen[1].output = "lost", ""
		b.drops = []ledgerDrop{{"device-0", b.asked[0].asked.Add(-3 * time.Second)}}
	}
	repeated := func(b *ledger, left int) { // its device left at that time, in ms after the first request
		unseen(b)
		b.asked[0].key = "k"
		again := b.asked[0]
		b.drops[0].at = again.asked.Add(time.Duration(left) * time.Millisecond)
		again.asked, again.heard = again.asked.Add(2500*time.Millisecond), again.asked.Add(2600*time.Millisecond)
		b.asked = append(b.asked, again)
	}
	slow := func(b *ledger, took int, f ledgerFault) {
		failed(b, "approval_denied", "no")
		c := &b.asked[0]
		c.tool, c.shape, c.heard = ledgerAsked, "approved", c.asked.Add(time.Duration(took)*time.Millisecond)
		b.arrived, b.answers, b.acks = nil, nil, nil
		b.seen[1].state, b.seen[1].output, b.seen[1].dispatched = "rejected", "", "no"
		fault(b, 900, 1800, f)
	}
	stood := func(b *ledger, from, to int) { unseen(b); fault(b, from, to, ledgerFault{pod: "http://b"}) }
	wipes, killed, failover := ledgerFault{wipes: true}, ledgerFault{store: true}, ledgerFault{failover: true}
	for name, c := range map[string]struct {
		rule string
		do   func(b *ledger)
	}{
		"gone":                      {"kept", gone},
		"gone, killed":              {"kept", func(b *ledger) { gone(b); fault(b, 100, 200, killed) }},
		"gone, wiped":               {"", func(b *ledger) { gone(b); fault(b, 100, 200, wipes) }},
		"gone, failover":            {"", func(b *ledger) { gone(b); fault(b, 500, 900, failover) }},
		"gone, failover much later": {"kept", func(b *ledger) { gone(b); fault(b, 3000, 5000, failover) }},
		"gone, failover before":     {"kept", func(b *ledger) { gone(b); fault(b, -3000, -2000, failover) }},
		"two calls, killed":         {"once", func(b *ledger) { twice(b); fault(b, 100, 200, killed) }},
		"two calls, failover":       {"", func(b *ledger) { twice(b); fault(b, 100, 200, failover) }},
		"two calls, failover later": {"once", func(b *ledger) { twice(b); fault(b, 3000, 5000, failover) }},
		"went back, killed":         {"record", func(b *ledger) { wentBack(b); fault(b, 100, 200, killed) }},
		"went back, failover":       {"", func(b *ledger) { wentBack(b); fault(b, 600, 900, failover) }},
		"went back, failover later": {"record", func(b *ledger) { wentBack(b); fault(b, 3000, 5000, failover) }},
		"one call twice, failover": {"once", func(b *ledger) {
			b.arrived = append(b.arrived, b.arrived[0])
			fault(b, 0, 99, failover)
		}},
		"allowed, ran":      {"", func(b *ledger) { ruled(b, ledgerRuling{decision: "allow-once", state: "allowed"}) }},
		"told nothing, ran": {"", func(b *ledger) { ruled(b, ledgerRuling{decision: "allow-once"}) }},
		"undecided, ran":    {"denied", func(b *ledger) { ruled(b) }},
		"denied, ran":       {"denied", func(b *ledger) { ruled(b, ledgerRuling{decision: "deny", state: "denied"}) }},
		"denied first, ran": {"denied", func(b *ledger) {
			ruled(b, ledgerRuling{decision: "allow-once", state: "denied"})
		}},
		"slow to deny, store away":    {"", func(b *ledger) { slow(b, 3000, killed) }},
		"slow to deny, wiped":         {"time", func(b *ledger) { slow(b, 3000, wipes) }},
		"too slow, store away":        {"time", func(b *ledger) { slow(b, 3400, killed) }},
		"left at the first request":   {"", func(b *ledger) { repeated(b, 100) }},
		"left before the first":       {"dispatched", func(b *ledger) { repeated(b, -3000) }},
		"left before":                 {"dispatched", unseen},
		"left while a pod stood":      {"", func(b *ledger) { stood(b, -4000, -100) }},
		"left before a pod stood":     {"dispatched", func(b *ledger) { stood(b, -2500, -100) }},
		"left, a pod stood long gone": {"dispatched", func(b *ledger) { stood(b, -4000, -2000) }},
	} {
		noticed(t, name, c.rule, c.do)
	}
}
