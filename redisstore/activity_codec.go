package redisstore

import (
	"strconv"
	"time"

	"github.com/farhand/farhand/registry"
)

// activityOverhead is about how many bytes a line about a call has.
const activityOverhead = 640

// appendActivity appends a line of the feed. Every call has one, so the lines about ordinary calls are written without
// reflection: the same JSON, at a third of the price. What else there is to tell is rare.
func appendActivity(b []byte, a registry.Activity) ([]byte, error) {
	if a.Call == nil || a.Turn != nil || len(a.Tools) > 0 || a.Call.Err != nil || a.Call.RequestDigest != "" || a.Call.IdempotencyKey != "" {
		if a.Call != nil {
			call := a.Call.Summary()
			a.Call = &call
		}
		text, err := encodeJSON(a)
		return append(b, text...), err
	}
	b = registry.AppendJSONString(append(b, `{"type":`...), a.Type)
	b = appendTime(append(b, `,"at":`...), a.At)
	b = registry.AppendJSONString(append(b, `,"pod":`...), a.Pod)
	b = appendOptional(b, `,"session_id":`, a.SessionID)
	b = appendOptional(b, `,"device_id":`, a.DeviceID)
	b = appendOptional(b, `,"reason":`, a.Reason)
	b = appendCall(append(b, `,"call":`...), a.Call)
	return append(b, '}'), nil
}

// appendCall appends what the feed tells of a call without error and key: not what its tool returned.
func appendCall(b []byte, r *registry.Record) []byte {
	b = registry.AppendJSONString(append(b, `{"call_id":`...), r.CallID)
	b = registry.AppendJSONString(append(b, `,"tenant":`...), r.Tenant)
	b = registry.AppendJSONString(append(b, `,"tool":`...), r.Tool)
	b = appendOptional(b, `,"session_id":`, r.SessionID)
	b = appendOptional(b, `,"device_id":`, r.DeviceID)
	b = appendOptional(b, `,"user_id":`, r.UserID)
	b = appendOptional(b, `,"args_digest":`, r.ArgsDigest)
	b = appendOptional(b, `,"source":`, r.Source)
	b = appendOptional(b, `,"turn_id":`, r.Turn)
	b = registry.AppendJSONString(append(b, `,"mode":`...), r.Mode)
	b = registry.AppendJSONString(append(b, `,"pod":`...), r.Pod)
	b = appendOptional(b, `,"owner":`, r.Owner)
	b = registry.AppendJSONString(append(b, `,"state":`...), string(r.State))
	b = registry.AppendJSONString(append(b, `,"dispatched":`...), string(r.Dispatched))
	if r.Late {
		b = append(b, `,"late":true`...)
	}
	b = appendTimeline(append(b, `,"timeline":`...), r.Timeline)
	b = strconv.AppendInt(append(b, `,"timeout_ms":`...), r.TimeoutMS, 10)
	b = appendTime(append(b, `,"deadline":`...), r.Deadline)
	if r.Result != nil {
		b = strconv.AppendBool(append(b, `,"result":{"success":`...), r.Result.Success)
		b = append(b, `,"output":""`...)
		b = append(appendOptional(b, `,"error":`, r.Result.Error), '}')
	}
	return append(b, '}')
}

func appendTimeline(b []byte, steps []registry.Step) []byte {
	if steps == nil {
		return append(b, "null"...)
	}
	b = append(b, '[')
	for i, s := range steps {
		if i > 0 {
			b = append(b, ',')
		}
		b = registry.AppendJSONString(append(b, `{"state":`...), string(s.State))
		b = append(appendTime(append(b, `,"at":`...), s.At), '}')
	}
	return append(b, ']')
}

func appendOptional(b []byte, name, value string) []byte {
	if value == "" {
		return b
	}
	return registry.AppendJSONString(append(b, name...), value)
}

// appendTime appends a time as encoding/json writes it.
func appendTime(b []byte, t time.Time) []byte {
	b = append(b, '"')
	b = t.AppendFormat(b, time.RFC3339Nano)
	return append(b, '"')
}
