package auth

import (
	"sync"
	"time"
)

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
