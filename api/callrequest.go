package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"strconv"
	"time"

	"github.com/farhand/farhand/internal/strictjson"
	"github.com/farhand/farhand/registry"
)

// callRequest is the body of a call.
type callRequest struct {
	args     registry.JSON // exactly as sent; none when absent
	targeted bool          // a target was given
	target   registry.Target
	timeout  time.Duration // zero when absent
	sel      registry.Select
	async    bool
	key      string // of idempotency; empty when absent
}

// parseCall reads the body of a call. An empty body means {}.
func parseCall(body []byte) (callRequest, error) {
	var r callRequest
	if len(bytes.TrimSpace(body)) == 0 {
		return r, nil
	}
	fields, err := readBodyObject(body, "args", "target", "timeout_ms", "mode", "idempotency_key", "select")
	if err != nil {
		return r, err
	}
	for _, f := range fields {
		if err := r.readField(f); err != nil {
			return r, err
		}
	}
	return r, nil
}

// readField reads one field of the body.
func (r *callRequest) readField(f strictjson.Member) (err error) {
	text := f.Value
	switch string(f.Name) {
	case "args":
		return r.readArgs(f.Checked())
	case "target":
		return r.readTarget(text)
	case "timeout_ms":
		return r.readTimeout(text)
	case "mode":
		return r.readMode(text)
	case "idempotency_key":
		r.key, err = readString(text, "idempotency_key")
	case "select":
		r.sel, err = readEither(text, "select", registry.SelectAny, registry.SelectNewest)
	}
	return err // readBodyObject refuses all other names
}

func (r *callRequest) readArgs(args registry.JSON) error {
	if !args.IsObject() {
		return wrongType("args", "a JSON object")
	}
	r.args = args
	return nil
}

func (r *callRequest) readTarget(text json.RawMessage) error {
	fields, err := readObject(text, "target", "session_id", "device_id", "user_id", "labels")
	if err != nil {
		return err
	}
	r.targeted = true
	for name, into := range map[string]*string{
		"session_id": &r.target.SessionID, "device_id": &r.target.DeviceID, "user_id": &r.target.UserID,
	} {
		if text, ok := fields.get(name); ok {
			if *into, err = readString(text, "target."+name); err != nil {
				return err
			}
		}
	}
	if text, ok := fields.get("labels"); ok {
		r.target.Labels, err = readLabels(text)
	}
	return err
}

func readLabels(text json.RawMessage) (map[string]string, error) {
	var fields map[string]json.RawMessage
	if json.Unmarshal(text, &fields) != nil || fields == nil {
		return nil, wrongType("target.labels", "a JSON object")
	}
	labels := make(map[string]string, len(fields))
	for key, value := range fields {
		var s string
		if value[0] != '"' || json.Unmarshal(value, &s) != nil {
			return nil, wrongType("target.labels."+key, "a string")
		}
		labels[key] = s // an empty value matches a label that is present and empty
	}
	return labels, nil
}

// readTimeout accepts any whole number above zero. One that is too large for a duration means the longest allowed time.
func (r *callRequest) readTimeout(text json.RawMessage) error {
	ms, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil && !(errors.Is(err, strconv.ErrRange) && ms > 0) || ms <= 0 {
		return wrongType("timeout_ms", "a whole number of milliseconds above zero")
	}
	r.timeout = time.Duration(min(ms, math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
	return nil
}

func (r *callRequest) readMode(text json.RawMessage) error {
	mode, err := readEither(text, "mode", registry.ModeSync, registry.ModeAsync)
	r.async = mode == registry.ModeAsync
	return err
}

// readKeyHeader takes the key from the header Idempotency-Key. Two keys that differ are refused: whichever is taken, a
// repetition could run the tool twice.
func (r *callRequest) readKeyHeader(values []string) error {
	switch {
	case len(values) == 0:
		return nil
	case len(values) > 1 || values[0] == "":
		return registry.Errorf(registry.CodeInvalidRequest,
			"The header Idempotency-Key must be given once, and not be empty.")
	case r.key != "" && r.key != values[0]:
		return registry.Errorf(registry.CodeInvalidRequest,
			"The header Idempotency-Key and the field \"idempotency_key\" differ. Send one, or the same twice.")
	}
	r.key = values[0]
	return nil
}
