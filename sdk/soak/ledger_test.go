package soak_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/farhand/farhand/internal/testkit"
)

// ledger is what callers asked and heard, and what devices ran and answered, by the text of the call, which no other
// has.
type ledger struct {
	mu       sync.Mutex
	requests map[string]*request
	began    map[string][]event // calls that ran with a text
	gave     map[string][]event // and those that were answered
	faults   []fault
	records  map[string]record // in the end, of calls whose caller did not hear an answer, and of all durable ones
	logged   map[string]int    // answers in the logs of these records

	storeDies bool // with the answers that are on their way between pods
}

// event is what a device said of a call.
type event struct {
	call string
	at   time.Time
}

// fault is what happened to a pod, and until when it was gone.
type fault struct {
	what     string
	from, to time.Time
}

// request is one call that a caller wants to be made once.
type request struct {
	text, sdk string
	shape     shape
	heard     []heard
}

func newLedger() *ledger {
	return &ledger{
		requests: map[string]*request{}, began: map[string][]event{}, gave: map[string][]event{},
		records: map[string]record{}, logged: map[string]int{},
	}
}

func (b *ledger) ask(r *request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.requests[r.text] = r
}

func (b *ledger) hear(r *request, h heard) {
	b.mu.Lock()
	defer b.mu.Unlock()
	h.at = time.Now()
	r.heard = append(r.heard, h)
}

func (b *ledger) ran(text, call string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.began[text] = append(b.began[text], event{call, time.Now()})
}

func (b *ledger) answered(text, call string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.gave[text] = append(b.gave[text], event{call, time.Now()})
}

func (b *ledger) suffer(f fault) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.faults = append(b.faults, f)
}

// last returns what the caller heard last.
func (r *request) last() heard { return r.heard[len(r.heard)-1] }

// hasAnswer reports whether the caller heard the device's answer.
func (r *request) hasAnswer() bool { return r.last().status == http.StatusOK }

// isOrphan reports whether only the caller's pod, which is gone, knew of the call: it was not durable, and the caller
// heard nothing.
func (r *request) isOrphan() bool { return !r.shape.isDurable() && r.last().status == 0 }

// mayLose reports whether docs/faults.md lets the answer to a call be lost: only its caller's pod knew of it, and is
// gone, or the answer was on its way when the store died, and the caller heard so.
func (b *ledger) mayLose(r *request) bool {
	return r.isOrphan() || b.storeDies && !r.shape.isDurable() && r.last().Code == "lost" && r.last().Dispatched != "no"
}

// settle reads records until each has the answer that its device gave, or for testkit.Limit.
func (b *ledger) settle(t *testing.T, f *fleet) {
	t.Helper()
	c := &caller{t: t, fleet: f, random: rand.New(rand.NewPCG(*seed, 1000))}
	testkit.Eventually(t, "every call that runs is answered", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return !slices.ContainsFunc(slices.Collect(maps.Keys(b.began)), func(text string) bool {
			return len(b.gave[text]) < len(b.began[text])
		})
	})
	var open []*request
	for _, r := range b.requests {
		if len(b.gave[r.text]) > 0 && (!r.hasAnswer() || r.shape.isDurable()) {
			open = append(open, r)
		}
	}
	for end := time.Now().Add(testkit.Limit); len(open) > 0 && time.Now().Before(end); pause(100 * time.Millisecond) {
		open = slices.DeleteFunc(open, func(r *request) bool {
			rec, err := c.record(b.gave[r.text][0].call, "")
			if err == nil {
				b.records[r.text] = rec
			}
			if err == nil && rec.isAnswered() {
				b.logged[r.text] = c.answersLogged(b.gave[r.text][0].call)
			}
			return err == nil && rec.isAnswered() || errors.Is(err, errNoRecord) && b.mayLose(r)
		})
		if !slices.ContainsFunc(open, func(r *request) bool { return !b.mayLose(r) }) {
			break // records of orphans that nothing changes any more
		}
	}
}

// violation is a rule that a request broke.
type violation struct{ rule, text string }

// The rules.
const (
	ranTwice      = "ran twice"
	answeredTwice = "answered twice"
	lostAnswer    = "the device's answer was lost"
	saidNo        = "dispatched no, but it ran"
	wrongAnswer   = "an answer that no device gave"
)

// audit returns what is wrong, each rule at most once for a request.
func (b *ledger) audit() (found []violation) {
	for _, text := range slices.Sorted(maps.Keys(b.requests)) {
		r := b.requests[text]
		rec, recorded := b.records[text]
		gave := len(b.gave[text]) > 0
		answers := 0 // of different calls
		for i, h := range r.heard {
			isNew := !slices.ContainsFunc(r.heard[:i], func(e heard) bool { return e.CallID == h.CallID })
			if h.status == http.StatusOK && isNew {
				answers++
			}
		}
		for rule, broken := range map[string]bool{
			ranTwice:      len(b.began[text]) > 1,
			answeredTwice: len(b.gave[text]) > 1 || answers > 1 || b.logged[text] > 1,
			lostAnswer:    gave && !r.hasAnswer() && !rec.isAnswered() && !b.mayLose(r),
			saidNo: len(b.began[text]) > 0 && !slices.ContainsFunc(r.heard, func(h heard) bool {
				return h.status == 0 && !h.unsent || h.Dispatched != "no" && !h.unsent
			}),
			wrongAnswer: r.hasAnswer() && (!gave || r.last().Output != text || r.last().State != "succeeded") ||
				recorded && rec.isAnswered() && (rec.State != "succeeded" || rec.Output != text && !withheld(rec)),
		} {
			if broken {
				found = append(found, violation{rule, text})
			}
		}
	}
	return found
}

// withheld reports that the record of a short call has no output.
func withheld(r record) bool { return r.Output == "" && r.OutputKept != nil && !*r.OutputKept }

// counts are the figures of one SDK.
type counts struct {
	calls, heard, retried, late, notDispatched, orphansKept, orphans, ranTwice, answeredTwice, lost int
}

func (b *ledger) count(sdk string, found []violation) (n counts) {
	for text, r := range b.requests {
		if r.sdk != sdk {
			continue
		}
		n.calls++
		rec := b.records[text]
		switch {
		case r.hasAnswer():
			n.heard++
			if len(r.heard) > 1 {
				n.retried++
			}
		case r.last().Dispatched == "no" || r.last().unsent:
			n.notDispatched++
		case r.isOrphan() && rec.isAnswered():
			n.orphansKept++
		case r.isOrphan():
			n.orphans++
		case rec.isAnswered() && rec.Late:
			n.late++
		case rec.isAnswered():
			n.heard++ // in the record
		}
	}
	for _, v := range found {
		if b.requests[v.text].sdk == sdk {
			switch v.rule {
			case ranTwice:
				n.ranTwice++
			case answeredTwice:
				n.answeredTwice++
			case lostAnswer:
				n.lost++
			}
		}
	}
	return n
}

// outcomes lists what callers heard, by shape.
func (b *ledger) outcomes() string {
	counts := map[string]int{}
	for text, r := range b.requests {
		h := r.last()
		name := fmt.Sprintf("%s: %d %s %s", r.shape, h.status, h.State+h.Code, h.Dispatched)
		if h.status == 0 {
			name = fmt.Sprintf("%s: heard nothing, unsent %v, ran %v", r.shape, h.unsent, len(b.began[text]) > 0)
		}
		counts[name]++
	}
	var lines strings.Builder
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		fmt.Fprintf(&lines, "%7d  %s\n", counts[name], name)
	}
	return lines.String()
}

// history tells what is known of a call.
func (b *ledger) history(text string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	lines := []string{text}
	var all []time.Time
	note := func(at time.Time, format string, args ...any) {
		all = append(all, at)
		lines = append(lines, at.Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
	}
	for _, e := range b.began[text] {
		note(e.at, "ran as %s", e.call)
	}
	for _, e := range b.gave[text] {
		note(e.at, "the device answered %s", e.call)
	}
	for _, h := range b.requests[text].heard {
		note(h.at, "heard %d %s%s %q dispatched %s as %s, %v: %s", h.status, h.State, h.Code, h.Output, h.Dispatched,
			h.CallID, h.err, h.Detail)
	}
	for _, f := range b.faults {
		if slices.ContainsFunc(all, func(at time.Time) bool {
			return f.from.Before(at.Add(5*time.Second)) && f.to.After(at.Add(-5*time.Second))
		}) {
			note(f.from, "%s until %s", f.what, f.to.Format("15:04:05.000"))
		}
	}
	slices.Sort(lines[1:])
	if rec, ok := b.records[text]; ok {
		lines = append(lines, fmt.Sprintf("record %+v", rec))
	}
	return strings.Join(lines, "\n    ")
}

// callsOf returns the ids of the calls that ran for a request.
func (b *ledger) callsOf(text string) (ids []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.began[text] {
		ids = append(ids, e.call)
	}
	return ids
}
