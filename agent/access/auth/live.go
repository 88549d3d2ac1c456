package auth

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/farhand/farhand/registry"
)

const (
	// DefaultPoll is how often a pod reads the log of changes. What was revoked ends within twice that, and a round
	// trip to the store.
	DefaultPoll = 500 * time.Millisecond

	// maxStale is how long ago the log may have been read for identities from the store to be let in.
	maxStale = 2 * time.Second

	expiryPoll   = 250 * time.Millisecond // how exactly identities expire
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
	Store ChangeReader
	Poll  time.Duration // how often the log of changes is read; default DefaultPoll

	// Remember is how long a revocation is remembered, at least as long as what was revoked can be presented: the
	// lifetime of a JWT. Default registry.DefaultChangeTTL.
	Remember time.Duration
	Log      *slog.Logger // default: discard

	// Changed is told of changes as they are read, each once, in order. It must return at once. Nil: nobody is told.
	Changed func([]registry.CredentialChange)
}

// Live ends what outlives the check of its identity: sockets, streams, calls and turns of an identity that expires or
// is revoked on any pod. It follows the log of changes, and reads what the store remembers of a tenant when somebody of
// that tenant is checked first. It is safe for concurrent use.
type Live struct {
	cfg     LiveConfig
	changes *revocations
	held    *held
	loading singleflight.Group // by tenant

	began  time.Time
	readAt atomic.Int64 // when the last read of the log that succeeded began: nanoseconds after began, zero: never

	// Of the goroutine that reads the log.
	place  registry.FeedID
	seq    int64
	caught bool // the log was read to its end, so every change must be the next one
	tidied time.Time

	verify chan struct{} // has one element if all that is held is to be looked up
	stop   context.CancelFunc
	done   sync.WaitGroup
}

// NewLive returns what has not read the log of changes yet. Until Start it ends nothing, and lets nobody from the store
// in.
func NewLive(cfg LiveConfig) *Live {
	if cfg.Poll <= 0 {
		cfg.Poll = DefaultPoll
	}
	if cfg.Remember <= 0 {
		cfg.Remember = registry.DefaultChangeTTL
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Live{
		cfg: cfg, changes: newRevocations(), held: newHeld(), began: time.Now(), verify: make(chan struct{}, 1),
	}
}

// Start reads the log of changes, and follows it until Close. It is called once. With an error nothing was started.
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

// Close ends the following, and waits until nothing of it is left. What is held then does not end any more by itself.
func (l *Live) Close() {
	if l.stop != nil {
		l.stop()
	}
	l.done.Wait()
}

// Fresh returns nil if the log was read lately, else an *registry.Error with CodeStoreUnavailable: identities whose
// credentials are in the store may have been revoked.
func (l *Live) Fresh() error {
	at := l.readAt.Load()
	if at == 0 || time.Since(l.began)-time.Duration(at) > maxStale {
		return registry.StoreUnavailable("read the log of changes", errStale)
	}
	return nil
}

// Check reports whether an identity that was proved just now has ended: CodeUnauthenticated says that it has expired or
// was revoked. It asks the store once for each tenant: CodeStoreUnavailable says that it did not answer.
func (l *Live) Check(ctx context.Context, id *Identity) error {
	known, err := l.ended(id)
	if err != nil || known {
		return err
	}
	if err := l.load(ctx, id.Tenant); err != nil {
		return err
	}
	_, err = l.ended(id)
	return err
}

// Verify is Check for an identity that was proved a while ago, or on another pod. It asks the store each time.
func (l *Live) Verify(ctx context.Context, id *Identity) error {
	if err := l.credentialGone(ctx, id); err != nil {
		return err
	}
	if id.User != "" || id.Device != "" || strings.HasPrefix(id.Credential, CredentialJWT+":") {
		if err := l.load(ctx, id.Tenant); err != nil {
			return err
		}
	}
	_, err := l.ended(id)
	return err
}

// ended returns why an identity has ended, nil if it has not as far as is known. It reports false if the store may
// know more.
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

// load reads what the store remembers of a tenant. Whoever asks at the same time shares the answer.
func (l *Live) load(ctx context.Context, tenant string) error {
	_, err, _ := l.loading.Do(tenant, func() (any, error) {
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), readTimeout)
		defer cancel()
		since := l.changes.now()
		all, err := l.cfg.Store.Revocations(bounded, tenant)
		if err != nil {
			return nil, registry.StoreUnavailable("read revocations", err)
		}
		l.changes.load(tenant, all, since)
		return nil, nil
	})
	return err
}

// credentialGone returns an error if the store has the credential of an identity no longer, or does not answer.
func (l *Live) credentialGone(ctx context.Context, id *Identity) error {
	s, ok := credentialSubject(id)
	if !ok || s.kind != registry.ChangeCredential {
		return nil
	}
	bounded, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	_, err := l.cfg.Store.Credential(bounded, id.Tenant, s.id)
	switch {
	case errors.Is(err, registry.CodeNotFound):
		return errRevoked()
	case err != nil:
		return registry.StoreUnavailable("read credential", err)
	}
	return nil
}

// Hold returns a context that ends when the identity does; context.Cause then is an *registry.Error with
// CodeUnauthenticated. release ends it, too, and must be called. For an identity that can neither expire nor be revoked
// both cost nothing.
func (l *Live) Hold(ctx context.Context, id *Identity) (held context.Context, release func()) {
	if !id.MayEnd() {
		return ctx, func() {}
	}
	held, cancel := context.WithCancelCause(ctx)
	let := l.Watch(id, cancel)
	return held, func() {
		let()
		cancel(nil)
	}
}

// Watch has end called when the identity ends: once, soon, and not while Watch is called unless the identity has ended
// already. It must return at once. release has it forgotten, and must be called; end may be running then.
func (l *Live) Watch(id *Identity, end func(error)) (release func()) {
	if !id.MayEnd() {
		return func() {}
	}
	known := false
	n, err := l.held.add(id, end, func() (err error) {
		known, err = l.ended(id)
		return err
	})
	if err != nil {
		end(err)
		return func() {}
	}
	if !known { // nobody knows any more, or yet, what its check has relied on
		l.lookUpAll()
	}
	return func() { l.held.release(n) }
}

// Held returns how many identities are held that can end.
func (l *Live) Held() int { return l.held.count() }

// expire ends what expires.
func (l *Live) expire(ctx context.Context) {
	ticker := time.NewTicker(expiryPoll)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			tell(l.held.takeExpired(now))
		}
	}
}

// tell tells holders that their identity has ended. No lock is held: they may let go of others.
func tell(all []ending) {
	for _, e := range all {
		e.tell(e.err)
	}
}
