package soak_test

import (
	"net/http"
	"testing"
)

// TestAuditNoticesWhatIsWrong breaks each rule once in books that agree.
func TestAuditNoticesWhatIsWrong(t *testing.T) {
	answer := heard{status: http.StatusOK, CallID: "c", State: "succeeded", Output: "x"}
	late := record{State: "succeeded", Output: "x", Late: true}
	for name, c := range map[string]struct {
		rule string // empty: nothing is wrong
		do   func(b *ledger, r *request)
	}{
		"all is well":             {"", func(*ledger, *request) {}},
		"two runs of a call":      {ranTwice, func(b *ledger, _ *request) { b.ran("x", "c") }},
		"a run of another call":   {ranTwice, func(b *ledger, _ *request) { b.ran("x", "d") }},
		"two answers of a device": {answeredTwice, func(b *ledger, _ *request) { b.answered("x", "c") }},
		"two answers in the log":  {answeredTwice, func(b *ledger, _ *request) { b.logged["x"] = 2 }},
		"answers of two calls": {answeredTwice, func(_ *ledger, r *request) {
			r.heard = append(r.heard, answer)
			r.heard[0].CallID = "d"
		}},
		"an answer heard again": {"", func(_ *ledger, r *request) { r.heard = append(r.heard, answer) }},
		"an answer that came late": {"", func(b *ledger, r *request) {
			r.heard[0], b.records["x"] = heard{status: 504, Dispatched: "yes"}, late
		}},
		"a lost answer": {lostAnswer, func(b *ledger, r *request) {
			r.heard[0], b.records["x"] = heard{status: 504, Dispatched: "yes"}, record{State: "timed_out"}
		}},
		"an orphan": {"", func(_ *ledger, r *request) { r.heard[0] = heard{} }},
		"an answer that died with the store": {"", func(b *ledger, r *request) {
			b.storeDies, r.heard[0] = true, heard{status: 502, Code: "lost", Dispatched: "unknown"}
		}},
		"a store that did not die": {lostAnswer, func(_ *ledger, r *request) {
			r.heard[0] = heard{status: 502, Code: "lost", Dispatched: "unknown"}
		}},
		"a durable answer does not die with the store": {lostAnswer, func(b *ledger, r *request) {
			b.storeDies, r.shape, r.heard[0] = true, keyed, heard{status: 502, Code: "lost", Dispatched: "unknown"}
		}},
		"a durable call is no orphan": {lostAnswer, func(_ *ledger, r *request) {
			r.heard[0], r.shape = heard{}, keyed
		}},
		"a run that was denied": {saidNo, func(b *ledger, r *request) {
			r.heard[0], b.records["x"] = heard{status: 503, Dispatched: "no"}, late
		}},
		"a run of what was not sent": {saidNo, func(b *ledger, r *request) {
			r.heard[0], b.records["x"] = heard{unsent: true}, late
		}},
		"an answer without a device": {wrongAnswer, func(b *ledger, _ *request) { b.gave["x"] = nil }},
		"another answer":             {wrongAnswer, func(_ *ledger, r *request) { r.heard[0].Output = "y" }},
		"another record": {wrongAnswer, func(b *ledger, _ *request) {
			b.records["x"] = record{State: "succeeded", Output: "y"}
		}},
	} {
		b, r := newLedger(), &request{text: "x", shape: short, heard: []heard{answer}}
		b.ask(r)
		b.ran("x", "c")
		b.answered("x", "c")
		c.do(b, r)
		found := b.audit()
		if c.rule == "" && len(found) > 0 || c.rule != "" && (len(found) != 1 || found[0].rule != c.rule) {
			t.Errorf("%s: found %+v, want %q", name, found, c.rule)
		}
	}
}
