package auth

import (
	"context"
	"errors"
	"time"

	"github.com/farhand/farhand/registry"
)

// The errors of identities that have ended. Each is new: whoever answers with it may add to it.
func errRevoked() error {
	return registry.Errorf(registry.CodeUnauthenticated, "The credential was revoked. Ask for another one.")
}

func errExpired() error {
	return registry.Errorf(registry.CodeUnauthenticated, "The credential has expired. Ask for another one.")
}

var errStale = errors.New("the log of changes could not be read for a while")

// follow reads the log of changes again and again.
func (l *Live) follow(ctx context.Context) {
	ticker := time.NewTicker(l.cfg.Poll)
	defer ticker.Stop()
	failing := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
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

// read reads what is new in the log, and ends what it revokes.
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

// missed reports whether the log was lost, or has lost changes that were not read.
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

// apply notes the changes of a page.
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
			l.changes.distrust() // of another release: nobody knows what it means
			l.lookUpAll()
		}
		l.place, l.seq = c.Place, c.Seq
		revoked = revoked || c.Revoked
	}
	if !revoked {
		return
	}
	tell(l.held.take(func(id *Identity) error { return l.endedBy(id, page.Changes) }))
}

// endedBy returns why an identity that is held has ended with one of the changes, nil if it has not.
func (l *Live) endedBy(id *Identity, changes []registry.CredentialChange) error {
	if revoked, _ := l.changes.revoked(id); revoked {
		return errRevoked()
	}
	if !id.Issued.IsZero() {
		return nil
	}
	for _, c := range changes { // it was there before them, whenever it was issued
		if c.Revoked && c.Tenant == id.Tenant && (c.Kind == registry.ChangeUser && c.ID == id.User ||
			c.Kind == registry.ChangeDevice && c.ID == id.Device) {
			return errRevoked()
		}
	}
	return nil
}

// lookUpAll has all credentials that are held looked up, soon.
func (l *Live) lookUpAll() {
	select {
	case l.verify <- struct{}{}:
	default:
	}
}

// lookUp looks up, each time it is asked to, whether the identities that are held have ended. It is for the rare case
// that the log has lost changes; nobody waits for it.
func (l *Live) lookUp(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.verify:
		}
		for _, id := range l.held.all() {
			if !l.lookUpOne(ctx, &id) {
				return
			}
		}
	}
}

// lookUpOne ends an identity that was revoked. It tries until the store says so or not, or reports false when ctx has
// ended.
func (l *Live) lookUpOne(ctx context.Context, id *Identity) bool {
	for {
		err := l.credentialGone(ctx, id)
		if err == nil {
			err = l.Check(ctx, id)
		}
		switch {
		case err == nil:
			return true
		case errors.Is(err, registry.CodeUnauthenticated):
			key := keyOf(id)
			tell(l.held.take(func(other *Identity) error {
				if keyOf(other) == key {
					return err
				}
				return nil
			}))
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(readTimeout):
		}
	}
}
