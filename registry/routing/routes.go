package routing

import (
	"sync/atomic"
	"time"

	"github.com/farhand/farhand/internal/cache"
	"github.com/farhand/farhand/registry"
)

const (
	// routeLife is how long a pod relies on what it read about a session of another pod, for calls that name the
	// session by its id alone. If the other pod does not hold the session or the tool any more, it says so, and the
	// session is read again. It is also read again before arguments are called invalid. A caller that asks for more
	// than the id (a user, a device, labels) is never answered from memory. One inaccuracy remains: arguments that
	// satisfy a definition of up to a second ago go to the device unchecked by its current definition.
	routeLife = time.Second

	// routeAhead is how long before the end of routeLife the first caller reads the session again. Otherwise all
	// callers of a busy session would read it at the moment it is forgotten.
	routeAhead = routeLife / 5

	// routeLimit is how many sessions are remembered at least.
	routeLimit = 1 << 14
)

// routeCache remembers for a short time where sessions are and what they offer, so that a busy caller asks the store
// once a second and not once a call. It is safe for concurrent use.
type routeCache struct {
	bySession *cache.Cache[registry.Key, *cachedEntry]
}

type cachedEntry struct {
	entry    registry.Entry
	until    time.Time
	renewing atomic.Bool // a caller is reading it again
}

func newRouteCache() routeCache {
	return routeCache{cache.New[registry.Key, *cachedEntry](routeLimit, routeLife)}
}

// get returns the remembered entry of a session, nil if there is none or it is too old. It is read-only. If renew is
// not zero, the caller should read the session again within that time, which is how long the entry is still valid, and
// call notRenewed if that failed. Only one caller at a time gets a renew.
func (r routeCache) get(key registry.Key) (e *registry.Entry, renew time.Duration) {
	c, ok := r.bySession.Get(key)
	if !ok {
		return nil, 0
	}
	valid := time.Until(c.until)
	switch {
	case valid < 0:
		return nil, 0
	case valid >= routeAhead || !c.renewing.CompareAndSwap(false, true):
		return &c.entry, 0
	default:
		return &c.entry, valid
	}
}

// notRenewed lets another caller read the session again.
func (r routeCache) notRenewed(key registry.Key) {
	if c, ok := r.bySession.Get(key); ok {
		c.renewing.Store(false)
	}
}

// put remembers a session.
func (r routeCache) put(e registry.Entry) {
	r.bySession.Put(e.Session.Key, &cachedEntry{entry: e, until: time.Now().Add(routeLife)}, 1)
}

// drop forgets a session that turned out to be elsewhere, or to offer something else.
func (r routeCache) drop(key registry.Key) { r.bySession.Delete(key) }
