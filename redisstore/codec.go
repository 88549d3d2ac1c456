package redisstore

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/farhand/farhand/redisstore/internal/redisconn"
	"github.com/farhand/farhand/registry"
)

// Fields of a session hash. Each name is one letter, because it is stored with every session. The scripts write the
// first three themselves.
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
	fieldBound      = "o" // 1: the credential sets the device
	fieldHeirs      = "r" // expiry in ms, then proofs, separated by spaces; claims write it
	fieldForeground = "y" // 1: in the foreground, 0: in the background
	fieldForm       = redisconn.FormField
	fieldPulse      = "e" // time of the last pong and its round trip, in ms, separated by a space; refreshes write it
)

// attribute is a field of a session hash that the session itself sets.
type attribute struct{ name, value string }

// attributesOf returns the attributes of a session in the order of their digest. Some are empty.
func attributesOf(s registry.Session) [13]attribute {
	return [...]attribute{
		{fieldName, s.Name}, {fieldDeviceID, s.DeviceID}, {fieldDeviceName, s.DeviceName},
		{fieldUserID, s.UserID}, {fieldPlatform, s.Platform},
		{fieldLabels, jsonText(s.Labels, len(s.Labels))}, {fieldCaps, jsonText(s.Capabilities, len(s.Capabilities))},
		{fieldAsk, flag(s.AskFirst())}, {fieldProofs, strings.Join(s.Proofs, " ")},
		{fieldSince, timeMillis(s.Since)}, {fieldBound, flag(s.Bound)}, {fieldHeirs, heirsText(s)},
		{fieldForeground, foregroundText(s.Foreground)},
	}
}

// attributeFields returns the field and value pairs of a session's attributes, without empty ones. A digest of all
// attributes except the heirs comes first.
func attributeFields(s registry.Session) []any {
	all := attributesOf(s)
	fields := make([]any, 0, 2+2*len(all))
	fields = append(fields, fieldDigest, string(appendDigest(nil, all)))
	for _, a := range all {
		if a.value != "" {
			fields = append(fields, a.name, a.value)
		}
	}
	return fields
}

// appendDigest appends the digest of a session's attributes.
func appendDigest(b []byte, all [13]attribute) []byte {
	var room [1 << 10]byte // on the stack: every refresh computes it for every session
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

// jsonText encodes maps and slices of strings, which cannot fail. Empty ones become the empty string.
func jsonText(v any, n int) string {
	if n == 0 {
		return ""
	}
	b, _ := json.Marshal(v)
	return string(b)
}

func parseSession(key registry.Key, h map[string]string) (registry.Session, error) {
	s := registry.Session{
		Key: key, Pod: h[fieldPod], Name: h[fieldName], DeviceID: h[fieldDeviceID], DeviceName: h[fieldDeviceName],
		UserID: h[fieldUserID], Platform: h[fieldPlatform],
	}
	var err error
	if s.Generation, err = strconv.ParseInt(h[fieldGeneration], 10, 64); err != nil {
		return s, registry.StoreUnavailable("read the generation of a session", err)
	}
	s.ConnectedAt = fromMillis(h[fieldConnected])
	err = errors.Join(decodeField(h, fieldLabels, &s.Labels), decodeField(h, fieldCaps, &s.Capabilities))
	if err != nil {
		return s, registry.StoreUnavailable("read the hash of a session", err)
	}
	s.Since, s.Bound = fromMillis(h[fieldSince]), h[fieldBound] != ""
	s.Proofs, s.Foreground = words(h[fieldProofs]), parseForeground(h[fieldForeground])
	s.ReclaimableBy, s.ReclaimableUntil = parseHeirs(h[fieldHeirs])
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

// appendPulse appends a pulse in the form of its field. It appends nothing if the pulse is zero.
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

// parsePulse is the inverse of appendPulse. Missing or unreadable parts are zero. Pods of older releases do not write
// them.
func parsePulse(text string) registry.Pulse {
	at, roundTrip, _ := strings.Cut(text, " ")
	p := registry.Pulse{At: fromMillis(at)}
	if ms, err := strconv.ParseInt(roundTrip, 10, 64); err == nil && !p.At.IsZero() && ms > 0 {
		p.RoundTrip = time.Duration(ms) * time.Millisecond
	}
	return p
}

func heirsText(s registry.Session) string {
	if len(s.ReclaimableBy) == 0 {
		return ""
	}
	return timeMillis(s.ReclaimableUntil) + " " + strings.Join(s.ReclaimableBy, " ")
}

func parseHeirs(text string) ([]string, time.Time) {
	until, proofs, _ := strings.Cut(text, " ")
	if proofs == "" {
		return nil, time.Time{}
	}
	return words(proofs), fromMillis(until)
}

func foregroundText(foreground *bool) string {
	switch {
	case foreground == nil:
		return ""
	case *foreground:
		return "1"
	default:
		return "0"
	}
}

func parseForeground(text string) *bool {
	if text == "" {
		return nil
	}
	return new(text == "1")
}

// words splits a text at its spaces. An empty text yields nil, as before it was stored.
func words(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, " ")
}

// parseGone reads what is stored of a released session: its pod and its identity. It returns nil if there is nothing.
func parseGone(key registry.Key, text string) *registry.Session {
	lines := strings.Split(text, "\n")
	_, pod, _ := strings.Cut(lines[0], " ")
	if pod == "" {
		return nil
	}
	s := &registry.Session{Key: key, Pod: pod}
	if len(lines) >= 8 {
		s.ConnectedAt, s.Since = fromMillis(lines[6]), fromMillis(lines[7])
		s.DeviceID, s.Proofs = lines[2], words(lines[3])
		s.ReclaimableBy, s.ReclaimableUntil = parseHeirs(lines[4])
		_ = json.Unmarshal([]byte(lines[5]), &s.Capabilities) // none, if it is empty
	}
	if len(lines) >= 10 {
		s.UserID, s.Bound = lines[8], lines[9] != ""
	}
	return s
}

func fromMillis(text string) time.Time {
	ms, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

// timeMillis is the inverse of fromMillis. It returns an empty text if the time is not known.
func timeMillis(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return strconv.FormatInt(t.UnixMilli(), 10)
}

// found is what Redis has under one session key.
type found struct {
	session registry.Session
	exists  bool
	gone    bool  // meaningful only if it does not exist; then session has its owner
	err     error // why it cannot be read, though there is something; then nothing else is known
	set     toolSet
	pulse   registry.Pulse
}

func (s *Store) Entry(ctx context.Context, key registry.Key) (registry.Entry, error) {
	list, err := s.read(ctx, []registry.Key{key})
	if err != nil {
		return registry.Entry{}, err
	}
	f := list[0]
	if f.err != nil {
		return registry.Entry{}, f.err
	}
	if !f.exists && !f.gone {
		if err := s.Whole(ctx); err != nil {
			return registry.Entry{}, err
		}
		return registry.Entry{}, registry.UnknownSession()
	}
	entries, err := s.entries(ctx, key.Tenant, list)
	if err != nil {
		return registry.Entry{}, err
	}
	if len(entries) == 0 {
		if f.exists { // its pod has no lease; all leases may have been lost since the session was read
			if err := s.Whole(ctx); err != nil {
				return registry.Entry{}, err
			}
		}
		return registry.Entry{Session: f.session.Away()}, registry.NotConnected()
	}
	return entries[0], nil
}

// read reads sessions with their tool sets, in the order of the keys. All keys must be of one tenant.
func (s *Store) read(ctx context.Context, keys []registry.Key) ([]found, error) {
	hashes, gone, err := s.readHashes(ctx, keys)
	if err != nil {
		return nil, err
	}
	list, sets := make([]found, len(keys)), make(map[string]bool)
	for i, hash := range hashes {
		err := errors.Join(s.conn.Forms().Check(redisconn.FormSession, hash[fieldForm]),
			s.conn.Forms().CheckText(redisconn.FormSession, gone[i]))
		if err != nil {
			list[i] = found{session: registry.Session{Key: keys[i]}, err: err}
			continue
		}
		if len(hash) == 0 {
			list[i] = found{gone: gone[i] != "", session: registry.Session{Key: keys[i]}}
			if was := parseGone(keys[i], gone[i]); was != nil {
				list[i].session = *was
			}
			continue
		}
		session, err := parseSession(keys[i], hash)
		if err != nil {
			s.log.Warn("session not readable; it is not listed", "session", keys[i].Session, "error", err)
			list[i] = found{session: registry.Session{Key: keys[i]}, err: err}
			continue
		}
		list[i] = found{
			session: session, exists: true, set: toolSet{hash: hash[fieldSet]}, pulse: parsePulse(hash[fieldPulse]),
		}
		if set := hash[fieldSet]; set != "" {
			sets[set] = true
		}
	}
	known, err := s.fetchSets(ctx, keys[0].Tenant, sets)
	for i := range list {
		if set, ok := known[list[i].set.hash]; ok {
			list[i].set = set
		}
	}
	return list, err
}

// readHashes reads the hashes of sessions, and the disconnect marks of sessions without a hash. It uses plain commands,
// which take Redis a third of the time of a script. A session with neither may have been claimed or released between
// the two commands, so a script reads it again.
func (s *Store) readHashes(ctx context.Context, keys []registry.Key) ([]map[string]string, []string, error) {
	pipe := s.conn.Pipeline()
	reads, marks := make([]*redisconn.Command, len(keys)), make([]*redisconn.Command, len(keys))
	for i, key := range keys {
		reads[i], marks[i] = pipe.Do("HGETALL", sessionKey(key)), pipe.Do("GET", goneKey(key))
	}
	if err := pipe.Exec(ctx); err != nil {
		return nil, nil, err
	}
	hashes, gone := make([]map[string]string, len(keys)), make([]string, len(keys))
	again := s.conn.Pipeline()
	doubtful := make(map[int]*redisconn.Command)
	for i, key := range keys {
		hashes[i] = reads[i].Map()
		gone[i], _ = marks[i].Text()
		if len(hashes[i]) == 0 && gone[i] == "" {
			doubtful[i] = again.Eval(scriptEntry, sessionKeys(key))
		}
	}
	if len(doubtful) == 0 {
		return hashes, gone, nil
	}
	if err := again.Exec(ctx); err != nil {
		return nil, nil, err
	}
	for i, c := range doubtful {
		answer := c.List()
		if len(answer) != 2 {
			return nil, nil, c.ErrShape()
		}
		hashes[i], gone[i] = redisconn.Map(answer[0]), redisconn.Text(answer[1])
	}
	return hashes, gone, nil
}

// entries turns found sessions of one tenant into entries. It leaves out sessions of pods that are not live.
func (s *Store) entries(ctx context.Context, tenant string, list []found) ([]registry.Entry, error) {
	live, err := s.livePods(ctx, list)
	if err != nil {
		return nil, err
	}
	wanted := make(map[string]bool)
	for _, f := range list {
		if f.exists && live[f.session.Pod] {
			for _, t := range f.set.tools {
				wanted[t.hash] = true
			}
		}
	}
	specs, err := s.fetchSpecs(ctx, tenant, wanted)
	if err != nil {
		return nil, err
	}
	entries := make([]registry.Entry, 0, len(list))
	for _, f := range list {
		if f.exists && live[f.session.Pod] {
			entries = append(entries, registry.Entry{Session: f.session, Tools: f.tools(specs), Pulse: f.pulse})
		}
	}
	return entries, nil
}

func (s *Store) livePods(ctx context.Context, list []found) (map[string]bool, error) {
	var pods []string
	for _, f := range list {
		if f.exists {
			pods = append(pods, f.session.Pod)
		}
	}
	if len(pods) == 0 {
		return nil, nil
	}
	return s.live.has(ctx, pods)
}

func (f found) tools(specs map[string]registry.ToolSpec) []registry.ToolSpec {
	tools := make([]registry.ToolSpec, 0, len(f.set.tools))
	for _, t := range f.set.tools {
		if spec, ok := specs[t.hash]; ok {
			tools = append(tools, spec)
		}
	}
	return tools
}
