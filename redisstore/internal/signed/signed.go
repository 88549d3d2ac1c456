// Package signed authenticates what pods send each other through Redis, with a secret that Redis does not have. A
// message is signed for one pod and one moment, so a client of Redis can neither invent messages nor repeat them.
//
// It imports nothing of this module.
package signed

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"hash"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// Window is how far the clocks of two pods, and the way of a message, may be apart. Older messages are rejected.
const Window = 30 * time.Second

// Options configures a Signer.
type Options struct {
	// Secrets are the secrets of the fleet. The first signs, all are accepted. None: nothing is signed or checked.
	Secrets []string
	// Optional accepts messages without a signature, until all pods have a secret. Wrong signatures are rejected.
	Optional bool
	Log      *slog.Logger     // default: discard
	Now      func() time.Time // default: time.Now
}

// Reason is why a message was rejected.
type Reason int

// The reasons.
const (
	Unsigned Reason = iota // it has no signature
	Forged                 // its signature is wrong, of another secret, or for another pod
	Stale                  // it is older or newer than Window
	Repeated               // it was received before
	reasons
)

// String returns the reason as metrics show it.
func (r Reason) String() string {
	return [...]string{"unsigned", "forged", "stale", "repeated"}[r]
}

// errRejected is the error for a message that is not taken.
var errRejected = errors.New("a message without a valid signature of the fleet")

// Signer signs and checks messages. Without secrets it passes everything on, and does not check signatures of pods that
// have secrets. It is safe for concurrent use.
type Signer struct {
	keys     []*key
	optional bool
	log      *slog.Logger
	now      func() time.Time
	source   uint64 // random, so that nonces of all pods differ
	sent     atomic.Uint64
	seen     seen
	rejected [reasons]atomic.Int64
	logged   atomic.Int64 // time of the last line, in Unix seconds
}

// New returns a Signer.
func New(o Options) *Signer {
	s := &Signer{optional: o.Optional, log: o.Log, now: o.Now}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.now == nil {
		s.now = time.Now
	}
	for _, secret := range o.Secrets {
		s.keys = append(s.keys, newKey(secret))
	}
	var random [8]byte
	_, _ = rand.Read(random[:]) // never fails
	s.source = binary.LittleEndian.Uint64(random[:])
	return s
}

// A signed message is
//
//	mark, tag (16 bytes), time (8, Unix ms), nonce (8), message
//
// The tag is the start of an HMAC-SHA256 of the purpose, the addressee, and all that follows the tag.
const (
	mark     = 'S' // no kind of message of package bus
	tagSize  = 16
	sizeTag  = 1 + tagSize
	Overhead = sizeTag + 16 // bytes that a signature adds to a message
)

// Purposes of signatures.
const (
	toPod  = "message to pod "
	logged = "log entry "
)

// Sign returns a message for a pod with its signature. Sign it again for each attempt to send it.
func (s *Signer) Sign(pod string, message []byte) []byte {
	if len(s.keys) == 0 {
		return message
	}
	b := make([]byte, Overhead, Overhead+len(message))
	b[0] = mark
	binary.BigEndian.PutUint64(b[sizeTag:], uint64(s.now().UnixMilli()))
	binary.BigEndian.PutUint64(b[sizeTag+8:], s.source+s.sent.Add(1))
	b = append(b, message...)
	tag := s.keys[0].tag(toPod, pod, b[sizeTag:], "")
	copy(b[1:], tag[:])
	return b
}

// Open returns the message that was signed for a pod. It rejects each signed message after the first time.
func (s *Signer) Open(pod, text string) (string, error) {
	isSigned := len(text) >= Overhead && text[0] == mark
	switch {
	case len(s.keys) == 0 && isSigned:
		return text[Overhead:], nil
	case len(s.keys) == 0 || !isSigned && s.optional:
		return text, nil
	case !isSigned:
		return "", s.reject(Unsigned)
	}
	b := []byte(text[1:Overhead])
	if !s.valid(toPod, pod, b[:tagSize], b[tagSize:], text[Overhead:]) {
		return "", s.reject(Forged)
	}
	at, now := time.UnixMilli(int64(binary.BigEndian.Uint64(b[tagSize:]))), s.now()
	if at.Before(now.Add(-Window)) || at.After(now.Add(Window)) {
		return "", s.reject(Stale)
	}
	if !s.seen.first(binary.BigEndian.Uint64(b), at, now) {
		return "", s.reject(Repeated)
	}
	return text[Overhead:], nil
}

// SignEntry returns the signature of an entry of a log that all pods read; empty without secrets.
func (s *Signer) SignEntry(fields ...string) string {
	if len(s.keys) == 0 {
		return ""
	}
	var b [tagSize + 8]byte
	binary.BigEndian.PutUint64(b[tagSize:], uint64(s.now().UnixMilli()))
	tag := s.keys[0].tag(logged, "", b[tagSize:], joined(fields))
	copy(b[:], tag[:])
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// OpenEntry reports whether an entry that was written at a time has a valid signature. An entry may be read many times.
// Entries older than Window are not counted and logged: they may be from before there was a secret.
func (s *Signer) OpenEntry(at time.Time, signature string, fields ...string) bool {
	if len(s.keys) == 0 || signature == "" && s.optional {
		return true
	}
	b, err := base64.RawURLEncoding.DecodeString(signature)
	reason := Forged
	switch {
	case signature == "":
		reason = Unsigned
	case err != nil || len(b) != tagSize+8 || !s.valid(logged, "", b[:tagSize], b[tagSize:], joined(fields)):
	case time.UnixMilli(int64(binary.BigEndian.Uint64(b[tagSize:]))).Sub(at).Abs() > Window:
		reason = Stale
	default:
		return true
	}
	if s.now().Sub(at) < Window {
		_ = s.reject(reason)
	}
	return false
}

// joined returns one text for each list of fields.
func joined(fields []string) string {
	var b []byte
	for _, field := range fields {
		b = append(binary.AppendUvarint(b, uint64(len(field))), field...)
	}
	return string(b)
}

func (s *Signer) valid(purpose, to string, tag, head []byte, body string) bool {
	for _, k := range s.keys {
		if want := k.tag(purpose, to, head, body); subtle.ConstantTimeCompare(want[:], tag) == 1 {
			return true
		}
	}
	return false
}

// logEvery is the time between two lines about rejected messages.
const logEvery = 10 * time.Second

func (s *Signer) reject(why Reason) error {
	s.rejected[why].Add(1)
	now, last := s.now().Unix(), s.logged.Load()
	if now-last >= int64(logEvery/time.Second) && s.logged.CompareAndSwap(last, now) {
		s.log.Error("message in Redis rejected: another client writes there, or a pod has another "+
			"FARHAND_FLEET_SECRET or a wrong clock", "reason", why.String(), "rejected_so_far", s.total())
	}
	return errRejected
}

func (s *Signer) total() (n int64) {
	for i := range s.rejected {
		n += s.rejected[i].Load()
	}
	return n
}

// Rejected returns how many messages were rejected, by reason.
func (s *Signer) Rejected() map[string]int64 {
	counts := make(map[string]int64, reasons)
	for i := range s.rejected {
		counts[Reason(i).String()] = s.rejected[i].Load()
	}
	return counts
}

// key is a secret. Each goroutine takes a state of its HMAC, because making one hashes the secret twice.
type key struct{ states sync.Pool }

type state struct {
	hmac hash.Hash
	text []byte // memory to reuse
}

func newKey(secret string) *key {
	own := []byte(secret)
	return &key{states: sync.Pool{New: func() any {
		return &state{hmac: hmac.New(sha256.New, own), text: make([]byte, 0, 1024)}
	}}}
}

// tag signs a message of two parts.
func (k *key) tag(purpose, to string, head []byte, body string) (tag [tagSize]byte) {
	s := k.states.Get().(*state)
	defer k.states.Put(s)
	s.hmac.Reset()
	text := append(append(append(s.text[:0], "farhand 1 "...), purpose...), to...)
	s.hmac.Write(append(text, 0)) // no pod has a zero in its name
	s.hmac.Write(head)
	for len(body) > 0 { // part by part, without a copy of the whole
		part := append(s.text[:0], body[:min(len(body), cap(s.text))]...)
		s.hmac.Write(part)
		body = body[len(part):]
	}
	copy(tag[:], s.hmac.Sum(s.text[:0]))
	return tag
}

// maxSeen is how many messages a generation has at most: about 20 MB. A pod reads fewer within 2*Window.
const maxSeen = 1 << 20

// seen has the messages received within 2*Window, in two generations that alternate: a message is valid at most that
// long after it was first received. A full generation ends early. Then messages that were sent before the oldest known
// one are rejected, because they may have been forgotten.
type seen struct {
	mu      sync.Mutex
	tags    [2]map[uint64]struct{}
	newest  [2]time.Time // when the newest message of each generation was sent
	began   time.Time    // of the current generation, the first of both
	floor   time.Time    // messages that were sent until then are rejected
	maximum int          // of a generation; zero: maxSeen
}

// first reports whether a message, sent at a time, is received for the first time.
func (s *seen) first(tag uint64, at, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	limit := s.maximum
	if limit == 0 {
		limit = maxSeen
	}
	full := len(s.tags[0]) >= limit
	if full || now.Sub(s.began) >= 2*Window {
		if full {
			s.floor = s.newest[1]
		}
		s.tags = [2]map[uint64]struct{}{make(map[uint64]struct{}), s.tags[0]}
		s.newest, s.began = [2]time.Time{{}, s.newest[0]}, now
	}
	for _, tags := range s.tags {
		if _, ok := tags[tag]; ok {
			return false
		}
	}
	if !at.After(s.floor) {
		return false
	}
	s.tags[0][tag] = struct{}{}
	if at.After(s.newest[0]) {
		s.newest[0] = at
	}
	return true
}
