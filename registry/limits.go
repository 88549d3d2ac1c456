package registry

import "time"

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
