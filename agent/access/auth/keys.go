package auth

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/farhand/farhand/internal/cache"
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
	Live  *Live // knows what has changed, and whether it is up to date

	// Prove checks that the request comes from the device whose public key the credential has. Nil: such credentials
	// are rejected.
	Prove func(ctx context.Context, r *http.Request, c registry.Credential) error
	Log   *slog.Logger // default: discard
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
	done chan struct{}
}

// knownKey is a cached credential.
type knownKey struct {
	credential registry.Credential // without its approved tools
	identity   Identity
	generation int64 // of the changes at the time of the read
	read       time.Time
	touched    atomic.Int64 // when its use was last recorded, in Unix seconds
}

// NewKeys returns an authenticator. It stores when credentials were used only after Start.
func NewKeys(cfg KeysConfig) *Keys {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Keys{
		cfg: cfg, known: cache.New[[sha256.Size]byte, *knownKey](keyCacheBytes, 0),
		unknown: cache.New[[sha256.Size]byte, time.Time](noCacheBytes, noAge),
	}
}

// NamesUsers returns true.
func (*Keys) NamesUsers() bool { return true }

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
	if err != nil {
		return Identity{}, err
	}
	if key.credential.Kind != kind {
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
	key, err := knownKeyOf(c, digest)
	if err != nil {
		return nil, err
	}
	key.generation, key.read = generation, now
	if !c.LastUsed.IsZero() {
		key.touched.Store(c.LastUsed.Unix())
	}
	k.known.Put(digest, key, 2*key.credential.MemorySize()) // the identity holds much of it a second time
	return key, nil
}

// knownKeyOf makes the identity of a credential.
func knownKeyOf(c registry.Credential, digest [sha256.Size]byte) (*knownKey, error) {
	stored, err := hex.DecodeString(c.Digest)
	if err != nil || subtle.ConstantTimeCompare(stored, digest[:]) != 1 {
		return nil, errNoKey()
	}
	c.Approved = nil // not needed here; read from the store when needed
	id, err := IdentityOf(c)
	if err != nil {
		return nil, err
	}
	return &knownKey{credential: c, identity: id}, nil
}

// IdentityOf returns the identity of a stored credential.
func IdentityOf(c registry.Credential) (Identity, error) {
	id := Identity{
		Tenant: c.Tenant, User: c.User, Device: c.DeviceID, Tools: c.Tools, Context: c.Context, Person: c.Person,
		Credential: CredentialName(c.Kind, c.ID), Name: c.Name, Issued: c.CreatedAt, Expires: c.ExpiresAt,
	}
	return id, id.SetRoles(c.Roles...)
}

// errNoKey is the error for a missing, expired or revoked credential. It does not say which.
func errNoKey() error {
	return registry.Errorf(registry.CodeUnauthenticated, "There is no such key. It may have expired, or was revoked.")
}

// use is the Use of a credential.
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
	k.stop, k.done = stop, make(chan struct{})
	go func() {
		defer close(k.done)
		for ctx.Err() == nil {
			select {
			case <-ctx.Done():
			case <-time.After(touchFlush):
				k.flush(ctx)
			}
		}
	}()
}

// Close stops the background work, and stores the uses that are left, within ctx.
func (k *Keys) Close(ctx context.Context) {
	if k.stop == nil {
		return
	}
	k.stop()
	<-k.done
	k.flush(ctx)
}

// flush stores which credentials were used. If the store fails, the uses are dropped: the next use is recorded again.
func (k *Keys) flush(ctx context.Context) {
	k.mu.Lock()
	used := k.used
	k.used = nil
	k.mu.Unlock()
	for len(used) > 0 {
		n := min(len(used), touchBatch)
		bounded, cancel := context.WithTimeout(ctx, keyTimeout)
		err := k.cfg.Store.TouchCredentials(bounded, used[:n]...)
		cancel()
		if err != nil {
			k.cfg.Log.Debug("the use of credentials was not noted", "credentials", len(used), "error", err)
			return
		}
		used = used[n:]
	}
}

// lineLimit limits the log lines of one kind.
var lineLimit = Limit{Rate: 0.5, Burst: 10}

// maxLineKinds bounds the kinds in memory. A kind may contain a tenant's name.
const maxLineKinds = 1 << 12

// Lines limits log lines per kind: the first ten are written, then one every two seconds. Each line has the number of
// lines omitted before it. At maxLineKinds, kinds with a full quota are evicted, and any others until three quarters
// are left. Their omitted counts are lost. It is safe for concurrent use.
type Lines[K comparable] struct {
	started time.Time

	mu    sync.Mutex
	kinds map[K]*lineKind
}

type lineKind struct {
	bucket  Bucket
	omitted int // since the last line
}

// NewLines returns a limit with a full quota for each kind.
func NewLines[K comparable]() *Lines[K] {
	return &Lines[K]{started: time.Now(), kinds: make(map[K]*lineKind)}
}

// May reports whether a line of a kind may be written now, and how many were omitted before it.
func (l *Lines[K]) May(kind K) (omitted int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Since(l.started)
	k := l.kinds[kind]
	if k == nil {
		l.pruneLocked(now)
		k = &lineKind{}
		l.kinds[kind] = k
	}
	if !k.bucket.Take(lineLimit, now, 1) {
		k.omitted++
		return 0, false
	}
	omitted, k.omitted = k.omitted, 0
	return omitted, true
}

// pruneLocked makes room for another kind.
func (l *Lines[K]) pruneLocked(now time.Duration) {
	if len(l.kinds) < maxLineKinds {
		return
	}
	for kind, k := range l.kinds {
		if k.bucket.fill(lineLimit, now); k.bucket.spent == 0 || len(l.kinds) > maxLineKinds*3/4 {
			delete(l.kinds, kind)
		}
	}
}
