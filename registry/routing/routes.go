package routing

import (
	"sync"
	"time"

	"github.com/farhand/farhand/registry"
)

const (
	// routeLife is how long a pod relies on what it read about a session of another pod, for calls that name the session
	// by its id alone. The pod that is asked says if it does not hold the session, or the tool, any more, and then it is
	// read again, as it is before arguments are called invalid. Who asks for more than the id (a user, a device, labels)
	// is never answered from memory. What is left is that arguments which satisfy a definition of up to a second ago go
	// to the device unchecked by the one it has now.
	routeLife = time.Second

	// routeAhead is how long before that the session is read again, by the first caller who comes. Else all who call a busy
	// session would read it at the moment it is forgotten.
	routeAhead = routeLife / 5

	// routeLimit bounds each of the two generations of what is remembered.
	routeLimit = 1 << 14
)

// routeCache remembers for a short time where sessions are and what they offer, so that a busy caller asks the store
// once a second and not once a call.
type routeCache struct {
	now func() time.Time

	mu       sync.Mutex
	current  map[registry.Key]*cachedEntry
	previous map[registry.Key]*cachedEntry
	since    time.Time // when current was begun
}

type cachedEntry struct {
	entry    registry.Entry
	until    time.Time
	renewing bool // somebody has been sent to read it again
}

func newRouteCache() *routeCache {
	return &routeCache{now: time.Now, current: make(map[registry.Key]*cachedEntry), since: time.Now()}
}

// get returns what is remembered of a session, nil if that is nothing or too old. Nobody changes it. One caller is told to read
// the session again, within the time renew, which is how long what is remembered still holds; it says with notRenewed if
// that failed. The others get zero.
func (r *routeCache) get(key registry.Key) (e *registry.Entry, renew time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, ok := r.current[key]
	if !ok {
		c, ok = r.previous[key]
	}
	if !ok {
		return nil, 0
	}
	left := c.until.Sub(r.now())
	if left < 0 {
		return nil, 0
	}
	if left >= routeAhead || c.renewing {
		return &c.entry, 0
	}
	c.renewing = true
	return &c.entry, left
}

// notRenewed has another caller read the session again.
func (r *routeCache) notRenewed(key registry.Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, generation := range []map[registry.Key]*cachedEntry{r.current, r.previous} {
		if c := generation[key]; c != nil {
			c.renewing = false
		}
	}
}

// put remembers a session. What was remembered more than two lives ago is let go with it.
func (r *routeCache) put(e registry.Entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	if len(r.current) >= routeLimit || now.Sub(r.since) > routeLife {
		r.previous, r.current, r.since = r.current, make(map[registry.Key]*cachedEntry), now
	}
	r.current[e.Session.Key] = &cachedEntry{entry: e, until: now.Add(routeLife)}
}

// drop forgets a session that turned out to be elsewhere, or to offer something else.
func (r *routeCache) drop(key registry.Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.current, key)
	delete(r.previous, key)
}
