package auth

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/farhand/farhand/registry"
)

// wrongTokens is how many wrong tokens are refused as such.
var wrongTokens = Limit{Rate: 2, Burst: 100} // of one source; then they are told to wait

// Kinds of refusals, which have lines in the log of their own: one kind must not crowd out another.
const (
	RefusedOrigin    = "origin"
	RefusedToken     = "token"
	RefusedHandshake = "handshake"
	RefusedRate      = "rate"
	RefusedPairing   = "pairing" // there was no room for another request to pair
	RefusedRole      = "role"    // a device's credential has not the role
)

// RefusalKinds returns all kinds.
func RefusalKinds() []string {
	return []string{RefusedOrigin, RefusedToken, RefusedHandshake, RefusedRate, RefusedPairing, RefusedRole}
}

// Refusals notes who was refused: in the log, so that an operator sees why somebody cannot connect, and by source, so
// that whoever guesses tokens is told to stop. It is safe for concurrent use.
type Refusals struct {
	sources Sources
	log     *slog.Logger
	wrong   *Buckets[netip.Prefix]

	audit   Auditor                  // has samples of wrong tokens, and of tools that are refused
	audited *Lines[string]           // of those
	lines   *Lines[string]           // by kind
	counts  map[string]*atomic.Int64 // by kind; the map never changes
}

// NewRefusals returns what notes refusals in log.
func NewRefusals(sources Sources, log *slog.Logger) *Refusals {
	f := &Refusals{
		audit: NoAudit{}, audited: NewLines[string](),
		sources: sources, log: log, wrong: NewBuckets[netip.Prefix](wrongTokens), lines: NewLines[string](),
		counts: make(map[string]*atomic.Int64),
	}
	for _, kind := range RefusalKinds() {
		f.counts[kind] = new(atomic.Int64)
	}
	return f
}

// AuditTo has wrong tokens noted in the audit log of the default tenant, because they name no other: as many as are
// logged. It is called before anything else.
func (f *Refusals) AuditTo(a Auditor) { f.audit = a }

// noteLogin notes in the audit log that a token was refused.
func (f *Refusals) noteLogin(r *http.Request, err error) {
	omitted, ok := f.audited.May(RefusedToken)
	if !ok {
		return
	}
	e := registry.AuditEntry{
		Tenant: registry.DefaultTenant, Actor: f.sources.ActorOf(Identity{}, r), Action: registry.AuditLogin,
		Target: cutShort(r.URL.Path), Omitted: omitted,
	}
	e.Decide(err)
	f.audit.Note(e)
}

// Tool notes in the audit log that a device may not register a tool: of each tenant as many as are logged of one kind.
func (f *Refusals) Tool(who Identity, session registry.Session, tool string, err error) {
	omitted, ok := f.audited.May("tool of " + who.Tenant)
	if !ok {
		return
	}
	e := registry.AuditEntry{
		Tenant: who.Tenant, Actor: who.Actor(), Action: registry.AuditRegister, Tool: tool,
		SessionID: session.Key.Session, DeviceID: session.DeviceID, Omitted: omitted,
	}
	e.Decide(err)
	f.audit.Note(e)
}

// Count returns how many refusals of a kind there were.
func (f *Refusals) Count(kind string) int64 {
	if n := f.counts[kind]; n != nil {
		return n.Load()
	}
	return 0
}

// Origin notes that a web page was refused, and returns why.
func (f *Refusals) Origin(r *http.Request, err error) error {
	f.Note(r, RefusedOrigin, err, slog.String("origin", cutShort(r.Header.Get("Origin"))),
		slog.String("host", cutShort(r.Host)))
	return err
}

// Token notes that a token was refused, and returns what the client is told: after many in a short time from one source
// that it has to wait. A right token is never refused, whatever else comes from its source. A request without a token
// guesses nothing, and does not count.
func (f *Refusals) Token(r *http.Request, token string, err error) error {
	if !errors.Is(err, registry.CodeUnauthenticated) {
		return err
	}
	f.Note(r, RefusedToken, err, slog.Bool("missing", token == ""))
	if token == "" {
		return err
	}
	f.noteLogin(r, err)
	if f.wrong.Take(f.sources.Of(r), 1) {
		return err
	}
	e := registry.Errorf(registry.CodeRateLimited,
		"Too many wrong tokens came from this address. Wait, and check the token.")
	e.RetryAfter = wrongTokens.Refill() / 10
	return e
}

// Pairing notes that a device could not ask to be paired: it came too often, or there was no room for its request. It
// returns err.
func (f *Refusals) Pairing(r *http.Request, err error) error {
	switch {
	case errors.Is(err, registry.ErrPairingsFull):
		f.Note(r, RefusedPairing, err)
	case errors.Is(err, registry.CodeRateLimited):
		f.Note(r, RefusedRate, err)
	}
	return err
}

// Note writes a line about a refusal, unless there were many of its kind a moment ago. The next line says how many were
// left out. Nothing secret is in it: neither the query nor a header but those given.
func (f *Refusals) Note(r *http.Request, kind string, err error, attrs ...slog.Attr) {
	if n := f.counts[kind]; n != nil {
		n.Add(1)
	}
	omitted, ok := f.lines.May(kind)
	if !ok {
		return
	}
	all := append([]slog.Attr{
		slog.String("refused", kind), slog.String("path", cutShort(r.URL.Path)),
		slog.String("source", f.sources.Of(r).Addr().String()),
		slog.Any("error", err),
	}, attrs...)
	if omitted > 0 {
		all = append(all, slog.Int("not_logged_before", omitted))
	}
	f.log.LogAttrs(context.Background(), slog.LevelWarn, "request refused", all...)
}

// cutShort returns as much of what a client wrote as a line in a log needs.
func cutShort(s string) string {
	const enough = 200
	if len(s) > enough {
		return s[:enough] + "…"
	}
	return s
}

// Limit is how much may be spent: Burst at once, and Rate a second in the long run.
type Limit struct{ Rate, Burst float64 }

// Refill is how long an empty bucket takes to be full again.
func (l Limit) Refill() time.Duration { return time.Duration(l.Burst / l.Rate * float64(time.Second)) }

// Bucket is a token bucket. The zero value is full. It is not safe for concurrent use. Times are those of one
// monotonic clock.
type Bucket struct {
	spent float64
	at    time.Duration
}

func (b *Bucket) fill(l Limit, now time.Duration) {
	b.spent = max(0, b.spent-(now-b.at).Seconds()*l.Rate)
	b.at = now
}

// Take spends n, if there is as much.
func (b *Bucket) Take(l Limit, now time.Duration, n float64) bool {
	b.fill(l, now)
	if b.spent+n > l.Burst {
		return false
	}
	b.spent += n
	return true
}

// longestDebt is how long a debt takes to be paid, at most: what was overspent long ago is forgotten.
const longestDebt = 2 // seconds

// Spend spends n in any case and returns how long it takes until the debt, if there is one, is paid.
func (b *Bucket) Spend(l Limit, now time.Duration, n float64) time.Duration {
	b.fill(l, now)
	b.spent = min(b.spent+n, l.Burst+longestDebt*l.Rate)
	return time.Duration(max(0, b.spent-l.Burst) / l.Rate * float64(time.Second))
}

// Refund gives n back, and returns how much of it there was no room for.
func (b *Bucket) Refund(n float64) (rest float64) {
	back := min(n, b.spent)
	b.spent -= back
	return n - back
}

// maxBuckets bounds the keys that are remembered. Buckets that are full again are forgotten before any other.
const maxBuckets = 1 << 16

// Buckets are token buckets by key, all with one limit. They are safe for concurrent use.
type Buckets[K comparable] struct {
	limit   Limit
	started time.Time

	mu   sync.Mutex
	by   map[K]*Bucket
	next time.Duration // when to look for full ones again
}

// NewBuckets returns buckets that are all full.
func NewBuckets[K comparable](l Limit) *Buckets[K] {
	return &Buckets[K]{limit: l, started: time.Now(), by: make(map[K]*Bucket)}
}

// Take spends n of the key's bucket, if there is as much.
func (b *Buckets[K]) Take(key K, n float64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Since(b.started)
	return b.bucketLocked(key, now).Take(b.limit, now, n)
}

// Spend spends n of the key's bucket in any case and returns how long it takes until its debt is paid.
func (b *Buckets[K]) Spend(key K, n float64) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Since(b.started)
	return b.bucketLocked(key, now).Spend(b.limit, now, n)
}

// Refund gives n back to the key's bucket.
func (b *Buckets[K]) Refund(key K, n float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if bucket := b.by[key]; bucket != nil {
		bucket.Refund(n)
	}
}

func (b *Buckets[K]) bucketLocked(key K, now time.Duration) *Bucket {
	bucket := b.by[key]
	if bucket == nil {
		b.pruneLocked(now)
		bucket = &Bucket{at: now}
		b.by[key] = bucket
	}
	return bucket
}

// pruneLocked forgets buckets that are full again, and any when there are too many.
func (b *Buckets[K]) pruneLocked(now time.Duration) {
	if now < b.next && len(b.by) < maxBuckets {
		return
	}
	b.next = now + b.limit.Refill()
	for key, bucket := range b.by {
		if bucket.fill(b.limit, now); bucket.spent == 0 || len(b.by) > maxBuckets*3/4 {
			delete(b.by, key)
		}
	}
}
