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
