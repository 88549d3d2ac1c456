package auth

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/farhand/farhand/internal/strictjson"
	"github.com/farhand/farhand/registry"
)

// wrongTokens limits the wrong tokens of one source that get CodeUnauthenticated. Further ones get CodeRateLimited.
var wrongTokens = Limit{Rate: 2, Burst: 100} // per source

// Kinds of refusals. Each kind has its own log quota, so that one kind cannot crowd out another.
const (
	RefusedOrigin    = "origin"
	RefusedToken     = "token"
	RefusedHandshake = "handshake"
	RefusedRate      = "rate"
	RefusedPairing   = "pairing" // no room for another pairing request
	RefusedRole      = "role"    // a device's credential lacks the role
)

// RefusalKinds returns all kinds.
func RefusalKinds() []string {
	return []string{RefusedOrigin, RefusedToken, RefusedHandshake, RefusedRate, RefusedPairing, RefusedRole}
}

// Refusals records refused requests. The log shows an operator why a client cannot connect. A source that guesses
// tokens is rate-limited. It is safe for concurrent use.
type Refusals struct {
	sources Sources
	log     *slog.Logger
	wrong   *Buckets[netip.Prefix]

	audit   Auditor                  // gets samples of wrong tokens and refused tools
	audited *Lines[string]           // limits audit; by token or tenant
	lines   *Lines[string]           // by kind
	counts  map[string]*atomic.Int64 // by kind; the map never changes
}

// NewRefusals returns a Refusals that writes to log.
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

// AuditTo sets the audit log for wrong tokens and refused tools. Wrong tokens go to the default tenant's log, because
// they name no other. They are sampled like log lines. Call AuditTo before any other method.
func (f *Refusals) AuditTo(a Auditor) { f.audit = a }

// sample adds an entry to the audit log, unless its kind has used up its quota.
func (f *Refusals) sample(kind string, e registry.AuditEntry, err error) {
	omitted, ok := f.audited.May(kind)
	if !ok {
		return
	}
	e.Omitted = omitted
	e.Decide(err)
	f.audit.Note(e)
}

// Tool records in the audit log that a device may not register a tool. It is sampled per tenant, like log lines.
func (f *Refusals) Tool(who Identity, session registry.Session, tool string, err error) {
	f.sample("tool of "+who.Tenant, registry.AuditEntry{
		Tenant: who.Tenant, Actor: who.Actor(), Action: registry.AuditRegister, Tool: tool,
		SessionID: session.Key.Session, DeviceID: session.DeviceID,
	}, err)
}

// Counts returns how many refusals there were, by kind.
func (f *Refusals) Counts() map[string]int64 {
	counts := make(map[string]int64, len(f.counts))
	for kind, n := range f.counts {
		counts[kind] = n.Load()
	}
	return counts
}

// Origin records that a web page was refused. It returns err.
func (f *Refusals) Origin(r *http.Request, err error) error {
	f.Note(r, RefusedOrigin, err, slog.String("origin", cutShort(r.Header.Get("Origin"))),
		slog.String("host", cutShort(r.Host)))
	return err
}

// Token records that a token was refused, and returns the error for the client: after many wrong tokens from one source
// CodeRateLimited with RetryAfter. A request without a token does not count.
func (f *Refusals) Token(r *http.Request, token string, err error) error {
	if !errors.Is(err, registry.CodeUnauthenticated) {
		return err
	}
	f.Note(r, RefusedToken, err, slog.Bool("missing", token == ""))
	if token == "" {
		return err
	}
	f.sample(RefusedToken, registry.AuditEntry{
		Tenant: registry.DefaultTenant, Actor: f.sources.ActorOf(Identity{}, r), Action: registry.AuditLogin,
		Target: cutShort(r.URL.Path),
	}, err)
	if f.wrong.Take(f.sources.Network(r), 1) {
		return err
	}
	e := registry.Errorf(registry.CodeRateLimited,
		"Too many invalid tokens from this address. Check the token and retry later.")
	e.RetryAfter = wrongTokens.Refill() / 10
	return e
}

// Pairing records that a pairing request was refused: its source asked too often, or there was no room. It returns err.
func (f *Refusals) Pairing(r *http.Request, err error) error {
	switch {
	case errors.Is(err, registry.ErrPairingsFull):
		f.Note(r, RefusedPairing, err)
	case errors.Is(err, registry.CodeRateLimited):
		f.Note(r, RefusedRate, err)
	}
	return err
}

// Note logs a refusal, unless its kind has used up its log quota. The next line has the number of omitted lines. It
// logs no secrets: no query, and no headers except the given attrs.
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
		slog.String("source", f.sources.Network(r).Addr().String()),
		slog.Any("error", err),
	}, attrs...)
	if omitted > 0 {
		all = append(all, slog.Int("not_logged_before", omitted))
	}
	f.log.LogAttrs(context.Background(), slog.LevelWarn, "request refused", all...)
}

// cutShort truncates client input to 200 bytes for the log.
func cutShort(s string) string {
	const enough = 200
	if len(s) > enough {
		return s[:enough] + "…"
	}
	return s
}

// Limit is the rate of a token bucket: Burst at once, and Rate per second in the long run.
type Limit struct{ Rate, Burst float64 }

// Refill is the time that an empty bucket needs to be full again.
func (l Limit) Refill() time.Duration { return time.Duration(l.Burst / l.Rate * float64(time.Second)) }

// Bucket is a token bucket; zero is full. All times must come from one monotonic clock. Not for concurrent use.
type Bucket struct {
	spent float64
	at    time.Duration
}

func (b *Bucket) fill(l Limit, now time.Duration) {
	b.spent = max(0, b.spent-(now-b.at).Seconds()*l.Rate)
	b.at = now
}

// Take spends n if the bucket has n tokens.
func (b *Bucket) Take(l Limit, now time.Duration, n float64) bool {
	b.fill(l, now)
	if b.spent+n > l.Burst {
		return false
	}
	b.spent += n
	return true
}

// longestDebt bounds the time to pay a debt. Spending beyond it is forgotten.
const longestDebt = 2 // seconds

// Spend always spends n. It returns the time until the resulting debt is paid, zero if there is none.
func (b *Bucket) Spend(l Limit, now time.Duration, n float64) time.Duration {
	b.fill(l, now)
	b.spent = min(b.spent+n, l.Burst+longestDebt*l.Rate)
	return time.Duration(max(0, b.spent-l.Burst) / l.Rate * float64(time.Second))
}

// Refund returns n to the bucket. It returns the part of n that did not fit.
func (b *Bucket) Refund(n float64) (rest float64) {
	back := min(n, b.spent)
	b.spent -= back
	return n - back
}

const maxBuckets = 1 << 16

// Buckets are token buckets by key, all with one limit. They are safe for concurrent use.
type Buckets[K comparable] struct {
	limit   Limit
	most    int // keys
	started time.Time

	mu   sync.Mutex
	by   map[K]*Bucket
	next time.Duration // time of the next scan for full buckets
}

// NewBuckets returns buckets that are all full.
func NewBuckets[K comparable](l Limit) *Buckets[K] {
	return newBuckets[K](l, maxBuckets)
}

func newBuckets[K comparable](l Limit, most int) *Buckets[K] {
	return &Buckets[K]{limit: l, most: most, started: time.Now(), by: make(map[K]*Bucket)}
}

// Take spends n from the key's bucket if it has n tokens.
func (b *Buckets[K]) Take(key K, n float64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Since(b.started)
	return b.bucketLocked(key, now).Take(b.limit, now, n)
}

// Spend always spends n from the key's bucket. It returns the time until the resulting debt is paid.
func (b *Buckets[K]) Spend(key K, n float64) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Since(b.started)
	return b.bucketLocked(key, now).Spend(b.limit, now, n)
}

// Refund returns n to the key's bucket.
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

// pruneLocked evicts full buckets. If there are too many keys, it evicts those that have spent least, until three
// quarters of them are left: many keys with little use do not refill the bucket of another.
func (b *Buckets[K]) pruneLocked(now time.Duration) {
	if now < b.next && len(b.by) < b.most {
		return
	}
	b.next = now + b.limit.Refill()
	spent := make([]float64, 0, len(b.by))
	for key, bucket := range b.by {
		if bucket.fill(b.limit, now); bucket.spent == 0 {
			delete(b.by, key)
			continue
		}
		spent = append(spent, bucket.spent)
	}
	over := len(spent) - b.most*3/4
	if len(spent) < b.most || over <= 0 {
		return
	}
	slices.Sort(spent)
	most := spent[over-1]
	for key, bucket := range b.by {
		if bucket.spent <= most && over > 0 {
			delete(b.by, key)
			over--
		}
	}
}

// Auditor receives entries of the audit log. Note does not block and is safe for concurrent use. It sets the pod and,
// if missing, the time. An entry without a tenant is dropped.
type Auditor interface{ Note(registry.AuditEntry) }

// NoAudit is an Auditor that drops all entries.
type NoAudit struct{}

// Note implements Auditor.
func (NoAudit) Note(registry.AuditEntry) {}

// Requester returns the identity in the form that approvals store.
func (id Identity) Requester() registry.Requester {
	return registry.Requester{User: id.User, Credential: id.Credential, Name: id.Name}
}

// Actor returns the identity in the form that the audit log stores.
func (id Identity) Actor() registry.AuditActor {
	return registry.AuditActor{
		User: id.User, Credential: id.Credential, Name: id.Name, Roles: id.RoleNames(), Source: SourceName(id.Source),
	}
}

// ActorOf returns the identity as an audit log actor, with the source of the request.
func (s Sources) ActorOf(id Identity, r *http.Request) registry.AuditActor {
	id.Source = s.Network(r)
	return id.Actor()
}

// SourceName returns a source in the form that the audit log stores. A single address has no prefix length.
func SourceName(source netip.Prefix) string {
	switch {
	case !source.IsValid():
		return ""
	case source.IsSingleIP():
		return source.Addr().String()
	default:
		return source.String()
	}
}

// note is what a call's record stores about its caller, besides tenant and user.
type note struct {
	Admin      bool   `json:"admin,omitempty"`
	Roles      Roles  `json:"roles,omitempty"`
	Device     string `json:"device,omitempty"`
	Tools      string `json:"tools,omitempty"`
	Context    string `json:"context,omitempty"`
	Person     bool   `json:"person,omitempty"`
	Credential string `json:"credential,omitempty"`
}

const tokenNote = `{"admin":true,"credential":"` + CredentialToken + `"}`

// Note encodes the identity, except tenant and user, for OfNote on another pod. It contains no secret. It is encoded by
// hand because every call needs one: encoding/json took 2 % of the calling pod's time.
func (id Identity) Note() string {
	switch (note{id.Admin, id.Roles, id.Device, id.Tools, id.Context, id.Person, id.Credential}) {
	case note{Admin: true, Credential: CredentialToken}:
		return tokenNote
	case note{}:
		return ""
	}
	b := append(make([]byte, 0, noteRoom), `{"roles":`...)
	b = strconv.AppendUint(b, uint64(id.Roles), 10)
	if id.Admin {
		b = append(b, `,"admin":true`...)
	}
	if id.Person {
		b = append(b, `,"person":true`...)
	}
	for _, part := range [...]struct{ name, value string }{
		{`,"device":`, id.Device}, {`,"tools":`, id.Tools}, {`,"context":`, id.Context},
		{`,"credential":`, id.Credential},
	} {
		if part.value != "" {
			b = strictjson.AppendString(append(b, part.name...), part.value)
		}
	}
	return string(append(b, '}'))
}

// noteRoom is enough for most notes.
const noteRoom = 128

// OfNote returns the identity of a tenant and user from its note. A malformed note gives no roles and no rights.
func OfNote(tenant, user, text string) Identity {
	var n note
	if text != "" && json.Unmarshal([]byte(text), &n) != nil {
		n = note{}
	}
	return Identity{
		Tenant: tenant, User: user, Admin: n.Admin, Roles: n.Roles, Device: n.Device, Tools: n.Tools,
		Context: n.Context, Person: n.Person, Credential: n.Credential,
	}
}
