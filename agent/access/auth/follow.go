package auth

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/farhand/farhand/internal/pause"
	"github.com/farhand/farhand/registry"
)

// The errors of identities that have ended. Each call returns a new error, because callers may add to it.
func errRevoked() error {
	return registry.Errorf(registry.CodeUnauthenticated, "The credential was revoked. Use another credential.")
}

func errExpired() error {
	return registry.Errorf(registry.CodeUnauthenticated, "The credential has expired. Use another credential.")
}

var errStale = errors.New("the log of changes was unavailable")

// follow polls the log of changes every cfg.Poll until ctx ends.
func (l *Live) follow(ctx context.Context) {
	ticker := time.NewTicker(l.cfg.Poll)
	defer ticker.Stop()
	failing := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C: // at once after a read that took longer
		}
		bounded, cancel := context.WithTimeout(ctx, readTimeout)
		err := l.read(bounded)
		cancel()
		if failed := err != nil && ctx.Err() == nil; failed != failing {
			failing = failed
			if failed {
				l.cfg.Log.Warn("revocations not read; identities from the store are rejected until they are",
					"error", err)
			} else if ctx.Err() == nil {
				l.cfg.Log.Info("revocations are read again")
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
			l.cfg.Log.Warn("credential changes missed; all credentials in use are checked")
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
		if c.Kind == registry.ChangeCredential && !c.Revoked { // its secret may have changed
			key, device := registry.CredentialKey, registry.CredentialDevice
			l.lookUpOf(c.Tenant, CredentialName(key, c.ID), CredentialName(device, c.ID))
		}
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

// dueLookups are the bound identities to look up. It is safe for concurrent use.
type dueLookups struct {
	mu  sync.Mutex
	all bool
	of  map[tenantCredential]struct{}
}

type tenantCredential struct{ tenant, credential string }

// maxDue is how many credentials are looked up one by one.
const maxDue = 1000

func (d *dueLookups) add(all bool, tenant string, credentials ...string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.of == nil {
		d.of = make(map[tenantCredential]struct{})
	}
	for _, c := range credentials {
		d.of[tenantCredential{tenant, c}] = struct{}{}
	}
	d.all = d.all || all || len(d.of) > maxDue
}

func (d *dueLookups) take() (all bool, of map[tenantCredential]struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	all, of = d.all, d.of
	d.all, d.of = false, nil
	return all, of
}

// lookUpAll requests a lookup of all bound credentials. It does not wait.
func (l *Live) lookUpAll() { l.lookUpDue(true, "") }

// lookUpOf requests a lookup of credentials, as far as they are bound. It does not wait.
func (l *Live) lookUpOf(tenant string, credentials ...string) {
	l.lookUpDue(false, tenant, credentials...)
}

func (l *Live) lookUpDue(all bool, tenant string, credentials ...string) {
	l.due.add(all, tenant, credentials...)
	select {
	case l.verify <- struct{}{}:
	default:
	}
}

// lookUp checks, on each request of lookUpAll and lookUpOf, whether bound identities have ended or will end. It is for
// the rare cases that the log has lost changes, or that a credential has changed. It blocks no caller.
func (l *Live) lookUp(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.verify:
		}
		all, of := l.due.take()
		for _, id := range l.bound.all() {
			if _, due := of[tenantCredential{id.Tenant, id.Credential}]; all || due {
				l.lookUpOne(ctx, &id)
			}
		}
	}
}

// lookUpOne ends an identity that was revoked. It retries every readTimeout until the store answers or ctx ends.
func (l *Live) lookUpOne(ctx context.Context, id *Identity) {
	for ctx.Err() == nil {
		c, err := l.credentialOf(ctx, id)
		if err == nil {
			err = l.checkSecret(id, c)
		}
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

// checkSecret returns the error if a bound identity's secret is none of its credential's. The identity of a former
// secret ends with it.
func (l *Live) checkSecret(id *Identity, c registry.Credential) error {
	switch {
	case id.Secret == "" || c.Digest == "" || strings.HasPrefix(c.Digest, id.Secret):
		return nil
	case !strings.HasPrefix(c.Former, id.Secret):
		return errExpired()
	}
	l.bound.endAt(keyOf(id), c.FormerEnds)
	return nil
}

// boundIdentities has the identities that connections, calls and others use. Each identity is in it once, with all its
// bindings. It is safe for concurrent use.
type boundIdentities struct {
	mu   sync.Mutex
	by   map[identityKey]*boundIdentity
	next time.Time // no identity expires earlier; zero: none expires
}

// identityKey distinguishes identities that can end.
type identityKey struct {
	tenant, credential, user, device string
	secret                           string
	issued, expires                  int64
}

type boundIdentity struct {
	key      identityKey
	identity Identity
	first    *binding
}

// binding is one connection, call or other user of an identity. It is in the identity's list until the identity ends or
// release is called.
type binding struct {
	of         *boundIdentity // nil: no longer bound
	prev, next *binding
	end        func(error)
}

func newBoundIdentities() *boundIdentities {
	return &boundIdentities{by: make(map[identityKey]*boundIdentity)}
}

func keyOf(id *Identity) identityKey {
	key := identityKey{tenant: id.Tenant, credential: id.Credential, user: id.User, device: id.Device,
		secret: id.Secret}
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
	key := keyOf(id)
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := refuse(); err != nil {
		return nil, err
	}
	of := h.by[key]
	if of == nil {
		of = &boundIdentity{key: key, identity: *id}
		h.by[key] = of
		if e := id.Expires; !e.IsZero() && (h.next.IsZero() || e.Before(h.next)) {
			h.next = e
		}
	}
	n := &binding{of: of, next: of.first, end: end}
	if of.first != nil {
		of.first.prev = n
	}
	of.first = n
	return n, nil
}

// release removes a binding. It may be called after the identity has ended, and more than once.
func (h *boundIdentities) release(n *binding) {
	h.mu.Lock()
	defer h.mu.Unlock()
	of := n.of
	if of == nil {
		return
	}
	if n.prev != nil {
		n.prev.next = n.next
	} else {
		of.first = n.next
	}
	if n.next != nil {
		n.next.prev = n.prev
	}
	n.of, n.prev, n.next = nil, nil, nil
	if of.first == nil && h.by[of.key] == of {
		delete(h.by, of.key)
	}
}

// endAt ends a bound identity at a time, unless it ends earlier.
func (h *boundIdentities) endAt(key identityKey, end time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	of := h.by[key]
	if of == nil || !of.identity.Expires.IsZero() && of.identity.Expires.Before(end) {
		return
	}
	of.identity.Expires = end
	if h.next.IsZero() || end.Before(h.next) {
		h.next = end
	}
}

// removeEnded removes the identities for which ends returns an error. It returns the callbacks to call.
func (h *boundIdentities) removeEnded(ends func(*Identity) error) []ending {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.removeEndedLocked(ends)
}

// ending is the end callback of a binding, with the reason.
type ending struct {
	notify func(error)
	err    error
}

func (h *boundIdentities) removeEndedLocked(ends func(*Identity) error) []ending {
	var all []ending
	for key, of := range h.by {
		err := ends(&of.identity)
		if err == nil {
			continue
		}
		delete(h.by, key)
		for n := of.first; n != nil; {
			next := n.next
			all = append(all, ending{n.end, err})
			n.of, n.prev, n.next = nil, nil, nil
			n = next
		}
	}
	return all
}

// removeExpired removes the identities that have expired. It scans them only if one can have expired since the last
// scan.
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
		if e := id.Expires; !e.IsZero() && (h.next.IsZero() || e.Before(h.next)) {
			h.next = e
		}
		return nil
	})
}

// all returns the bound identities.
func (h *boundIdentities) all() []Identity {
	h.mu.Lock()
	defer h.mu.Unlock()
	ids := make([]Identity, 0, len(h.by))
	for _, of := range h.by {
		ids = append(ids, of.identity)
	}
	return ids
}
