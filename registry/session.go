package registry

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/farhand/farhand/registry/textsafe"
)

// DefaultTenant is the tenant of identities without a tenant.
const DefaultTenant = "default"

// Capabilities that a device may declare in its connect frame. A device never gets a frame type that it did not
// declare.
const (
	CapabilityAck      = "ack"
	CapabilityProgress = "progress"
	CapabilityCancel   = "cancel"
	CapabilityDrain    = "drain"
	CapabilityResume   = "resume"
	CapabilityApproval = "approval"    // a person at the device can approve its calls
	CapabilityWake     = "wake"        // it registers how it is woken while it sleeps
	CapabilityPresence = "presence"    // it reports whether its app is in the foreground
	CapabilityTrace    = "traceparent" // it continues traces: tool_call_request has the field traceparent

	CapabilityResumeToken = "resume_token" // it keeps its resume token and presents it at every reconnect
)

const (
	maxAttributeLen = 256
	maxCapabilities = 32

	MaxLabels = 32 // of a session
)

// Formats of the two halves of a Key. IsName checks them, not a regular expression, because every call checks them.
// Apps built for ClawSeed choose ids like android:1 and user@host. No allowed character has a meaning for Redis (which
// gets the id percent-encoded), in the path of a URL, for a shell, in a log or in HTML. In the query of a URL, a plus
// sign must be percent-encoded.
const (
	sessionIDPattern = "[A-Za-z0-9][A-Za-z0-9._:@~+=-]{0,127}"
	sessionIDMarks   = "._:@~+=-"
	tenantPattern    = "[A-Za-z0-9][A-Za-z0-9_-]{0,63}"
)

// IsName reports whether s has at most limit bytes, starts with a letter or digit, and continues with letters, digits
// or the bytes of more.
func IsName(s string, limit int, more string) bool {
	if s == "" || len(s) > limit || strings.IndexByte(more, s[0]) >= 0 {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && strings.IndexByte(more, c) < 0 {
			return false
		}
	}
	return true
}

var labelKeyPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/-]{0,62}$`)

// Key identifies a session within its tenant. It is part of every store key, so both halves contain only characters
// that have no meaning for Redis.
type Key struct {
	Tenant  string
	Session string
}

// Validate checks the format of both halves.
func (k Key) Validate() error {
	if !IsName(k.Tenant, 64, "_-") {
		return Errorf(CodeInvalidRequest, "The tenant must match %s.", tenantPattern)
	}
	if !IsName(k.Session, 128, sessionIDMarks) {
		return Errorf(CodeInvalidRequest, "session_id must match %s.", sessionIDPattern)
	}
	return nil
}

// ReservedSession is an id that no session can have: GET /api/sessions/running lists sessions.
const ReservedSession = "running"

// Ref is one claim of a session: its key and its generation.
type Ref struct {
	Key
	Generation int64
}

// Session is the logical identity of one device connection. It survives reconnects and may move between pods.
type Session struct {
	Key
	Pod        string // the pod that holds the socket
	Generation int64  // grows with every claim; the fencing token of all writes

	Name         string // the label from the connection's URL
	DeviceID     string
	DeviceName   string
	UserID       string
	Platform     string
	Labels       map[string]string
	Capabilities []string
	Foreground   *bool     // whether its app is in the foreground, as the device says; nil: unknown
	Bound        bool      // DeviceID comes from the credential: no other client can be that device
	ConnectedAt  time.Time // by the store's clock, set by Claim
	Since        time.Time // when its device first had it, by the store's clock; zero: at ConnectedAt

	// Proofs are the proofs of the resume tokens whose calls this connection may answer: its own first, then those of
	// earlier connections of the same device.
	Proofs []string

	// ReclaimableBy has the proofs of devices that may take the session back until ReclaimableUntil, by the store's
	// clock: the previous device, if it was another one. Claim sets both.
	ReclaimableBy    []string
	ReclaimableUntil time.Time

	// AnyOwner is only for Claim and never stored: the claim may take the session of any user and device. An admin
	// without a user may do so. The session keeps its user.
	AnyOwner bool
}

// Seniority returns when the session's device first had it. A reconnect does not change it.
func (s Session) Seniority() time.Time {
	if s.Since.IsZero() {
		return s.ConnectedAt
	}
	return s.Since
}

// SeniorTo reports whether the device of s has had s for longer than the device of other has had other. Times are in
// milliseconds. If they are equal, a session whose device has reconnected is the senior, because that device has proven
// that it is the same one.
func (s Session) SeniorTo(other Session) bool {
	mine, theirs := s.Seniority().UnixMilli(), other.Seniority().UnixMilli()
	return mine < theirs || mine == theirs && !s.Since.IsZero() && other.Since.IsZero()
}

// Ref returns the session's claim.
func (s Session) Ref() Ref { return Ref{Key: s.Key, Generation: s.Generation} }

// Away returns what may be shown of a session without a connection: its key, user and device.
func (s Session) Away() Session {
	return Session{Key: s.Key, UserID: s.UserID, DeviceID: s.DeviceID, Bound: s.Bound}
}

// Can reports whether the device declared the capability.
func (s Session) Can(capability string) bool { return slices.Contains(s.Capabilities, capability) }

// AttributesDigest returns a digest of the session's attributes: a device's data about itself, on which hooks decide.
// It is never zero, and the same on every pod. It uses SHA-256, because with a faster hash a device could choose labels
// that collide with those of another device.
func (s Session) AttributesDigest() uint64 {
	text := make([]byte, 0, 256) // enough for most sessions
	write := func(field string) {
		text = append(append(text, field...), 0xff) // never occurs in UTF-8
	}
	for _, field := range [...]string{s.Name, s.DeviceID, s.DeviceName, s.UserID, s.Platform} {
		write(field)
	}
	for _, capability := range s.Capabilities {
		if capability == "" { // otherwise labels would seem to follow, which a device could choose to match another's
			capability = "\xfe"
		}
		write(capability)
	}
	write("")
	for _, key := range slices.Sorted(maps.Keys(s.Labels)) {
		write(key)
		write(s.Labels[key])
	}
	sum := sha256.Sum256(text)
	return binary.BigEndian.Uint64(sum[:]) | 1
}

// InForeground reports whether the device says that its app is in the foreground.
func (s *Session) InForeground() bool { return s.Foreground != nil && *s.Foreground }

// InBackground reports whether the device says that its app is in the background.
func (s *Session) InBackground() bool { return s.Foreground != nil && !*s.Foreground }

// Clone returns a copy that shares no map or slice with s.
func (s Session) Clone() Session {
	s.Labels = maps.Clone(s.Labels)
	s.Capabilities = slices.Clone(s.Capabilities)
	s.Proofs, s.ReclaimableBy = slices.Clone(s.Proofs), slices.Clone(s.ReclaimableBy)
	return s
}

// ValidateAttributes checks a device's data about itself. The error names the field.
func (s Session) ValidateAttributes() error {
	for _, f := range []struct{ name, value string }{
		{"name", s.Name}, {"device_id", s.DeviceID}, {"device_name", s.DeviceName},
		{"user_id", s.UserID}, {"platform", s.Platform},
	} {
		if err := validateAttribute(f.name, f.value); err != nil {
			return err
		}
	}
	if len(s.Labels) > MaxLabels {
		return Errorf(CodeInvalidRequest, "labels: at most %d are allowed.", MaxLabels)
	}
	for k, v := range s.Labels {
		if !labelKeyPattern.MatchString(k) {
			return Errorf(CodeInvalidRequest, "labels: a key must match %s.", labelKeyPattern)
		}
		if err := validateAttribute("labels."+k, v); err != nil {
			return err
		}
	}
	if len(s.Capabilities) > maxCapabilities {
		return Errorf(CodeInvalidRequest, "capabilities: at most %d are allowed.", maxCapabilities)
	}
	for _, c := range s.Capabilities {
		if err := validateAttribute("capabilities", c); err != nil {
			return err
		}
	}
	return nil
}

// validateAttribute rejects text that could hide in a log, a dashboard or a model's context.
func validateAttribute(field, value string) error {
	if len(value) > maxAttributeLen {
		return Errorf(CodeInvalidRequest, "%s: at most %d bytes are allowed.", field, maxAttributeLen)
	}
	if !utf8.ValidString(value) {
		return Errorf(CodeInvalidRequest, "%s: must be valid UTF-8.", field)
	}
	if textsafe.Line(value) != value || strings.IndexFunc(value, func(r rune) bool { return !isSeen(r) }) >= 0 {
		return Errorf(CodeInvalidRequest, "%s: control and invisible characters are not allowed.", field)
	}
	return nil
}

// isSeen reports whether a character is printable, or a format character. Of the format characters, textsafe.Line keeps
// only those that belong to the writing of other characters.
func isSeen(r rune) bool { return unicode.IsPrint(r) || unicode.Is(unicode.Cf, r) }

// Waits for devices. New calls of a device's tools wait as long as it is expected to reconnect.
const (
	ResumeWait   = 10 * time.Second // calls in flight wait that long for a device that can resume
	ReturnWait   = ResumeWait       // until a device is expected to reconnect after its pod has stopped or died
	BreakWait    = 3 * time.Second  // until a device is expected to reconnect after its connection broke
	RegisterWait = 10 * time.Second // until a reconnected device has registered its former tools
	SettleWait   = 2 * time.Second  // after its first registration, until it has registered all of them

	// FormerTerm is how long a session's former pod is remembered, and MaxFormers how many of them: the latest ones.
	// Calls wait there for ResumeWait for the device's answers.
	FormerTerm = ResumeWait + 5*time.Second
	MaxFormers = 8
)

// Target restricts the choice among sessions that offer a tool. Empty fields do not restrict.
type Target struct {
	SessionID string
	DeviceID  string
	UserID    string
	Labels    map[string]string

	// Bound restricts to sessions whose credentials name their device id. It comes from the gateway, not from the
	// request.
	Bound bool `json:"-"`

	// Viewer is the calling user: sessions of other users do not exist for it. It comes from the caller's credentials,
	// not from the request.
	Viewer string `json:"-"`
}

// NoUser is a Viewer that sees only sessions without a user. No user can have this name.
const NoUser = "\x00"

// Sees reports whether the viewer may see what belongs to user. An empty user is visible to every viewer.
func (t Target) Sees(user string) bool { return t.Viewer == "" || user == "" || user == t.Viewer }

// IsZero reports whether the caller set no restriction.
func (t Target) IsZero() bool {
	return t.SessionID == "" && t.DeviceID == "" && t.UserID == "" && len(t.Labels) == 0
}

// AsksMore reports whether the target restricts more than the session's id: a session with that id may be the wrong
// one.
func (t Target) AsksMore() bool {
	return t.DeviceID != "" || t.UserID != "" || len(t.Labels) != 0 || t.Bound || t.Viewer != ""
}

// Matches reports whether the session matches the target.
func (t Target) Matches(s Session) bool {
	if t.SessionID != "" && t.SessionID != s.Key.Session ||
		t.DeviceID != "" && t.DeviceID != s.DeviceID ||
		t.UserID != "" && t.UserID != s.UserID || t.Bound && !s.Bound || !t.Sees(s.UserID) {
		return false
	}
	for k, v := range t.Labels {
		if got, ok := s.Labels[k]; !ok || got != v {
			return false
		}
	}
	return true
}

// Select is the choice among several matching sessions.
type Select string

// The choices. With SelectNone the gateway does not choose a device.
const (
	SelectNone   Select = ""
	SelectAny    Select = "any"
	SelectNewest Select = "newest" // of those with the same tool definition as the most senior session
)

// Pulse is the last pong of a device's connection. Its pod measures it and writes it to the store with Refresh. The
// zero value: no pong yet.
type Pulse struct {
	At        time.Time     // arrival of the pong, by the pod's clock; milliseconds
	RoundTrip time.Duration // from ping to pong, in whole milliseconds, at least one; zero: unknown
}

// NewPulse returns the pulse of a pong that came at a time, roundTrip after its ping; zero: unknown.
func NewPulse(at time.Time, roundTrip time.Duration) Pulse {
	return Pulse{
		At:        at.UTC().Truncate(time.Millisecond),
		RoundTrip: (roundTrip + time.Millisecond - 1).Truncate(time.Millisecond),
	}
}

// FeedID is a position in a log: an entry's time in milliseconds, and a sequence number within that millisecond. Ids
// keep growing over a restart of the process, so that returning readers miss no new entries.
type FeedID struct{ Milli, Seq int64 }

// feedIDPattern also matches the ids of Redis streams.
var feedIDPattern = regexp.MustCompile(`^\d{1,18}-\d{1,18}$`)

// ParseFeedID parses an id. The empty id is the beginning. Malformed ids fail with CodeInvalidRequest.
func ParseFeedID(text string) (FeedID, error) {
	if text == "" {
		return FeedID{}, nil
	}
	if err := CheckFeedID(text); err != nil {
		return FeedID{}, err
	}
	ms, seq, _ := strings.Cut(text, "-")
	var id FeedID
	id.Milli, _ = strconv.ParseInt(ms, 10, 64) // cannot fail: at most 18 digits
	id.Seq, _ = strconv.ParseInt(seq, 10, 64)
	return id, nil
}

// CheckFeedID checks the format of an entry's id in a feed or in the event log of a call. It fails with
// CodeInvalidRequest.
func CheckFeedID(text string) error {
	if !feedIDPattern.MatchString(text) {
		return Errorf(CodeInvalidRequest,
			"The id of the entry to continue from is malformed. Use one that the gateway returned.")
	}
	return nil
}

// CompareFeedIDs orders the ids of one feed. Empty and malformed ids come first.
func CompareFeedIDs(a, b string) int {
	x, _ := ParseFeedID(a)
	y, _ := ParseFeedID(b)
	return x.Compare(y)
}

func (id FeedID) String() string {
	return strconv.FormatInt(id.Milli, 10) + "-" + strconv.FormatInt(id.Seq, 10)
}

// Next returns the id of an entry added at now after id. It grows even if the clock goes back.
func (id FeedID) Next(now time.Time) FeedID {
	if ms := now.UnixMilli(); ms > id.Milli {
		return FeedID{Milli: ms}
	}
	return FeedID{id.Milli, id.Seq + 1}
}

func (id FeedID) Compare(other FeedID) int {
	return cmp.Or(cmp.Compare(id.Milli, other.Milli), cmp.Compare(id.Seq, other.Seq))
}

func (id FeedID) Before(other FeedID) bool { return id.Compare(other) < 0 }
