package registry

import (
	"context"
	"crypto/ecdh"
	"encoding/base64"
	"reflect"
	"strings"
	"time"
)

// Limits of what devices register to be woken.
const (
	MaxWakes       = 200_000 // of a tenant
	MaxWakesOfUser = 256     // of a user with a name
	MaxWakeTarget  = 2 << 10 // bytes of a URL or an endpoint
	MaxWakeToken   = 4 << 10 // bytes of a token of FCM or APNs

	// WakeLife is how long a registration lives after it was made or last used.
	WakeLife = 90 * 24 * time.Hour

	DefaultWakeInterval = time.Minute    // between two pushes to a device
	MinWakeInterval     = time.Second    // the same, at least
	MaxWakeInterval     = 24 * time.Hour // the same, at most
)

// WakeKind is the service by which a device is woken.
type WakeKind string

// The kinds.
const (
	WakeWebhook     WakeKind = "webhook"     // a signed request to a URL (Standard Webhooks)
	WakeWebPush     WakeKind = "webpush"     // a browser's push service (RFC 8030, 8291, 8292)
	WakeUnifiedPush WakeKind = "unifiedpush" // a push server that the person chose; as webpush
	WakeFCM         WakeKind = "fcm"         // Firebase Cloud Messaging, HTTP v1
	WakeAPNs        WakeKind = "apns"        // Apple Push Notification service
)

// WakeKinds returns all kinds.
func WakeKinds() []WakeKind {
	return []WakeKind{WakeWebhook, WakeWebPush, WakeUnifiedPush, WakeFCM, WakeAPNs}
}

// Wake says how a device is woken: by a push to URL (webhook), to Endpoint with Keys (webpush, unifiedpush), or to
// Token (fcm; apns, with Topic). All of these are secrets: their holder can wake the device.
type Wake struct {
	Kind          WakeKind    `json:"kind"`
	URL           string      `json:"url,omitempty"`
	Endpoint      string      `json:"endpoint,omitempty"`
	Keys          *WakeKeys   `json:"keys,omitempty"`
	Token         string      `json:"token,omitempty"`
	Topic         string      `json:"topic,omitempty"` // the bundle id of the app
	MinIntervalMS int64       `json:"min_interval_ms,omitempty"`
	Quiet         *QuietHours `json:"quiet,omitempty"`
}

// WakeKeys are the keys of a push subscription, in base64url.
type WakeKeys struct {
	P256DH string `json:"p256dh"`
	Auth   string `json:"auth"`
}

// QuietHours are a part of each day in which a device is not woken. From may be later than To: then they pass midnight.
type QuietHours struct {
	From string `json:"from"` // HH:MM
	To   string `json:"to"`   // HH:MM
	Zone string `json:"zone"` // of the IANA database, such as Europe/Vienna; empty: UTC
}

// Interval returns the minimum time between two pushes.
func (w Wake) Interval() time.Duration { return time.Duration(w.MinIntervalMS) * time.Millisecond }

// Target returns the URL that the gateway sends pushes to. It is empty for kinds whose service is fixed.
func (w Wake) Target() string { return w.URL + w.Endpoint }

// Equal reports whether two registrations say the same.
func (w Wake) Equal(o Wake) bool { return reflect.DeepEqual(w, o) }

// Checked returns the registration with its defaults. It fails with CodeInvalidRequest if a field is missing,
// malformed, or belongs to another kind. It does not check where a URL leads.
func (w Wake) Checked() (Wake, error) {
	if w.MinIntervalMS == 0 {
		w.MinIntervalMS = DefaultWakeInterval.Milliseconds()
	}
	if w.MinIntervalMS < MinWakeInterval.Milliseconds() || w.MinIntervalMS > MaxWakeInterval.Milliseconds() {
		return w, badWake("min_interval_ms: must be between %d and %d.", MinWakeInterval.Milliseconds(),
			MaxWakeInterval.Milliseconds())
	}
	web := w.Kind == WakeWebPush || w.Kind == WakeUnifiedPush
	for _, f := range []struct {
		name   string
		set    bool
		wanted bool
	}{
		{"url", w.URL != "", w.Kind == WakeWebhook},
		{"endpoint", w.Endpoint != "", web},
		{"keys", w.Keys != nil, web},
		{"token", w.Token != "", w.Kind == WakeFCM || w.Kind == WakeAPNs},
		{"topic", w.Topic != "", w.Kind == WakeAPNs},
	} {
		switch {
		case f.set && !f.wanted:
			return w, badWake("%s: is not for kind %q.", f.name, w.Kind)
		case f.wanted && !f.set:
			return w, badWake("%s: is required for kind %q.", f.name, w.Kind)
		}
	}
	switch {
	case w.Target()+w.Token == "":
		return w, badWake("kind: must be webhook, webpush, unifiedpush, fcm or apns.")
	case len(w.Target()) > MaxWakeTarget:
		return w, badWake("%s: may have at most %d bytes.", w.Kind, MaxWakeTarget)
	case len(w.Token) > MaxWakeToken || w.Kind == WakeAPNs && !IsName(w.Token, MaxWakeToken, ""):
		return w, badWake("token: is not a token of a push service.")
	case w.Topic != "" && !IsName(w.Topic, maxAttributeLen, ".-"):
		return w, badWake("topic: must be the bundle id of the app.")
	}
	if web {
		if err := w.Keys.check(); err != nil {
			return w, err
		}
	}
	return w, w.Quiet.check()
}

func (k WakeKeys) check() error {
	public, err := decodeKey(k.P256DH)
	if err == nil {
		_, err = ecdh.P256().NewPublicKey(public)
	}
	if err != nil {
		return badWake("keys.p256dh: must be a public key of P-256, in base64url.")
	}
	if secret, err := decodeKey(k.Auth); err != nil || len(secret) != 16 {
		return badWake("keys.auth: must be 16 bytes in base64url.")
	}
	return nil
}

func decodeKey(text string) ([]byte, error) {
	return base64.RawURLEncoding.DecodeString(strings.TrimRight(text, "="))
}

const clockFormat = "15:04"

func (q *QuietHours) check() error {
	if q == nil {
		return nil
	}
	from, err := time.Parse(clockFormat, q.From)
	to, err2 := time.Parse(clockFormat, q.To)
	if err != nil || err2 != nil || from.Equal(to) {
		return badWake(`quiet: from and to must be two different times, such as "22:00" and "07:00".`)
	}
	if _, err := time.LoadLocation(q.Zone); err != nil || q.Zone == "Local" || len(q.Zone) > maxAttributeLen {
		return badWake("quiet.zone: must be a name of the IANA time zone database, such as Europe/Vienna.")
	}
	return nil
}

// End returns when the quiet hours end that t is in. It returns t if it is in none. Hours that a change of the clocks
// skips or repeats count as that zone's rules read them.
func (q *QuietHours) End(t time.Time) time.Time {
	if q == nil {
		return t
	}
	zone, err := time.LoadLocation(q.Zone)
	from, err1 := time.Parse(clockFormat, q.From)
	to, err2 := time.Parse(clockFormat, q.To)
	if err != nil || err1 != nil || err2 != nil { // a newer release wrote it
		return t
	}
	local := t.In(zone)
	at := func(clock time.Time, days int) time.Time {
		return time.Date(local.Year(), local.Month(), local.Day()+days, clock.Hour(), clock.Minute(), 0, 0, zone)
	}
	for _, days := range []int{-1, 0} { // they began yesterday, or today
		begin, end := at(from, days), at(to, days)
		if to.Before(from) {
			end = at(to, days+1)
		}
		if !t.Before(begin) && t.Before(end) {
			return end
		}
	}
	return t
}

func badWake(format string, args ...any) error {
	return Errorf(CodeInvalidRequest, "wake."+format, args...)
}

// WakePlan is what was pushed to a device, and what will be.
type WakePlan struct {
	Last     time.Time `json:"last,omitzero"`      // of the last push
	Next     time.Time `json:"next,omitzero"`      // of the next one; zero: none is wanted
	Failures int       `json:"failures,omitempty"` // pushes that failed since the last success
	Error    string    `json:"error,omitempty"`    // of the last failure
}

// WakeRecord is the registration of a device with its plan.
type WakeRecord struct {
	Tenant   string    `json:"-"`
	DeviceID string    `json:"-"`
	User     string    `json:"user,omitempty"` // that registered it
	Wake     Wake      `json:"wake"`
	Plan     WakePlan  `json:"plan,omitzero"`
	SetAt    time.Time `json:"-"` // by the store's clock
}

// Ref names the device, for its user.
func (r WakeRecord) Ref() WakeRef {
	return WakeRef{Tenant: r.Tenant, User: r.User, DeviceID: r.DeviceID}
}

// WakeStore keeps how devices are woken, and when. Users choose the ids of devices, so each user of a tenant has
// registrations of its own.
type WakeStore interface {
	// SetWake stores the registration of a device, and keeps its plan. It fails with ErrManyWakes at a limit.
	SetWake(ctx context.Context, r WakeRecord) error

	// WakeOf returns the registration of a device, or ErrNoWake.
	WakeOf(ctx context.Context, ref WakeRef) (WakeRecord, error)

	// WakesOf returns the registrations of a device id of a tenant, one of each user, the first user's first, for lists
	// that admins see. It returns those of at most 21 users: use WakeOf for the device of one of them.
	WakesOf(ctx context.Context, tenant, deviceID string) ([]WakeRecord, error)

	// PlanWake replaces the plan of a device by what plan returns, if that is true. If another pod changes the record
	// meanwhile, it calls plan again. It fails with ErrNoWake without a registration.
	PlanWake(ctx context.Context, ref WakeRef, plan func(WakeRecord) (WakePlan, bool)) error

	// DueWakes returns devices whose Next has come, at most limit: of tenants, and within a tenant of users, in turn.
	// Repeated calls reach all of them. A plan may change meanwhile: read it.
	DueWakes(ctx context.Context, limit int) ([]WakeRef, error)

	// DropWake forgets the registration of a device, and reports whether there was one.
	DropWake(ctx context.Context, ref WakeRef) (bool, error)
}

// WakeRef names a device as its user, which may be empty, has registered it.
type WakeRef struct{ Tenant, User, DeviceID string }

// WakeRefOf returns the device of a Session.DeviceKey. bound: its credential names the id, and the key does not name
// the user.
func WakeRefOf(tenant, key string) (ref WakeRef, bound bool) {
	t := TargetOfKey(key)
	return WakeRef{Tenant: tenant, User: t.UserID, DeviceID: t.DeviceID}, t.Bound
}

// Errors of a WakeStore.
var (
	ErrNoWake    = Errorf(CodeNotFound, "The device has not registered how to wake it.")
	ErrManyWakes = Errorf(CodeRateLimited, "This user or tenant has registered too many devices to wake. "+
		"Remove some of them.")
)
