package routing

import (
	"sync/atomic"
	"time"

	"github.com/farhand/farhand/internal/cache"
	"github.com/farhand/farhand/registry"
)

// Limits of each of the two generations of cached sessions and of their tool lists. 100,000 sessions take about 55 MB
// (BenchmarkRememberedRoutes). A pod that calls more of them reads some again.
const (
	routeBytes     = 32 << 20
	routeToolBytes = 16 << 20
)

// routeCache caches where sessions of other pods are and what they offer, for calls that name the session only by its
// id. Stale entries are harmless: the pod that holds the socket rejects a call that was decided on another claim, other
// attributes or another tool definition. Then the session is read again. It is safe for concurrent use.
type routeCache struct {
	bySession *cache.Cache[registry.Key, *cachedEntry]
	lists     toolLists // the sessions' tools; a route without its list is dropped
	live      atomic.Pointer[livePods]

	remembered, read atomic.Int64 // sessions of other pods that calls named by id: found in the cache, in the store
}

type cachedEntry struct {
	session    registry.Session
	attributes uint64
	tools      toolListKey
	asked      time.Time // when its read began: earlier changes are in it
}

// livePods are the pods that had a lease at this pod's last check.
type livePods struct {
	pods  map[string]bool
	asked time.Time
}

func newRouteCache() *routeCache {
	return &routeCache{
		bySession: cache.New[registry.Key, *cachedEntry](routeBytes, 0), lists: newToolLists(routeToolBytes),
	}
}

// get returns the cached entry of a session, read-only, and the digest of its attributes. It returns false if there is
// none, or if the session's pod has lost its lease since: a hung pod cannot reject stale calls.
func (r *routeCache) get(key registry.Key) (e registry.Entry, attributes uint64, ok bool) {
	c, ok := r.bySession.Get(key)
	if !ok {
		return e, 0, false
	}
	if live := r.live.Load(); live != nil && !live.pods[c.session.Pod] && !c.asked.After(live.asked) {
		return e, 0, false
	}
	tools, ok := r.lists.get(c.tools)
	return registry.Entry{Session: c.session, Tools: tools}, c.attributes, ok
}

// put caches a session whose read began at the time asked.
func (r *routeCache) put(e registry.Entry, asked time.Time) {
	tools := r.lists.keep(e.Tools)
	c := &cachedEntry{session: e.Session, attributes: e.Session.AttributesDigest(), tools: tools, asked: asked}
	r.bySession.Put(e.Session.Key, c, e.Session.MemorySize())
}

// drop removes a session that turned out to be elsewhere, or to offer something else, or whose pod did not answer a
// call. relied is when that call began. A route whose read began later is kept, because it is newer.
func (r *routeCache) drop(key registry.Key, relied time.Time) {
	if c, ok := r.bySession.Get(key); ok && !c.asked.After(relied) {
		r.bySession.Delete(key)
	}
}

// setLive sets the pods that had a lease at the time asked.
func (r *routeCache) setLive(pods map[string]bool, asked time.Time) {
	r.live.Store(&livePods{pods, asked})
}
