package registry

import (
	"context"
	"time"
)

// Limits say how long a store keeps what it is given, and how much of it. What is not positive is the default.
type Limits struct {
	SessionTTL     time.Duration // life of a session between refreshes; default 60 s
	PodLease       time.Duration // how soon the tools of a dead pod are out of the listing; default 10 s
	Retention      time.Duration // life of a call's record after its last change; default 15 min
	IdempotencyTTL time.Duration // life of idempotency keys; default 24 h
	ActivityTTL    time.Duration // life of a feed to which nothing is added; default 24 h
	ActivityCap    int           // lines kept in the feed of a tenant, roughly; default 10,000
	ActivityBytes  int           // bytes of those lines, roughly; default 16 MiB
	HistoryTTL     time.Duration // life of a conversation after its last change; default 24 h
	HistoryCap     int           // messages kept of a conversation; default 1,000
	PlaceTTL       time.Duration // life of a place after its last use; default 25 h
	Credentials    int           // credentials of a tenant; default 10,000
	ChangeTTL      time.Duration // life of a change of credentials in the log, and of a revocation; default 24 h
	Revocations    int           // of a tenant that are remembered, of each kind; default 10,000
	AuditTTL       time.Duration // life of an audit log to which nothing is added; default 90 days
	AuditCap       int           // lines kept in the audit log of a tenant, roughly; default 1,000,000
	AuditBytes     int           // bytes of those lines, roughly; default 256 MiB
	UsageTTL       time.Duration // life of the usage of a day; default 90 days
	UsageRows      int           // rows of the usage of a tenant and day; default 10,000
}

// WithDefaults returns the limits with the defaults filled in.
func (l Limits) WithDefaults() Limits {
	return Limits{
		SessionTTL:     positive(l.SessionTTL, DefaultSessionTTL),
		PodLease:       positive(l.PodLease, DefaultPodLease),
		Retention:      positive(l.Retention, DefaultRetention),
		IdempotencyTTL: positive(l.IdempotencyTTL, DefaultIdempotencyTTL),
		ActivityTTL:    positive(l.ActivityTTL, DefaultActivityTTL),
		ActivityCap:    positive(l.ActivityCap, DefaultActivityCap),
		ActivityBytes:  positive(l.ActivityBytes, DefaultActivityBytes),
		HistoryTTL:     positive(l.HistoryTTL, DefaultHistoryTTL),
		HistoryCap:     positive(l.HistoryCap, DefaultHistoryCap),
		PlaceTTL:       positive(l.PlaceTTL, DefaultPlaceTTL),
		Credentials:    positive(l.Credentials, DefaultCredentials),
		ChangeTTL:      positive(l.ChangeTTL, DefaultChangeTTL),
		Revocations:    positive(l.Revocations, DefaultRevocations),
		AuditTTL:       positive(l.AuditTTL, DefaultAuditTTL),
		AuditCap:       positive(l.AuditCap, DefaultAuditCap),
		AuditBytes:     positive(l.AuditBytes, DefaultAuditBytes),
		UsageTTL:       positive(l.UsageTTL, DefaultUsageTTL),
		UsageRows:      positive(l.UsageRows, DefaultUsageRows),
	}
}

// positive returns value, or otherwise if value is not positive.
func positive[T ~int | ~int64](value, otherwise T) T {
	if value > 0 {
		return value
	}
	return otherwise
}

// Window is a limit that slides: at most Limit charges in any time of the length Period.
type Window struct {
	Name   string        // whose charges are counted, of any length; the stores keep a digest of it
	Limit  int           // from 1 to MaxWindowLimit
	Period time.Duration // from 1 ms to MaxWindowPeriod; windows of other periods have counts of their own
}

// Bounds of windows. A window takes memory for each charge in it.
const (
	MaxWindowLimit  = 10_000
	MaxWindowPeriod = 24 * time.Hour
	MaxWindows      = 32 // that are charged together
)

// Validate returns an error for a window that no store counts.
func (w Window) Validate() error {
	if w.Limit < 1 || w.Limit > MaxWindowLimit || w.Period < time.Millisecond || w.Period > MaxWindowPeriod {
		return Errorf(CodeInvalidRequest, "A limit is from 1 to %d in a time from 1 ms to %v.", MaxWindowLimit,
			MaxWindowPeriod)
	}
	return nil
}

// LimitStore counts for the whole fleet, by one clock. It is safe for concurrent use.
type LimitStore interface {
	// Take charges windows of a tenant, all of them or none: none unless each has room. wait is zero if they were
	// charged. Otherwise it is how long it takes until the window full, an index of windows, has room, and that of no
	// other one takes longer. The limit of a window may change from call to call. Of windows with the same name and
	// period, which must not be charged together, the limits of all calls hold.
	Take(ctx context.Context, tenant string, windows []Window) (wait time.Duration, full int, err error)
}

// CheckWindows returns an error for windows that cannot be charged together.
func CheckWindows(windows []Window) error {
	if len(windows) > MaxWindows {
		return Errorf(CodeInvalidRequest, "At most %d limits hold for one call.", MaxWindows)
	}
	for i, w := range windows {
		if err := w.Validate(); err != nil {
			return err
		}
		for _, other := range windows[:i] {
			if other.Name == w.Name && other.Period.Milliseconds() == w.Period.Milliseconds() {
				return Errorf(CodeInvalidRequest, "A limit is named twice.")
			}
		}
	}
	return nil
}

// Budget bounds the bytes that the store keeps of something for some time. Half of them may be added at once, and the
// other half over that time. So the store never has more of them, whoever adds them and however often devices connect
// anew.
type Budget struct {
	Bytes int64
	Over  time.Duration // how long an addition is kept
}

// Burst returns how many bytes may be added at once.
func (b Budget) Burst() int64 { return max(b.Bytes/2, 1) }

// Rate returns how many bytes may be added in a millisecond.
func (b Budget) Rate() float64 { return float64(b.Burst()) / float64(max(b.Over.Milliseconds(), 1)) }

// BudgetStore counts what the whole fleet adds. It is safe for concurrent use.
type BudgetStore interface {
	// Spend takes n bytes off a budget of the tenant, all or none; n is at most the burst. If the budget does not have
	// them yet, wait is how long it takes until it has; wait is zero if they were taken. A budget that was never spent
	// from is full.
	Spend(ctx context.Context, tenant, name string, n int64, b Budget) (wait time.Duration, err error)

	// Overdraw takes n bytes off a budget, whether or not it has them. What it lacks, at most a burst, comes back
	// before anything else can be spent.
	Overdraw(ctx context.Context, tenant, name string, n int64, b Budget) error
}
