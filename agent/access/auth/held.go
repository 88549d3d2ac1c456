package auth

import (
	"sync"
	"time"
)

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
