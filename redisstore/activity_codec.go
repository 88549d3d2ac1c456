package redisstore

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/farhand/farhand/registry"
)

// Every call adds a line to the feed, so a line about an ordinary call is short. It leaves out what its reader knows
// already or what is true of nearly every call: tenant, session, device, pod and mode of the call, and a deadline it
// does not have. Its timeline is one text under "steps", by which a reader recognises such a line. Other lines are the
// JSON of registry.Activity.

// shortLine is a line about an ordinary call as it is written.
type shortLine struct {
	*registry.Activity
	Call  shortCall `json:"call"`
	Steps string    `json:"steps"` // state=ns, separated by spaces; all but the first count from the one before
}

// shortCall hides fields of the record, which are then left out.
type shortCall struct {
	*registry.Record
	Tenant    string    `json:"tenant,omitempty"`
	SessionID string    `json:"session_id,omitempty"`
	DeviceID  string    `json:"device_id,omitempty"`
	Pod       string    `json:"pod,omitempty"`
	Mode      string    `json:"mode,omitempty"` // empty: sync
	Timeline  *struct{} `json:"timeline,omitempty"`
	Deadline  *struct{} `json:"deadline,omitempty"`
}

// storedActivity is a line, short or not, as it is read.
type storedActivity struct {
	registry.Activity
	Steps string `json:"steps"`
}

// activityLine returns what encoding/json writes as a line of the feed. The output of the tool is not in it.
func activityLine(a *registry.Activity) any {
	if a.Call == nil {
		return a
	}
	call := a.Call.Summary()
	if !isOrdinary(a) {
		line := *a
		line.Call = &call
		return line
	}
	line := shortLine{Activity: a, Call: shortCall{Record: &call}, Steps: string(appendSteps(nil, call.Timeline))}
	if call.Mode != registry.ModeSync {
		line.Call.Mode = call.Mode
	}
	return line
}

// isOrdinary reports whether the line is about a call of which restore knows what a short line leaves out.
func isOrdinary(a *registry.Activity) bool {
	c := a.Call
	return c.Tenant == a.Tenant && c.SessionID == a.SessionID && c.DeviceID == a.DeviceID && c.Pod == a.Pod &&
		c.Mode != "" && c.Deadline.IsZero() && len(c.Timeline) > 0 && !slices.ContainsFunc(c.Timeline, isOdd)
}

// isOdd reports whether a step cannot be written in a short line. No pod of ours takes such a step.
func isOdd(s registry.Step) bool {
	return s.At.Location() != time.UTC || !time.Unix(0, s.At.UnixNano()).Equal(s.At) ||
		strings.ContainsAny(string(s.State), " =")
}

// appendSteps appends a timeline, whose states are words.
func appendSteps(b []byte, steps []registry.Step) []byte {
	before := int64(0)
	for i, s := range steps {
		if i > 0 {
			b = append(b, ' ')
		}
		at := s.At.UnixNano()
		b = strconv.AppendInt(append(append(b, s.State...), '='), at-before, 10)
		before = at
	}
	return b
}

// parseActivity reads a line of a tenant's feed.
func parseActivity(text []byte, id, tenant string) (registry.Activity, error) {
	var line storedActivity
	if err := json.Unmarshal(text, &line); err != nil {
		return registry.Activity{}, err
	}
	line.ID, line.Tenant = id, tenant
	if line.Call != nil {
		line.Call.Brief = line.Call.Result != nil // as Summary has left it
	}
	if line.Steps != "" && line.Call != nil {
		if err := line.restore(); err != nil {
			return registry.Activity{}, err
		}
	}
	return line.Activity, nil
}

// restore fills in what a line about an ordinary call leaves out.
func (a *storedActivity) restore() error {
	c := a.Call
	c.Tenant, c.SessionID, c.DeviceID, c.Pod = a.Tenant, a.SessionID, a.DeviceID, a.Pod
	if c.Mode == "" {
		c.Mode = registry.ModeSync
	}
	at := int64(0)
	for word := range strings.FieldsSeq(a.Steps) {
		state, text, _ := strings.Cut(word, "=")
		passed, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return fmt.Errorf("steps: %w", err)
		}
		at += passed
		c.Timeline = append(c.Timeline, registry.Step{State: registry.State(state), At: time.Unix(0, at).UTC()})
	}
	return nil
}
