package redisstore

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/farhand/farhand/internal/strictjson"
	"github.com/farhand/farhand/registry"
)

// Fields of the hash of a call. Each part that changes during a call has its own field, which may be empty. The rest is
// one JSON text. Scripts do not read JSON, so they cannot change texts of a device or a caller. The scripts themselves
// write state, late, dispatched, timeline, deadline, and kept, which exists if the call ran without a record.
const (
	fieldState      = "state"
	fieldLate       = "late"       // 1 or empty
	fieldDispatched = "dispatched" // no, yes or unknown
	fieldTimeline   = "timeline"   // state=µs, separated by spaces
	fieldDeadline   = "deadline"   // ms
	fieldSession    = "session"
	fieldDevice     = "device"
	fieldOwner      = "owner"
	fieldProof      = "proof"
	fieldResult     = "result" // JSON
	fieldError      = "error"  // JSON
	fieldRest       = "rec"    // JSON
	fieldWaits      = "held"   // 1 while it waits for BeginCall
	fieldBegunOn    = "pod"    // the pod that began it; empty: the one in rec
	watcherPrefix   = "w:"     // before the pod to wake
)

// constantJSON encodes the parts of a record that do not change during a call.
func constantJSON(r registry.Record) (string, error) {
	r.State, r.Dispatched, r.Late, r.Timeline, r.Deadline = "", "", false, nil, time.Time{}
	r.SessionID, r.DeviceID, r.Owner, r.Proof, r.Result, r.Err = "", "", "", "", nil, nil
	text, err := strictjson.Encode(r)
	return string(text), err
}

// identityFields are the fields that say where a call went.
func identityFields(r registry.Record) []any {
	return []any{fieldSession, r.SessionID, fieldDevice, r.DeviceID, fieldOwner, r.Owner, fieldProof, r.Proof}
}

// outcomeFields are the fields that say how a call ended.
func outcomeFields(r registry.Record) ([]any, error) {
	var result, failure []byte
	var err error
	if r.Result != nil {
		kept := *r.Result
		if isCompact(kept.Structured.Raw(), kept.Output) {
			kept.Output = "" // parseRecord restores it
		}
		if result, err = strictjson.Encode(kept); err != nil {
			return nil, err
		}
	}
	if r.Err != nil {
		if failure, err = strictjson.Encode(r.Err); err != nil {
			return nil, err
		}
	}
	return []any{fieldResult, string(result), fieldError, string(failure)}, nil
}

// isCompact reports whether text equals structured, and structured has no insignificant space.
func isCompact(structured json.RawMessage, text string) bool {
	if len(structured) == 0 || string(structured) != text {
		return false
	}
	var b bytes.Buffer
	return json.Compact(&b, structured) == nil && b.String() == text
}

// progressFields are the fields that describe the progress of a call.
func progressFields(r registry.Record) []any {
	deadline := ""
	if !r.Deadline.IsZero() {
		deadline = decimal(r.Deadline.UnixMilli())
	}
	return []any{
		fieldState, string(r.State), fieldLate, flag(r.Late), fieldDispatched, string(r.Dispatched),
		fieldTimeline, timelineText(r.Timeline), fieldDeadline, deadline,
	}
}

func flag(b bool) string {
	if b {
		return "1"
	}
	return ""
}

func timelineText(steps []registry.Step) string {
	texts := make([]string, len(steps))
	for i, s := range steps {
		texts[i] = string(s.State) + "=" + decimal(s.At.UnixMicro())
	}
	return strings.Join(texts, " ")
}

func parseTimeline(text string) ([]registry.Step, error) {
	var steps []registry.Step
	for word := range strings.FieldsSeq(text) {
		state, at, _ := strings.Cut(word, "=")
		micros, err := strconv.ParseInt(at, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("timeline: %w", err)
		}
		steps = append(steps, registry.Step{State: registry.State(state), At: time.UnixMicro(micros).UTC()})
	}
	return steps, nil
}

// parseRecord reads the hash of a call.
func parseRecord(h map[string]string) (registry.Record, error) {
	var r registry.Record
	if err := json.Unmarshal([]byte(h[fieldRest]), &r); err != nil {
		return r, registry.StoreUnavailable("read the hash of a call", err)
	}
	r.State, r.Late = registry.State(h[fieldState]), h[fieldLate] != ""
	r.Dispatched = registry.Dispatched(h[fieldDispatched])
	r.SessionID, r.DeviceID, r.Owner, r.Proof = h[fieldSession], h[fieldDevice], h[fieldOwner], h[fieldProof]
	r.Deadline = fromMillis(h[fieldDeadline])
	r.Pod = cmp.Or(h[fieldBegunOn], r.Pod)
	var err error
	r.Timeline, err = parseTimeline(h[fieldTimeline])
	if err = errors.Join(err, decodeField(h, fieldResult, &r.Result), decodeField(h, fieldError, &r.Err)); err != nil {
		return r, registry.StoreUnavailable("read the hash of a call", err)
	}
	if r.Result != nil && !r.Result.Structured.IsZero() && r.Result.Output == "" {
		r.Result.Output = r.Result.Structured.String()
	}
	return r, nil
}

// parseWatchers returns the pods that watch a call, from its hash.
func parseWatchers(h map[string]string) []string {
	var pods []string
	for field := range h {
		if pod, ok := strings.CutPrefix(field, watcherPrefix); ok {
			pods = append(pods, pod)
		}
	}
	return pods
}

// moves returns the table of moves of an event, as the scripts take it, and the fields that the event sets. Both come
// from applying the event to a registry.Record.
func moves(e registry.Event, c registry.Change) (table, fields []any, err error) {
	for from := range registry.Sources(e) {
		r := registry.Record{State: from, Dispatched: from.Dispatched()}
		r.Apply(e, c, time.Time{})
		table = append(table, string(from), string(r.State), flag(r.Late), string(r.Dispatched), flag(r.State.Final()))
		if fields, err = changedFields(r); err != nil {
			return nil, nil, err
		}
	}
	return table, fields, nil
}

// changedFields returns the fields that an event has set on an empty record.
func changedFields(r registry.Record) ([]any, error) {
	outcome, err := outcomeFields(r)
	if err != nil {
		return nil, err
	}
	if r.Result == nil && r.Err == nil {
		outcome = nil
	} else if r.Result == nil { // an error does not replace a result
		outcome = outcome[2:]
	}
	var changed []any
	if !r.Deadline.IsZero() { // it is held again
		changed = append(changed, fieldDeadline, decimal(r.Deadline.UnixMilli()), fieldWaits, flag(true))
	}
	identity := identityFields(r)
	for i := 0; i < len(identity); i += 2 {
		if identity[i+1] != "" {
			changed = append(changed, identity[i], identity[i+1])
		}
	}
	return append(changed, outcome...), nil
}

// overdueTable is the result of overdueMoves. It never changes.
var overdueTable = overdueMoves()

// overdueMoves returns the table of moves that end calls after their deadlines.
func overdueMoves() []any {
	var table []any
	for _, from := range registry.States() {
		if e, ok := from.Overdue(); ok {
			r := registry.Record{State: from}
			r.Apply(e, registry.Change{}, time.Time{})
			table = append(table, string(from), string(r.State), flag(r.Late), string(r.Dispatched), flag(true))
		}
	}
	return table
}

// keepings returns, for each state of a stored record, how a record in the given state is kept over it.
func keepings(state registry.State) []any {
	var ways []any
	for _, s := range registry.States() {
		if how := s.Keep(state); how != registry.KeepReplace {
			ways = append(ways, string(s), string(how))
		}
	}
	return ways
}
