package registry

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Defaults of the limits that pods also need. Limits describes them.
const (
	DefaultSessionTTL = 60 * time.Second
	DefaultPodLease   = 10 * time.Second
	DefaultRetention  = 15 * time.Minute
	DefaultHistoryTTL = 24 * time.Hour
	DefaultPlaceTTL   = 25 * time.Hour
	DefaultChangeTTL  = 24 * time.Hour
)

// Limits configures how long a store keeps its data, and how much of it. Values up to zero mean the default.
type Limits struct {
	SessionTTL     time.Duration // life of a session between refreshes; default 60 s
	PodLease       time.Duration // time until a dead pod's tools leave the listing; default 10 s
	Retention      time.Duration // life of a call's record after its last change; default 15 min
	IdempotencyTTL time.Duration // life of idempotency keys; default 24 h
	ActivityTTL    time.Duration // life of a feed after its last entry; default 24 h
	ActivityCap    int           // lines in a tenant's feed, approximate; default 10,000
	ActivityBytes  int           // bytes of those lines, approximate; default 16 MiB
	HistoryTTL     time.Duration // life of a conversation after its last change; default 24 h
	HistoryCap     int           // messages kept of a conversation; default 1,000
	PlaceTTL       time.Duration // life of a place after its last use; default 25 h
	Credentials    int           // credentials of a tenant; default 10,000
	ChangeTTL      time.Duration // life of a credential change in the log, and of a revocation; default 24 h
	Revocations    int           // stored revocations of a tenant, for each kind; default 10,000
	AuditTTL       time.Duration // life of an audit log after its last entry; default 90 days
	AuditCap       int           // lines in a tenant's audit log, approximate; default 1,000,000
	AuditBytes     int           // bytes of those lines, approximate; default 256 MiB
	UsageTTL       time.Duration // life of a day's usage; default 90 days
	UsageRows      int           // usage rows of a tenant and day; default 10,000
}

// WithDefaults returns the limits with the defaults filled in.
func (l Limits) WithDefaults() Limits {
	return Limits{
		SessionTTL:     positive(l.SessionTTL, DefaultSessionTTL),
		PodLease:       positive(l.PodLease, DefaultPodLease),
		Retention:      positive(l.Retention, DefaultRetention),
		IdempotencyTTL: positive(l.IdempotencyTTL, 24*time.Hour),
		ActivityTTL:    positive(l.ActivityTTL, 24*time.Hour),
		ActivityCap:    positive(l.ActivityCap, 10_000),
		ActivityBytes:  positive(l.ActivityBytes, 16<<20),
		HistoryTTL:     positive(l.HistoryTTL, DefaultHistoryTTL),
		HistoryCap:     positive(l.HistoryCap, 1000),
		PlaceTTL:       positive(l.PlaceTTL, DefaultPlaceTTL),
		Credentials:    positive(l.Credentials, 10_000),
		ChangeTTL:      positive(l.ChangeTTL, DefaultChangeTTL),
		Revocations:    positive(l.Revocations, 10_000),
		AuditTTL:       positive(l.AuditTTL, 90*24*time.Hour),
		AuditCap:       positive(l.AuditCap, 1_000_000),
		AuditBytes:     positive(l.AuditBytes, 256<<20),
		UsageTTL:       positive(l.UsageTTL, 90*24*time.Hour),
		UsageRows:      positive(l.UsageRows, 10_000),
	}
}

// positive returns value, or otherwise if value is not positive.
func positive[T ~int | ~int64](value, otherwise T) T {
	if value > 0 {
		return value
	}
	return otherwise
}

// Window is a sliding rate limit: at most Limit charges within any span of length Period.
type Window struct {
	Name   string        // identifies the counter, any length; stores keep its digest
	Limit  int           // from 1 to MaxWindowLimit
	Period time.Duration // from 1 ms to MaxWindowPeriod; each period has its own counter
}

// Limits of windows. A window takes memory for each charge in it.
const (
	MaxWindowLimit  = 10_000
	MaxWindowPeriod = 24 * time.Hour
	MaxWindows      = 32 // charged in one Take
)

// Validate returns an error for a window outside the limits.
func (w Window) Validate() error {
	if w.Limit < 1 || w.Limit > MaxWindowLimit || w.Period < time.Millisecond || w.Period > MaxWindowPeriod {
		return Errorf(CodeInvalidRequest, "A limit must be 1 to %d, over a period of 1 ms to %v.", MaxWindowLimit,
			MaxWindowPeriod)
	}
	return nil
}

// LimitStore counts rate limits for the whole fleet, by one clock.
type LimitStore interface {
	// Take charges all windows of a tenant, or none if one of them is full. wait is zero if they were charged.
	// Otherwise wait is the longest time until a window has room, and full is the index of that window. The limit of a
	// window may change from call to call. Windows with the same name and period share their charges; one call must not
	// charge two such windows.
	Take(ctx context.Context, tenant string, windows []Window) (wait time.Duration, full int, err error)
}

// CheckWindows returns an error if windows cannot be charged together.
func CheckWindows(windows []Window) error {
	if len(windows) > MaxWindows {
		return Errorf(CodeInvalidRequest, "At most %d limits can apply to one call.", MaxWindows)
	}
	for i, w := range windows {
		if err := w.Validate(); err != nil {
			return err
		}
		for _, other := range windows[:i] {
			if other.Name == w.Name && other.Period.Milliseconds() == w.Period.Milliseconds() {
				return Errorf(CodeInvalidRequest, "A limit appears twice.")
			}
		}
	}
	return nil
}

// Budget is a token bucket for the bytes of one kind that the store keeps. Half of them may be added at once, the other
// half over the time Over. So the store never keeps more than Bytes, however many callers add and however often devices
// reconnect.
type Budget struct {
	Bytes int64
	Over  time.Duration // how long an addition is kept
}

// Burst returns how many bytes may be added at once.
func (b Budget) Burst() int64 { return max(b.Bytes/2, 1) }

// Rate returns how many bytes may be added per millisecond.
func (b Budget) Rate() float64 { return float64(b.Burst()) / float64(max(b.Over.Milliseconds(), 1)) }

// BudgetStore counts additions of the whole fleet.
type BudgetStore interface {
	// Spend takes all n bytes from a tenant's budget, or none. n is at most the burst. wait is zero if they were taken,
	// otherwise the time until the budget has them. An unused budget is full.
	Spend(ctx context.Context, tenant, name string, n int64, b Budget) (wait time.Duration, err error)

	// Overdraw takes n bytes from a budget, even if it has fewer. The deficit, at most one burst, is refilled before
	// further bytes can be spent.
	Overdraw(ctx context.Context, tenant, name string, n int64, b Budget) error
}

// Rules for claiming a session that is already held. A session belongs to the user and the device in the credentials of
// its first claim. If these name none, three things decide: the resume token, which only its device knows; the name
// that a device gives itself; and whether the holding device still answers. The token, and the calls of a device that
// is gone, are only for connections of the same credential. docs/decisions/0014-who-may-have-a-session.md has the
// reasons.

// HeirTerm is how long the previous device may take a session back from another one.
const HeirTerm = 5 * time.Minute

// AnyHolder is a claim's generation if it may replace any holder, because the holder has been asked.
const AnyHolder = -1

// Proof returns the hash that identifies a resume token of a connection of holder (auth.Identity.Holder). It reveals
// neither the token nor the holder. A connection of another holder has another proof, even if it knows the token.
func Proof(holder, token string) string {
	sum := sha256.Sum256([]byte(token))
	proof := base64.RawURLEncoding.EncodeToString(sum[:16])
	if holder == "" {
		return proof
	}
	of := sha256.Sum256([]byte(holder))
	return base64.RawURLEncoding.EncodeToString(of[:9]) + proofSeparator + proof
}

// proofSeparator separates the hashes of a holder and a token.
const proofSeparator = "."

// SameHolder reports whether two proofs belong to connections of one holder.
func SameHolder(a, b string) bool { return holderOf(a) == holderOf(b) }

// holderOf returns the holder's part of a proof.
func holderOf(proof string) string {
	of, _, found := strings.Cut(proof, proofSeparator)
	if !found {
		return ""
	}
	return of
}

// Introduction is a device's data about itself before it gets a session. Empty fields are unset.
type Introduction struct {
	DeviceID string
	Token    string // a resume token of an earlier connection; never logged
	Holder   string // of the connection's credential: not under the device's control
}

// Proof returns the proof of the device's token, empty without a token.
func (i *Introduction) Proof() string {
	if i.Token == "" {
		return ""
	}
	return Proof(i.Holder, i.Token)
}

// Held is the error of a claim that must ask the session's holder first. Nothing has changed.
type Held struct {
	Holder Session
	At     time.Time // by the store's clock
}

// Error implements error.
func (h *Held) Error() string {
	return fmt.Sprintf("session %s is held by another connection", h.Holder.Key.Session)
}

// AskFirst reports whether a claim must ask before it takes the session from its connection. Reasons: another device
// must not get the session, or calls wait for its answers and it matters whether the device is really gone.
func (s *Session) AskFirst() bool {
	return s.DeviceID != "" || s.Can(CapabilityResumeToken) || s.Can(CapabilityResume)
}

// Succeed returns the heirs of a claim that replaces or follows former: former's heirs, or former's own device if a
// claim had to ask it. Stores call it with their own time.
func Succeed(former Session, now time.Time) (heirs []string, until time.Time) {
	switch {
	case len(former.ReclaimableBy) > 0 && now.Before(former.ReclaimableUntil):
		return former.ReclaimableBy, former.ReclaimableUntil
	case former.AskFirst() && len(former.Proofs) > 0:
		return former.Proofs, now.Add(HeirTerm)
	default:
		return nil, time.Time{}
	}
}

// OwnerProof returns the proof of the device that owns calls given to the connection from now on.
func (s *Session) OwnerProof() string {
	if len(s.Proofs) == 0 {
		return ""
	}
	return s.Proofs[0]
}

// MayAnswer reports whether a device with these proofs may answer a call that was given to a device with that proof.
func MayAnswer(proof string, proofs []string) bool {
	return proof == "" || slices.Contains(proofs, proof)
}

// BelongsTo reports whether a claim may take the session. A user's session is for that user. A session bound to a
// device is for that device. A session without a user or a bound device is for every claim.
func (s *Session) BelongsTo(claim *Session) bool {
	switch {
	case claim.AnyOwner:
		return true
	case s.UserID != "" && s.UserID != claim.UserID:
		return false
	default:
		return !s.Bound || claim.Bound && s.DeviceID == claim.DeviceID
	}
}

// Inherit returns the claim for storage. With AnyOwner and no user, the session keeps its former user.
func (s Session) Inherit(former *Session) Session {
	if s.AnyOwner && s.UserID == "" && former != nil {
		s.UserID = former.UserID
	}
	s.AnyOwner = false
	return s
}

// ErrForeignSession is returned for a claim of a session that belongs to another user or device.
var ErrForeignSession = Errorf(CodeSessionNotFound, "No session of yours has this id. Use another session_id.")
