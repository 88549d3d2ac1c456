package auth

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/farhand/farhand/internal/cache"
	"github.com/farhand/farhand/internal/pause"
	"github.com/farhand/farhand/registry"
)

const (
	keyCacheBytes = 16 << 20 // of cached credentials, approximately, per generation of the cache; there are two
	noCacheBytes  = 1 << 20  // of cached digests without a credential
	noEntrySize   = 160
	keyAge        = time.Minute            // how long a credential is cached
	noAge         = 500 * time.Millisecond // how long a missing credential is cached; new ones work soon
	keyTimeout    = 2 * time.Second        // of one read of a credential
	touchEvery    = 30 * time.Second       // how often the use of one credential is stored
	touchFlush    = 5 * time.Second        // how long uses are batched
	maxTouches    = 10_000                 // uses waiting to be stored
	touchBatch    = 500
)

// KeyStore is the part of registry.CredentialStore that Keys needs.
type KeyStore interface {
	CredentialByDigest(ctx context.Context, digest string) (registry.Credential, error)
	TouchCredentials(ctx context.Context, digests ...string) error
}

// KeysConfig is what Keys needs.
type KeysConfig struct {
	Store KeyStore
	Live  *Live        // knows what has changed, and whether it is up to date
	Log   *slog.Logger // default: discard

	// Prove checks that a request comes from the device whose public key the credential has. Nil: it is rejected.
	Prove func(ctx context.Context, r *http.Request, c registry.Credential) error
}

// Keys authenticates API keys and device credentials. It caches credentials for keyAge, and missing ones for noAge. It
// rejects all of them while the log of changes cannot be read.
type Keys struct {
	cfg     KeysConfig
	known   *cache.Cache[[sha256.Size]byte, *knownKey]
	unknown *cache.Cache[[sha256.Size]byte, time.Time]

	mu   sync.Mutex
	used []string // digests of credentials whose use is not stored yet

	stop context.CancelFunc
	done sync.WaitGroup
}

type knownKey struct {
	credential registry.Credential // without its approved tools
	identity   Identity
	generation int64 // of the changes at the time of the read
	read       time.Time
	touched    atomic.Int64 // when its use was last recorded, in Unix seconds
}

// NewKeys returns an authenticator. It stores when credentials were used only after Start.
func NewKeys(cfg KeysConfig) *Keys {
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	return &Keys{
		cfg: cfg, known: cache.New[[sha256.Size]byte, *knownKey](keyCacheBytes, 0),
		unknown: cache.New[[sha256.Size]byte, time.Time](noCacheBytes, noAge),
	}
}

// Authenticate implements Authenticator.
func (k *Keys) Authenticate(ctx context.Context, r *http.Request, token string) (Identity, error) {
	kind, ok := SecretKind(token)
	if !ok {
		return Identity{}, errNoKey()
	}
	if err := k.cfg.Live.Fresh(); err != nil {
		return Identity{}, err
	}
	digest, now := sha256.Sum256([]byte(token)), time.Now()
	key, err := k.key(ctx, digest, now)
	switch {
	case err != nil:
		return Identity{}, err
	case key.credential.Kind != kind:
		return Identity{}, errNoKey()
	}
	if len(key.credential.PublicKey) > 0 {
		if k.cfg.Prove == nil {
			return Identity{}, registry.Errorf(registry.CodeUnauthenticated, "The device must sign with its key.")
		}
		if err := k.cfg.Prove(ctx, r, key.credential); err != nil {
			return Identity{}, err
		}
	}
	k.note(key, now)
	id := key.identity
	id.Use = use{k, key}
	return id, nil
}

// key returns the credential with a digest, from the cache or the store.
func (k *Keys) key(ctx context.Context, digest [sha256.Size]byte, now time.Time) (*knownKey, error) {
	changes := k.cfg.Live.changes
	if key, ok := k.known.Get(digest); ok && now.Sub(key.read) < keyAge &&
		changes.current(key.credential.Tenant, key.credential.ID, key.generation) {
		return key, nil
	}
	if at, ok := k.unknown.Get(digest); ok && now.Sub(at) < noAge {
		return nil, errNoKey()
	}
	generation := changes.now()
	ctx, cancel := context.WithTimeout(ctx, keyTimeout)
	defer cancel()
	c, err := k.cfg.Store.CredentialByDigest(ctx, hex.EncodeToString(digest[:]))
	switch {
	case errors.Is(err, registry.CodeNotFound):
		k.known.Delete(digest)
		k.unknown.Put(digest, now, noEntrySize)
		return nil, errNoKey()
	case err != nil:
		return nil, registry.StoreUnavailable("read credential", err)
	}
	stored, err := hex.DecodeString(c.Digest)
	if err != nil || subtle.ConstantTimeCompare(stored, digest[:]) != 1 {
		return nil, errNoKey()
	}
	c.Approved = nil // not needed here; read from the store when needed
	id, err := IdentityOf(c)
	if err != nil {
		return nil, err
	}
	key := &knownKey{credential: c, identity: id, generation: generation, read: now}
	if !c.LastUsed.IsZero() {
		key.touched.Store(c.LastUsed.Unix())
	}
	k.known.Put(digest, key, 2*key.credential.MemorySize()) // the identity holds much of it a second time
	return key, nil
}

// IdentityOf returns the identity of a stored credential.
func IdentityOf(c registry.Credential) (Identity, error) {
	id := Identity{
		Tenant: c.Tenant, User: c.User, Device: c.DeviceID, Tools: c.Tools, Context: c.Context, Person: c.Person,
		Credential: CredentialName(c.Kind, c.ID), Name: c.Name, Secret: c.Digest[:min(16, len(c.Digest))],
		Issued: c.CreatedAt, Expires: c.ExpiresAt,
	}
	return id, id.SetRoles(c.Roles...)
}

// errNoKey is the error for a missing, expired or revoked credential. It does not say which.
func errNoKey() error {
	return registry.Errorf(registry.CodeUnauthenticated, "There is no such key. It may have expired, or was revoked.")
}

type use struct {
	keys *Keys
	key  *knownKey
}

// NoteUse implements Use.
func (u use) NoteUse() { u.keys.note(u.key, time.Now()) }

// note records the use of a credential, at most once per touchEvery.
func (k *Keys) note(key *knownKey, now time.Time) {
	last, at := key.touched.Load(), now.Unix()
	if at-last < int64(touchEvery/time.Second) || !key.touched.CompareAndSwap(last, at) {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.used) < maxTouches {
		k.used = append(k.used, key.credential.Digest)
	}
}

// Start begins to store when credentials were used, until Close. Call it once.
func (k *Keys) Start() {
	ctx, stop := context.WithCancel(context.Background())
	k.stop = stop
	k.done.Go(func() {
		for pause.For(ctx, touchFlush) == nil {
			k.flush(ctx)
		}
	})
}

// Close stops the background work, and stores the uses that are left, within ctx.
func (k *Keys) Close(ctx context.Context) {
	if k.stop == nil {
		return
	}
	k.stop()
	k.done.Wait()
	k.flush(ctx)
}

// flush stores which credentials were used. If the store fails, the uses are dropped: the next use is recorded again.
func (k *Keys) flush(ctx context.Context) {
	k.mu.Lock()
	used := k.used
	k.used = nil
	k.mu.Unlock()
	for batch := range slices.Chunk(used, touchBatch) {
		bounded, cancel := context.WithTimeout(ctx, keyTimeout)
		err := k.cfg.Store.TouchCredentials(bounded, batch...)
		cancel()
		if err != nil {
			k.cfg.Log.Debug("last use of credentials not stored", "credentials", len(used), "error", err)
			return
		}
	}
}

var lineLimit = Limit{Rate: 0.5, Burst: 10} // of one kind

// maxLineKinds bounds the kinds in memory. A kind may contain a tenant's name.
const maxLineKinds = 1 << 12

// Lines limits log lines per kind: the first ten are written, then one every two seconds. Each line has the number of
// lines omitted before it, unless too many kinds omit lines. It is safe for concurrent use.
type Lines[K comparable] struct {
	quotas *Buckets[K]

	mu      sync.Mutex
	omitted map[K]int // since the last line
}

// NewLines returns a limit with a full quota for each kind.
func NewLines[K comparable]() *Lines[K] {
	return &Lines[K]{quotas: newBuckets[K](lineLimit, maxLineKinds), omitted: make(map[K]int)}
}

// May reports whether a line of a kind may be written now, and how many were omitted before it.
func (l *Lines[K]) May(kind K) (omitted int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.quotas.Take(kind, 1) {
		if len(l.omitted) == maxLineKinds {
			clear(l.omitted)
		}
		l.omitted[kind]++
		return 0, false
	}
	omitted = l.omitted[kind]
	delete(l.omitted, kind)
	return omitted, true
}

// CredentialToken is Identity.Credential of requests with the shared token.
const CredentialToken = "token"

// StaticToken accepts one token, shared by all devices and callers, and while it is rotated also its predecessors. Its
// holders are admins.
type StaticToken struct {
	digest   [sha256.Size]byte
	previous [][sha256.Size]byte
	rotation *Rotation // nil without previous tokens
}

// NewStaticToken returns an authenticator for the token, which must not be empty.
func NewStaticToken(token string) StaticToken {
	return StaticToken{digest: sha256.Sum256([]byte(token))}
}

// Accepting returns an authenticator that also accepts previous tokens, and notes their use.
func (s StaticToken) Accepting(previous []string, rotation *Rotation) StaticToken {
	s.previous, s.rotation = nil, rotation
	for _, token := range previous {
		s.previous = append(s.previous, sha256.Sum256([]byte(token)))
	}
	return s
}

// Authenticate implements Authenticator. It takes the same time for every wrong token.
func (s StaticToken) Authenticate(_ context.Context, r *http.Request, token string) (Identity, error) {
	digest := sha256.Sum256([]byte(token))
	current, previous := subtle.ConstantTimeCompare(digest[:], s.digest[:]), 0
	for _, old := range s.previous {
		previous |= subtle.ConstantTimeCompare(digest[:], old[:])
	}
	if token == "" || current|previous != 1 {
		return Identity{}, registry.Errorf(registry.CodeUnauthenticated, "A valid bearer token is required.")
	}
	if current != 1 {
		s.rotation.note(r)
	}
	return Identity{Tenant: registry.DefaultTenant, Admin: true, Credential: CredentialToken}, nil
}

// NamesUsers returns false.
func (StaticToken) NamesUsers() bool { return false }

// Rotation counts and logs the use of previous tokens, so that an operator knows when to remove them. It is safe for
// concurrent use.
type Rotation struct {
	sources Sources
	log     *slog.Logger
	lines   *Lines[struct{}]
	uses    atomic.Int64
}

// NewRotation returns a Rotation that writes to log.
func NewRotation(sources Sources, log *slog.Logger) *Rotation {
	return &Rotation{sources: sources, log: log, lines: NewLines[struct{}]()}
}

// Uses returns how many requests and connections used a previous token.
func (n *Rotation) Uses() int64 { return n.uses.Load() }

// note records a request with a previous token. The log is limited like that of refusals.
func (n *Rotation) note(r *http.Request) {
	n.uses.Add(1)
	omitted, ok := n.lines.May(struct{}{})
	if !ok {
		return
	}
	n.log.LogAttrs(context.Background(), slog.LevelWarn, "a token of FARHAND_TOKEN_PREVIOUS is still used",
		slog.String("path", cutShort(r.URL.Path)), slog.String("source", n.sources.Network(r).Addr().String()),
		slog.String("user_agent", cutShort(r.UserAgent())), slog.Int("not_logged_before", omitted))
}
