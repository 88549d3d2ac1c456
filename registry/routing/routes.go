package routing

import (
	"sync/atomic"
	"time"

	"github.com/farhand/farhand/internal/cache"
	"github.com/farhand/farhand/registry"
)

const (
	// routeLife is how long a pod relies on what it read about a session of another pod, for calls that name the
	// session by its id alone. The pod that is asked says if it does not hold the session, or the tool, any more, and
	// then it is read again, as it is before arguments are called invalid. Who asks for more than the id (a user, a
	// device, labels) is never answered from memory. What is left is that arguments which satisfy a definition of up to
	// a second ago go to the device unchecked by the one it has now.
	routeLife = time.Second

	// routeAhead is how long before that the session is read again, by the first caller who comes. Else all who call a
	// busy session would read it at the moment it is forgotten.
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
	renewing atomic.Bool // a caller has been sent to read it again
}

func newRouteCache() routeCache {
	return routeCache{cache.New[registry.Key, *cachedEntry](routeLimit, routeLife)}
}

// get returns what is remembered of a session, nil if that is nothing or too old. Nobody changes it. One caller is told
// to read the session again, within the time renew, which is how long what is remembered still holds; it says with
// notRenewed if that failed. The others get zero.
func (r routeCache) get(key registry.Key) (e *registry.Entry, renew time.Duration) {
	c, ok := r.bySession.Get(key)
	if !ok {
		return nil, 0
	}
	left := time.Until(c.until)
	switch {
	case left < 0:
		return nil, 0
	case left >= routeAhead || !c.renewing.CompareAndSwap(false, true):
		return &c.entry, 0
	default:
		return &c.entry, left
	}
}

// notRenewed has another caller read the session again.
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
