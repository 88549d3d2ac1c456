package auth

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/farhand/farhand/internal/pause"
	"github.com/farhand/farhand/registry"
)

// The errors of identities that have ended. Each call returns a new error, because callers may add to it.
func errRevoked() error {
	return registry.Errorf(registry.CodeUnauthenticated, "The credential was revoked. Ask for another one.")
}

func errExpired() error {
	return registry.Errorf(registry.CodeUnauthenticated, "The credential has expired. Ask for another one.")
}

var errStale = errors.New("the log of changes could not be read for a while")

// follow polls the log of changes every cfg.Poll until ctx ends.
func (l *Live) follow(ctx context.Context) {
	failing := false
	for pause.For(ctx, l.cfg.Poll) == nil {
		bounded, cancel := context.WithTimeout(ctx, readTimeout)
		err := l.read(bounded)
		cancel()
		if failed := err != nil && ctx.Err() == nil; failed != failing {
			failing = failed
			if failed {
				l.cfg.Log.Warn("the log of revocations cannot be read; identities from the store are refused",
					"error", err)
			} else if ctx.Err() == nil {
				l.cfg.Log.Info("the log of revocations is read again")
			}
		}
	}
}

// read reads new changes from the log, and ends the identities that they revoke.
func (l *Live) read(ctx context.Context) error {
	asked := time.Since(l.began)
	for {
		page, err := l.cfg.Store.Changes(ctx, l.place, changesPage)
		if err != nil {
			return err
		}
		if l.missed(page) {
			l.cfg.Log.Warn("changes of credentials were missed; all that are in use are looked up")
			l.place, l.seq, l.caught = registry.FeedID{}, 0, false
			l.changes.distrust()
			l.lookUpAll()
			continue // from the beginning
		}
		l.apply(page)
		if len(page.Changes) < changesPage {
			break
		}
	}
	l.caught = true
	l.readAt.Store(int64(max(asked, 1)))
	if now := time.Now(); now.Sub(l.tidied) > time.Minute {
		l.tidied = now
		l.changes.forget(now, now.Add(-l.cfg.Remember))
	}
	return nil
}

// missed reports whether the log was lost, or has lost unread changes.
func (l *Live) missed(page registry.ChangePage) bool {
	if !l.caught {
		return false
	}
	next := l.seq
	for _, c := range page.Changes {
		if next++; c.Seq != next {
			return true
		}
	}
	return page.Last < l.seq
}

func (l *Live) apply(page registry.ChangePage) {
	if len(page.Changes) == 0 {
		if !l.caught && l.seq == 0 {
			l.seq = page.Last
		}
		return
	}
	if l.cfg.Changed != nil {
		l.cfg.Changed(page.Changes)
	}
	revoked := false
	for _, c := range page.Changes {
		if !l.changes.note(c) {
			l.changes.distrust() // a kind that this release does not know
			l.lookUpAll()
		}
		l.place, l.seq = c.Place, c.Seq
		revoked = revoked || c.Revoked
	}
	if revoked {
		notifyAll(l.bound.removeEnded(func(id *Identity) error { return l.endedBy(id, page.Changes) }))
	}
}

// endedBy returns the error if one of the changes has ended a bound identity, else nil.
func (l *Live) endedBy(id *Identity, changes []registry.CredentialChange) error {
	if revoked, _ := l.changes.revoked(id); revoked {
		return errRevoked()
	}
	if !id.Issued.IsZero() {
		return nil
	}
	for _, c := range changes { // without an issue time: it was bound before the changes, so it is older
		if c.Revoked && c.Tenant == id.Tenant && (c.Kind == registry.ChangeUser && c.ID == id.User ||
			c.Kind == registry.ChangeDevice && c.ID == id.Device) {
			return errRevoked()
		}
	}
	return nil
}

// lookUpAll requests a lookup of all bound credentials. It does not wait.
func (l *Live) lookUpAll() {
	select {
	case l.verify <- struct{}{}:
	default:
	}
}

// lookUp checks, on each request of lookUpAll, whether the bound identities have ended. It is for the rare case that
// the log has lost changes. It blocks no caller.
func (l *Live) lookUp(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.verify:
		}
		for _, id := range l.bound.distinct() {
			l.lookUpOne(ctx, &id)
		}
	}
}

// lookUpOne ends an identity that was revoked. It retries every readTimeout until the store answers or ctx ends.
func (l *Live) lookUpOne(ctx context.Context, id *Identity) {
	for ctx.Err() == nil {
		err := l.credentialGone(ctx, id)
		if err == nil {
			err = l.Check(ctx, id)
		}
		if err == nil {
			return
		}
		if errors.Is(err, registry.CodeUnauthenticated) {
			key := keyOf(id)
			notifyAll(l.bound.removeEnded(func(other *Identity) error {
				if keyOf(other) == key {
					return err
				}
				return nil
			}))
			return
		}
		_ = pause.For(ctx, readTimeout)
	}
}

// boundIdentities has the identity of each connection, call or other binding. It is safe for concurrent use.
type boundIdentities struct {
	mu   sync.Mutex
	all  map[*binding]struct{}
	next time.Time // no identity expires earlier; zero: none expires
}

// binding is one use of an identity. It is bound until the identity ends or release is called.
type binding struct {
	identity Identity
	end      func(error)
}

// identityKey distinguishes identities that can end.
type identityKey struct {
	tenant, credential, user, device string
	issued, expires                  int64
}

func keyOf(id *Identity) identityKey {
	key := identityKey{tenant: id.Tenant, credential: id.Credential, user: id.User, device: id.Device}
	if !id.Issued.IsZero() {
		key.issued = id.Issued.UnixNano()
	}
	if !id.Expires.IsZero() {
		key.expires = id.Expires.UnixNano()
	}
	return key
}

// add adds a binding, unless refuse returns an error because the identity has already ended.
func (h *boundIdentities) add(id *Identity, end func(error), refuse func() error) (*binding, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := refuse(); err != nil {
		return nil, err
	}
	b := &binding{*id, end}
	h.all[b] = struct{}{}
	h.expectLocked(id.Expires)
	return b, nil
}

// expectLocked records that an identity expires.
func (h *boundIdentities) expectLocked(at time.Time) {
	if !at.IsZero() && (h.next.IsZero() || at.Before(h.next)) {
		h.next = at
	}
}

// release removes a binding. It may be called after the identity has ended, and more than once.
func (h *boundIdentities) release(b *binding) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.all, b)
}

// removeEnded removes the identities for which ends returns an error. It returns the callbacks to call.
func (h *boundIdentities) removeEnded(ends func(*Identity) error) []ending {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.removeEndedLocked(ends)
}

type ending struct {
	notify func(error)
	err    error
}

func (h *boundIdentities) removeEndedLocked(ends func(*Identity) error) (all []ending) {
	for b := range h.all {
		if err := ends(&b.identity); err != nil {
			delete(h.all, b)
			all = append(all, ending{b.end, err})
		}
	}
	return all
}

// removeExpired removes the identities that have expired. It scans them only if one can have expired.
func (h *boundIdentities) removeExpired(now time.Time) []ending {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.next.IsZero() || now.Before(h.next) {
		return nil
	}
	h.next = time.Time{}
	return h.removeEndedLocked(func(id *Identity) error {
		if id.Expired(now) {
			return errExpired()
		}
		h.expectLocked(id.Expires)
		return nil
	})
}

func (h *boundIdentities) distinct() map[identityKey]Identity {
	h.mu.Lock()
	defer h.mu.Unlock()
	ids := make(map[identityKey]Identity)
	for b := range h.all {
		ids[keyOf(&b.identity)] = b.identity
	}
	return ids
}
