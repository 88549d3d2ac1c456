package loopguard

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/internal/strictjson"
	"github.com/farhand/farhand/registry"
)

// The kinds of entries. A call leaves a start entry before it runs and an end entry when it has ended. A call that
// ended before it could run leaves only an end entry.
const (
	kindStart = "s"
	kindEnd   = "e"
)

// entry is one line of the history: the event, the call, the call's request, the turn, and the outcome. All fields but
// the kind are hashes, so that no arguments or results are stored.
type entry struct {
	kind    string
	id      string
	call    string
	turn    string
	outcome string // with kindEnd
}

// String returns the entry in stored form.
func (e entry) String() string {
	return strings.TrimSuffix(strings.Join([]string{e.kind, e.id, e.call, e.turn, e.outcome}, " "), " ")
}

// parseEntry parses the output of String. It returns false for anything else, such as an entry of another version.
func parseEntry(text string) (entry, bool) {
	f := strings.Split(text, " ")
	for _, field := range f[1:] {
		if field == "" {
			return entry{}, false
		}
	}
	switch {
	case len(f) == 4 && f[0] == kindStart:
		return entry{kind: kindStart, id: f[1], call: f[2], turn: f[3]}, true
	case len(f) == 5 && f[0] == kindEnd:
		return entry{kind: kindEnd, id: f[1], call: f[2], turn: f[3], outcome: f[4]}, true
	default:
		return entry{}, false
	}
}

// made is a call reconstructed from the history.
type made struct {
	id      string
	call    string
	turn    string
	outcome string // empty while the call runs, and for a blocked call
	unasked bool   // it never started
}

// parseHistory returns the calls of a history in the order of their first entries.
func parseHistory(history []string) []made {
	var calls []made
	place := make(map[string]int)
	for _, text := range history {
		e, ok := parseEntry(text)
		if !ok {
			continue
		}
		i, known := place[e.id]
		switch {
		case !known:
			place[e.id] = len(calls)
			calls = append(calls, made{
				id: e.id, call: e.call, turn: e.turn, outcome: e.outcome, unasked: e.kind == kindEnd,
			})
		case e.kind == kindEnd:
			calls[i].outcome = e.outcome
		}
	}
	return calls
}

// run describes how often one call, or two alternating calls, were made in a row without a new outcome.
type run struct {
	length      int
	alternating bool
	unasked     bool // the last call never started
	again       bool // its turn already made the same call in this run
}

// runOf returns the run that ends with the call id. It is the zero run if the call is not in calls.
func runOf(calls []made, id string) run {
	last := len(calls) - 1
	for last >= 0 && calls[last].id != id {
		last--
	}
	if last < 0 {
		return run{}
	}
	r := run{length: stretch(calls[:last+1], 1), unasked: calls[last].unasked}
	if last > 0 && calls[last].call != calls[last-1].call {
		if n := stretch(calls[:last+1], 2); n >= 4 { // A-B-A-B; less is not a pattern
			r.length, r.alternating = n, true
		}
	}
	r.again = slices.ContainsFunc(calls[last+1-r.length:last], func(c made) bool {
		return c.call == calls[last].call && c.turn == calls[last].turn
	})
	return r
}

// stretch returns how many calls at the end repeat with the given period. Each has the same request as the call one
// period earlier. All known outcomes at the same position of the period are equal.
func stretch(calls []made, period int) int {
	if len(calls) < period {
		return len(calls)
	}
	asked, outcome := make([]string, period), make([]string, period)
	n := 0
	for i := len(calls) - 1; i >= 0; i-- {
		place, c := n%period, calls[i]
		if n < period {
			asked[place] = c.call
		}
		if c.call != asked[place] || outcome[place] != "" && c.outcome != "" && c.outcome != outcome[place] {
			break
		}
		if outcome[place] == "" {
			outcome[place] = c.outcome
		}
		n++
	}
	return n
}

// callHash identifies the request of a call: the tool, its source, and the arguments as the caller sent them, in any
// order of members.
func callHash(inv agent.Invocation) string {
	args, err := strictjson.Canonical(inv.Asked.Raw())
	if err != nil {
		args = inv.Asked.Raw() // invalid JSON of a model: hashed as text, so a repetition has the same hash
	}
	return hash("call", inv.Source, inv.Spec.Name, string(args))
}

// outcomeHash identifies the outcome of a call, without ids and durations.
func outcomeHash(res registry.Result, err error) string {
	if err != nil {
		e := registry.AsError(err)
		return hash("error", string(e.Code), e.Message)
	}
	said := []string{"result", string(res.State()), res.Output, res.Error}
	for i := range res.Parts { // two different pictures are two outcomes
		said = append(said, res.Parts[i].MIMEType, string(res.Parts[i].Data))
	}
	return hash(said...)
}

// hash returns a short hash of the parts, each with its length.
func hash(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d:%s", len(p), p)
	}
	return hex.EncodeToString(h.Sum(nil)[:12])
}
