package auth

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/farhand/farhand/internal/pause"
	"github.com/farhand/farhand/registry"
)

const (
	// DefaultPoll is how often a pod reads the log of changes. A revocation takes effect within twice this interval
	// plus one round trip to the store.
	DefaultPoll = 500 * time.Millisecond

	maxStale     = 2 * time.Second        // age of the last read of the log; after it, stored identities are rejected
	expiryPoll   = 250 * time.Millisecond // precision of expiry
	changesPage  = 1000
	readTimeout  = time.Second // of one read of the log
	startTimeout = 10 * time.Second
)

// ChangeReader is the part of registry.CredentialStore that Live needs.
type ChangeReader interface {
	Credential(ctx context.Context, tenant, id string) (registry.Credential, error)
	Changes(ctx context.Context, after registry.FeedID, limit int) (registry.ChangePage, error)
	Revocations(ctx context.Context, tenant string) ([]registry.CredentialChange, error)
}

// LiveConfig is what Live needs.
type LiveConfig struct {
	Store    ChangeReader
	Poll     time.Duration // how often the log of changes is read; default DefaultPoll
	Remember time.Duration // of a revocation, at least the life of a JWT; default registry.DefaultChangeTTL
	Log      *slog.Logger  // default: discard

	// Changed gets each page of new changes, in order, all again if some were missed. It must not block. May be nil.
	Changed func([]registry.CredentialChange)
}

// Live closes sockets, streams, calls and turns when their identity expires or is revoked on any pod. It follows the
// log of changes, and reads a tenant's stored revocations when it first needs them. It is safe for concurrent use.
type Live struct {
	cfg     LiveConfig
	changes *revocations
	bound   *boundIdentities

	loadingMu sync.Mutex
	loading   map[string]*load // by tenant: reads of stored revocations that run

	began  time.Time
	readAt atomic.Int64 // begin of the last successful read of the log, in nanoseconds after began; zero: none

	// Only the goroutine that reads the log uses these.
	place  registry.FeedID
	seq    int64
	caught bool // the log was read to its end, so each next change must have the next number
	tidied time.Time

	verify chan struct{} // capacity 1: look up bound identities
	due    dueLookups    // which ones
	stop   context.CancelFunc
	done   sync.WaitGroup
}

// load is a read that several callers wait for. err may be read when done is closed.
type load struct {
	done chan struct{}
	err  error
}

// NewLive returns a Live. Until Start it ends no identity, and rejects all identities from the store.
func NewLive(cfg LiveConfig) *Live {
	cfg.Poll, cfg.Remember = cmp.Or(cfg.Poll, DefaultPoll), cmp.Or(cfg.Remember, registry.DefaultChangeTTL)
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	return &Live{
		cfg: cfg, changes: newRevocations(), bound: newBoundIdentities(),
		began: time.Now(), verify: make(chan struct{}, 1), loading: make(map[string]*load),
	}
}

// Start reads the log of changes, and follows it until Close. Call it once. If it fails, nothing was started.
func (l *Live) Start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := l.read(ctx); err != nil {
		return err
	}
	running, stop := context.WithCancel(context.Background())
	l.stop = stop
	l.done.Go(func() { l.follow(running) })
	l.done.Go(func() { l.expire(running) })
	l.done.Go(func() { l.lookUp(running) })
	return nil
}

// Close stops the background work and waits for it. Bound identities no longer end by themselves.
func (l *Live) Close() {
	if l.stop != nil {
		l.stop()
	}
	l.done.Wait()
}

// Fresh returns nil if the log was read within maxStale, else an *registry.Error with CodeStoreUnavailable. Without
// recent reads, credentials from the store may have been revoked.
func (l *Live) Fresh() error {
	at := l.readAt.Load()
	if at == 0 || time.Since(l.began)-time.Duration(at) > maxStale {
		return registry.StoreUnavailable("read the log of changes", errStale)
	}
	return nil
}

// Check reports whether an identity has ended that was authenticated just now. CodeUnauthenticated: it has expired or
// was revoked. CodeStoreUnavailable: the store did not answer. Check asks the store once per tenant.
func (l *Live) Check(ctx context.Context, id *Identity) error {
	known, err := l.ended(id)
	if err != nil || known {
		return err
	}
	if err := l.loadRevocations(ctx, id.Tenant); err != nil {
		return err
	}
	_, err = l.ended(id)
	return err
}

// Verify is Check for an identity that was authenticated earlier, or on another pod. It always asks the store.
func (l *Live) Verify(ctx context.Context, id *Identity) error {
	if _, err := l.credentialOf(ctx, id); err != nil {
		return err
	}
	if id.User != "" || id.Device != "" || strings.HasPrefix(id.Credential, CredentialJWT+":") {
		if err := l.loadRevocations(ctx, id.Tenant); err != nil {
			return err
		}
	}
	_, err := l.ended(id)
	return err
}

// ended returns the error if an identity is known to have ended. known is false if the store may know more.
func (l *Live) ended(id *Identity) (known bool, err error) {
	if id.Expired(time.Now()) {
		return true, errExpired()
	}
	revoked, known := l.changes.revoked(id)
	if revoked {
		return true, errRevoked()
	}
	return known, nil
}

// loadRevocations reads a tenant's stored revocations. Concurrent callers share one read.
func (l *Live) loadRevocations(ctx context.Context, tenant string) error {
	l.loadingMu.Lock()
	running, shared := l.loading[tenant]
	if !shared {
		running = &load{done: make(chan struct{}), err: registry.StoreUnavailable("read revocations", errAbandoned)}
		l.loading[tenant] = running
	}
	l.loadingMu.Unlock()
	if shared {
		<-running.done
		return running.err
	}
	defer func() { // also if the store panics: the others must not wait for ever
		l.loadingMu.Lock()
		delete(l.loading, tenant)
		l.loadingMu.Unlock()
		close(running.done)
	}()
	running.err = l.readRevocations(context.WithoutCancel(ctx), tenant)
	return running.err
}

// errAbandoned is the error of those who shared a read that did not return.
var errAbandoned = errors.New("the read of another request did not return")

func (l *Live) readRevocations(ctx context.Context, tenant string) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	since := l.changes.now()
	all, err := l.cfg.Store.Revocations(ctx, tenant)
	if err != nil {
		return registry.StoreUnavailable("read revocations", err)
	}
	l.changes.addStored(tenant, all, since)
	return nil
}

// credentialOf returns the stored credential of an identity, zero if it is of another kind. It returns an error if the
// store no longer has it, or does not answer.
func (l *Live) credentialOf(ctx context.Context, id *Identity) (c registry.Credential, err error) {
	s, ok := credentialSubject(id)
	if !ok || s.kind != registry.ChangeCredential {
		return c, nil
	}
	bounded, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	c, err = l.cfg.Store.Credential(bounded, id.Tenant, s.id)
	switch {
	case errors.Is(err, registry.CodeNotFound):
		return c, errRevoked()
	case err != nil:
		return c, registry.StoreUnavailable("read credential", err)
	}
	return c, nil
}

// Bind returns a context that ends with the identity; its cause is then CodeUnauthenticated. release also ends it, and
// must be called. Both are free for an identity that can neither expire nor be revoked.
func (l *Live) Bind(ctx context.Context, id *Identity) (bound context.Context, release func()) {
	if !id.MayEnd() {
		return ctx, func() {}
	}
	bound, cancel := context.WithCancelCause(ctx)
	let := l.Watch(id, cancel)
	return bound, func() {
		let()
		cancel(nil)
	}
}

// Watch calls end once, soon after the identity ends. end must not block. If the identity has already ended, Watch
// itself calls end. release stops watching and must be called. end may still be running then.
func (l *Live) Watch(id *Identity, end func(error)) (release func()) {
	if !id.MayEnd() {
		return func() {}
	}
	known := false
	n, err := l.bound.add(id, end, func() (err error) {
		known, err = l.ended(id)
		return err
	})
	if err != nil {
		end(err)
		return func() {}
	}
	switch {
	case !known: // what the earlier check relied on is not loaded now
		l.lookUpAll()
	case l.changes.changed(id): // perhaps since it was authenticated
		l.lookUpOf(id.Tenant, id.Credential)
	}
	return func() { l.bound.release(n) }
}

func (l *Live) expire(ctx context.Context) {
	for pause.For(ctx, expiryPoll) == nil {
		notifyAll(l.bound.removeExpired(time.Now()))
	}
}

// notifyAll calls the end callbacks. The caller must hold no lock, because callbacks may release other bindings.
func notifyAll(all []ending) {
	for _, e := range all {
		e.notify(e.err)
	}
}
