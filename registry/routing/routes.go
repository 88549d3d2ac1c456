package routing

import (
	"slices"
	"sync"
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

// proofLimit is how many proofs a session keeps. A device that reconnects more often during a call cannot answer it.
const proofLimit = 4

// Introduce handles the device's introduction, which decides which calls it may answer. The calls of its former
// connection are in flight here from now on. Introduce is called once. It reports whether the caller must store the
// change with Update.
func (l *LocalSession) Introduce(said registry.Introduction) (changed bool) {
	l.mu.Lock()
	before := l.before
	l.before = nil
	s := inherit(l.session, said, before, l.gone)
	if before != nil && before.DeviceID == said.DeviceID && !s.Since.IsZero() {
		l.named = said.DeviceID
	}
	changed = len(s.Proofs) != len(l.session.Proofs) || len(s.ReclaimableBy) != len(l.session.ReclaimableBy) ||
		s.OwnerProof() != l.session.OwnerProof()
	l.session.Proofs, l.session.Since = s.Proofs, s.Since
	l.session.ReclaimableBy, l.session.ReclaimableUntil = s.ReclaimableBy, s.ReclaimableUntil
	l.mu.Unlock()
	if l.hub.Get(l.key) == l { // a connection that has lost the session takes over no calls
		l.rejoin(l.hub.detached.takeAll(l.key, s.Proofs))
	}
	return changed
}

// inherit returns s with what its device has proven: which calls it may answer, and which heirs may take it back.
// former is the previous claim, nil if none is remembered; gone reports that its device was really gone.
func inherit(
	s registry.Session, said registry.Introduction, former *registry.Session, gone bool,
) registry.Session {
	var proofs []string
	presented := said.Proof()
	if presented != "" {
		proofs = append(proofs, presented)
	}
	proofs = append(proofs, s.Proofs...)
	if former != nil {
		same := presented != "" && slices.Contains(former.Proofs, presented)
		alike := presented == "" && gone && !former.Can(registry.CapabilityResumeToken) &&
			former.DeviceID == said.DeviceID && registry.SameHolder(former.OwnerProof(), s.OwnerProof())
		if same || alike {
			proofs = append(proofs, former.Proofs...)
			s.Since = former.Seniority()
		}
	}
	s.Proofs = nil
	for _, p := range proofs {
		if len(s.Proofs) < proofLimit && !slices.Contains(s.Proofs, p) {
			s.Proofs = append(s.Proofs, p)
		}
	}
	if slices.ContainsFunc(s.Proofs, func(p string) bool { return slices.Contains(s.ReclaimableBy, p) }) {
		s.ReclaimableBy, s.ReclaimableUntil = nil, time.Time{}
	}
	return s
}

// listeners is a table of goroutines that wait for news of a call or a ping, by id. The zero value is ready to use.
type listeners[T any] struct {
	mu   sync.Mutex
	byID map[string]map[chan T]struct{}
}

// listen returns a channel that gets the values of notify for the id from now on, and a function that ends this. The
// channel holds capacity values; further values are dropped.
func (l *listeners[T]) listen(id string, capacity int) (news <-chan T, stop func()) {
	c := make(chan T, capacity)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byID == nil {
		l.byID = make(map[string]map[chan T]struct{})
	}
	if l.byID[id] == nil {
		l.byID[id] = make(map[chan T]struct{})
	}
	l.byID[id][c] = struct{}{}
	return c, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.byID[id], c)
		if len(l.byID[id]) == 0 {
			delete(l.byID, id)
		}
	}
}

// notify sends v to all listeners of the id. It does not block.
func (l *listeners[T]) notify(id string, v T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.byID[id] {
		select {
		case c <- v:
		default:
		}
	}
}
