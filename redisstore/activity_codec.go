package redisstore

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/farhand/farhand/internal/strictjson"
	"github.com/farhand/farhand/registry"
)

// Every call leaves a line in the feed, so the lines about ordinary calls are written without reflection, and what the
// reader of a line knows already, or what is so of nearly every call, is left out: tenant, session, device, pod and
// mode of the call, and a deadline it does not have. The timeline is one text under keySteps, which is what such a line
// is known by. Other lines are the JSON of registry.Activity, as all of them were once: those are read as ever, and who
// knows that JSON alone reads of a short line what is in it.
const keySteps = "steps"

// storedActivity is a line as it is read.
type storedActivity struct {
	registry.Activity
	Steps string `json:"steps"` // state=ns, separated by spaces; all but the first count from the one before
}

// appendActivity appends a line of the feed.
func appendActivity(b []byte, a *registry.Activity) ([]byte, error) {
	if isOrdinary(a) {
		return appendCall(b, a), nil
	}
	told := *a
	if a.Call != nil {
		call := a.Call.Summary()
		told.Call = &call
	}
	text, err := encodeJSON(told)
	return append(b, text...), err
}

// isOrdinary reports whether the line is about a call of which restore knows what appendCall leaves out.
func isOrdinary(a *registry.Activity) bool {
	c := a.Call
	if c == nil || a.Turn != nil || len(a.Tools) > 0 || c.Err != nil || c.RequestDigest != "" || c.IdempotencyKey != "" ||
		c.Tenant != a.Tenant || c.SessionID != a.SessionID || c.DeviceID != a.DeviceID || c.Pod != a.Pod || c.Mode == "" ||
		!c.Deadline.IsZero() || len(c.Timeline) == 0 {
		return false
	}
	for _, s := range c.Timeline {
		if s.At.Location() != time.UTC || !time.Unix(0, s.At.UnixNano()).Equal(s.At) || !isWord(s.State) {
			return false
		}
	}
	return true
}

// isWord reports whether a state can stand in steps as it is, like all there are.
func isWord(s registry.State) bool {
	for i := range len(s) {
		if c := s[i]; (c < 'a' || c > 'z') && c != '_' {
			return false
		}
	}
	return true
}

// appendCall appends a line about an ordinary call: not what its tool returned.
func appendCall(b []byte, a *registry.Activity) []byte {
	b = strictjson.AppendString(append(b, `{"type":`...), a.Type)
	b = append(b, `,"at":"`...)
	b = append(a.At.AppendFormat(b, time.RFC3339Nano), '"')
	b = strictjson.AppendString(append(b, `,"pod":`...), a.Pod)
	b = appendOptional(b, `,"session_id":`, a.SessionID)
	b = appendOptional(b, `,"device_id":`, a.DeviceID)
	b = appendOptional(b, `,"reason":`, a.Reason)
	r := a.Call
	b = strictjson.AppendString(append(b, `,"call":{"call_id":`...), r.CallID)
	b = strictjson.AppendString(append(b, `,"tool":`...), r.Tool)
	b = appendOptional(b, `,"user_id":`, r.UserID)
	b = appendOptional(b, `,"args_digest":`, r.ArgsDigest)
	b = appendOptional(b, `,"source":`, r.Source)
	b = appendOptional(b, `,"turn_id":`, r.Turn)
	if r.Mode != registry.ModeSync {
		b = strictjson.AppendString(append(b, `,"mode":`...), r.Mode)
	}
	b = appendOptional(b, `,"owner":`, r.Owner)
	b = strictjson.AppendString(append(b, `,"state":`...), string(r.State))
	b = strictjson.AppendString(append(b, `,"dispatched":`...), string(r.Dispatched))
	if r.Late {
		b = append(b, `,"late":true`...)
	}
	b = strconv.AppendInt(append(b, `,"timeout_ms":`...), r.TimeoutMS, 10)
	if r.Result != nil {
		b = strconv.AppendBool(append(b, `,"result":{"success":`...), r.Result.Success)
		b = append(appendOptional(b, `,"error":`, r.Result.Error), '}')
	}
	b = append(b, `},"`+keySteps+`":"`...)
	return append(appendSteps(b, r.Timeline), `"}`...)
}

func appendOptional(b []byte, name, value string) []byte {
	if value == "" {
		return b
	}
	return strictjson.AppendString(append(b, name...), value)
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
