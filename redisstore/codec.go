package redisstore

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/farhand/farhand/registry"
)

// Fields of a session hash; one letter each, because they are stored with every session. The scripts
// write the first three themselves.
const (
	fieldPod        = "p"
	fieldGeneration = "g"
	fieldConnected  = "t" // ms
	fieldDigest     = "h"
	fieldSet        = "s" // of tools
	fieldName       = "n"
	fieldDeviceID   = "d"
	fieldDeviceName = "m"
	fieldUserID     = "u"
	fieldPlatform   = "f"
	fieldLabels     = "l" // JSON
	fieldCaps       = "c" // JSON
	fieldAsk        = "a" // 1: claims must ask the device first
	fieldProofs     = "k" // separated by spaces
	fieldSince      = "b" // ms
	fieldBound      = "o" // 1: the device is the credential's
	fieldHeirs      = "r" // until when, in ms, and proofs, separated by spaces; claims write it
	fieldPulse      = "e" // when the last pong came and its round trip, in ms, separated by a space; refreshes write it
)

// attribute is a field of a session hash that the session says about itself.
type attribute struct{ name, value string }

// attributesOf returns these fields in the order of their digest; some are empty.
func attributesOf(s registry.Session) [12]attribute {
	return [...]attribute{
		{fieldName, s.Name}, {fieldDeviceID, s.DeviceID}, {fieldDeviceName, s.DeviceName},
		{fieldUserID, s.UserID}, {fieldPlatform, s.Platform},
		{fieldLabels, jsonText(s.Labels, len(s.Labels))}, {fieldCaps, jsonText(s.Capabilities, len(s.Capabilities))},
		{fieldAsk, flag(s.AskFirst())}, {fieldProofs, strings.Join(s.Proofs, " ")},
		{fieldSince, timeMillis(s.Since)}, {fieldBound, flag(s.Bound)}, {fieldHeirs, heirsText(s)},
	}
}

// attributeFields returns the field and value pairs of what a session says about itself, empty ones left out, led
// by a digest of all of them but the heirs.
func attributeFields(s registry.Session) []any {
	all := attributesOf(s)
	fields := make([]any, 0, 2+2*len(all))
	fields = append(fields, fieldDigest, digestOf(all))
	for _, a := range all {
		if a.value != "" {
			fields = append(fields, a.name, a.value)
		}
	}
	return fields
}

// appendAttributeDigest appends the digest attributeFields would write.
func appendAttributeDigest(b []byte, s *registry.Session) []byte {
	return appendDigest(b, attributesOf(*s))
}

func digestOf(all [12]attribute) string { return string(appendDigest(nil, all)) }

func appendDigest(b []byte, all [12]attribute) []byte {
	var room [1 << 10]byte // on the stack: every session's is computed at every refresh
	text := room[:0]
	for _, a := range all {
		if a.value != "" && a.name != fieldHeirs { // claims write them, without knowing the digest
			text = append(append(text, a.name...), '=')
			text = append(strconv.AppendQuote(text, a.value), '\n')
		}
	}
	sum := sha256.Sum256(text)
	return base64.RawURLEncoding.AppendEncode(b, sum[:9])
}

// jsonText encodes maps and slices of strings, which cannot fail; empty ones become the empty string.
func jsonText(v any, n int) string {
	if n == 0 {
		return ""
	}
	b, _ := json.Marshal(v)
	return string(b)
}

// parseSession reads a session hash.
func parseSession(key registry.Key, h map[string]string) (registry.Session, error) {
	s := registry.Session{
		Key: key, Pod: h[fieldPod], Name: h[fieldName], DeviceID: h[fieldDeviceID], DeviceName: h[fieldDeviceName],
		UserID: h[fieldUserID], Platform: h[fieldPlatform],
	}
	var err error
	if s.Generation, err = strconv.ParseInt(h[fieldGeneration], 10, 64); err != nil {
		return s, fmt.Errorf("session hash: generation: %w", err)
	}
	s.ConnectedAt = fromMillis(h[fieldConnected])
	err = errors.Join(decodeField(h, fieldLabels, &s.Labels), decodeField(h, fieldCaps, &s.Capabilities))
	if err != nil {
		return s, fmt.Errorf("session hash: %w", err)
	}
	s.Since, s.Bound = fromMillis(h[fieldSince]), h[fieldBound] != ""
	s.Proofs = words(h[fieldProofs])
	s.Heirs, s.HeirsUntil = parseHeirs(h[fieldHeirs])
	return s, nil
}

// decodeField reads the JSON in a field of a hash, unless the field is empty.
func decodeField(h map[string]string, field string, v any) error {
	text := h[field]
	if text == "" {
		return nil
	}
	if err := json.Unmarshal([]byte(text), v); err != nil {
		return fmt.Errorf("%s: %w", field, err)
	}
	return nil
}

// appendPulse appends a pulse as its field has it: nothing if it is zero.
func appendPulse(b []byte, p registry.Pulse) []byte {
	if p.At.IsZero() {
		return b
	}
	b = strconv.AppendInt(b, p.At.UnixMilli(), 10)
	if p.RoundTrip > 0 {
		b = strconv.AppendInt(append(b, ' '), p.RoundTrip.Milliseconds(), 10)
	}
	return b
}

// parsePulse is the inverse of appendPulse. What is not there, as with pods of older releases, or not readable, is not
// known.
func parsePulse(text string) registry.Pulse {
	at, roundTrip, _ := strings.Cut(text, " ")
	p := registry.Pulse{At: fromMillis(at)}
	if ms, err := strconv.ParseInt(roundTrip, 10, 64); err == nil && !p.At.IsZero() && ms > 0 {
		p.RoundTrip = time.Duration(ms) * time.Millisecond
	}
	return p
}

func heirsText(s registry.Session) string {
	if len(s.Heirs) == 0 {
		return ""
	}
	return timeMillis(s.HeirsUntil) + " " + strings.Join(s.Heirs, " ")
}

func parseHeirs(text string) ([]string, time.Time) {
	until, proofs, _ := strings.Cut(text, " ")
	if proofs == "" {
		return nil, time.Time{}
	}
	return words(proofs), fromMillis(until)
}

// words splits a text at its spaces; an empty one is nil, as it was before it was stored.
func words(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, " ")
}

// parseGone reads what a released session is remembered by: the pod it was on, and who it was.
func parseGone(key registry.Key, text string) (pod string, s *registry.Session) {
	lines := strings.Split(text, "\n")
	if _, pod, _ = strings.Cut(lines[0], " "); pod == "" {
		return "", nil
	}
	s = &registry.Session{Key: key, Pod: pod}
	if len(lines) >= 8 {
		s.ConnectedAt, s.Since = fromMillis(lines[6]), fromMillis(lines[7])
		s.DeviceID, s.Proofs = lines[2], words(lines[3])
		s.Heirs, s.HeirsUntil = parseHeirs(lines[4])
		_ = json.Unmarshal([]byte(lines[5]), &s.Capabilities) // none, if it is empty
	}
	if len(lines) >= 10 {
		s.UserID, s.Bound = lines[8], lines[9] != ""
	}
	return pod, s
}

func fromMillis(text string) time.Time {
	ms, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

// timeMillis is the inverse of fromMillis: empty when the time is not known.
func timeMillis(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return strconv.FormatInt(t.UnixMilli(), 10)
}

// encodeJSON is json.Marshal without HTML escaping: schemas and arguments keep their bytes.
func encodeJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

func decodeSpec(text string) (registry.ToolSpec, error) {
	var t registry.ToolSpec
	if err := json.NewDecoder(strings.NewReader(text)).Decode(&t); err != nil {
		return t, fmt.Errorf("specification: %w", err)
	}
	return t.Hashed(), nil
}
