package auth

import (
	"context"
	"errors"
	"sync"
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

// held are the identities that something holds, each once however much holds it. It is safe for concurrent use.
type held struct {
	mu   sync.Mutex
	by   map[heldKey]*heldIdentity
	next time.Time // no identity expires before; zero: none expires
}

// heldKey is what tells identities apart that can end.
type heldKey struct {
	tenant, credential, user, device string
	issued, expires                  int64
}

type heldIdentity struct {
	key      heldKey
	identity Identity
	first    *holder
}

// holder is something that holds an identity. It is in the list of its identity until that ends or it lets go.
type holder struct {
	of         *heldIdentity // nil: no longer
	prev, next *holder
	end        func(error)
}

func newHeld() *held { return &held{by: make(map[heldKey]*heldIdentity)} }

func keyOf(id *Identity) heldKey {
	key := heldKey{tenant: id.Tenant, credential: id.Credential, user: id.User, device: id.Device}
	if !id.Issued.IsZero() {
		key.issued = id.Issued.UnixNano()
	}
	if !id.Expires.IsZero() {
		key.expires = id.Expires.UnixNano()
	}
	return key
}

// add adds a holder, unless refuse says why the identity has ended already.
func (h *held) add(id *Identity, end func(error), refuse func() error) (*holder, error) {
	key := keyOf(id)
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := refuse(); err != nil {
		return nil, err
	}
	of := h.by[key]
	if of == nil {
		of = &heldIdentity{key: key, identity: *id}
		h.by[key] = of
		if e := id.Expires; !e.IsZero() && (h.next.IsZero() || e.Before(h.next)) {
			h.next = e
		}
	}
	n := &holder{of: of, next: of.first, end: end}
	if of.first != nil {
		of.first.prev = n
	}
	of.first = n
	return n, nil
}

// release has a holder let go. It may be called after the identity has ended, and more than once.
func (h *held) release(n *holder) {
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

// take removes the identities that are to end, and returns what to tell their holders.
func (h *held) take(ends func(*Identity) error) []ending {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.takeLocked(ends)
}

// ending is a holder that is told why its identity has ended.
type ending struct {
	tell func(error)
	err  error
}

func (h *held) takeLocked(ends func(*Identity) error) []ending {
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

// takeExpired removes the identities that have expired. It looks at all of them only if one may have.
func (h *held) takeExpired(now time.Time) []ending {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.next.IsZero() || now.Before(h.next) {
		return nil
	}
	h.next = time.Time{}
	return h.takeLocked(func(id *Identity) error {
		if id.Expired(now) {
			return errExpired()
		}
		if e := id.Expires; !e.IsZero() && (h.next.IsZero() || e.Before(h.next)) {
			h.next = e
		}
		return nil
	})
}

// all returns the identities that are held.
func (h *held) all() []Identity {
	h.mu.Lock()
	defer h.mu.Unlock()
	ids := make([]Identity, 0, len(h.by))
	for _, of := range h.by {
		ids = append(ids, of.identity)
	}
	return ids
}

// count returns how many identities are held.
func (h *held) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.by)
}
