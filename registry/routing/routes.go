package routing

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/farhand/farhand/internal/cache"
	"github.com/farhand/farhand/registry"
)

const (
	// routeBytes limits each of the two generations of cached sessions. 100,000 sessions take about 55 MB
	// (BenchmarkRememberedRoutes). A pod that calls more of them reads some again.
	routeBytes = 32 << 20

	// routeOverhead is the approximate size of a cached session without its texts, in bytes: the session, its key, and
	// their entries in the maps.
	routeOverhead = 460

	// routeToolBytes limits each of the two generations of the cached sessions' tool lists.
	routeToolBytes = 16 << 20
)

// routeCache caches where sessions of other pods are and what they offer, for calls that name the session only by its
// id. Stale entries are harmless: a call says on which claim, session attributes and tool definition it was decided.
// The pod that holds the socket rejects the call if they are not current. Then the session is read again. It is safe
// for concurrent use.
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
	r.bySession.Put(e.Session.Key, c, routeOverhead+textSize(e.Session))
}

// textSize returns the size of a session's texts in bytes.
func textSize(s registry.Session) int {
	n := len(s.Key.Tenant) + len(s.Key.Session) + len(s.Pod) + len(s.Name) + len(s.DeviceID) + len(s.DeviceName) +
		len(s.UserID) + len(s.Platform)
	for k, v := range s.Labels {
		n += len(k) + len(v) + 2*textOverhead
	}
	for _, list := range [][]string{s.Capabilities, s.Proofs, s.ReclaimableBy} {
		for _, text := range list {
			n += len(text) + textOverhead
		}
	}
	return n
}

// textOverhead is the size of a string without its bytes.
const textOverhead = 16

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
	s.Proofs = distinct(proofs)
	if slices.ContainsFunc(s.Proofs, func(p string) bool { return slices.Contains(s.ReclaimableBy, p) }) {
		s.ReclaimableBy, s.ReclaimableUntil = nil, time.Time{}
	}
	return s
}

// distinct returns the first proofLimit proofs of a list without duplicates.
func distinct(proofs []string) []string {
	var kept []string
	for _, p := range proofs {
		if len(kept) < proofLimit && !slices.Contains(kept, p) {
			kept = append(kept, p)
		}
	}
	return kept
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
	return c, func() { l.remove(id, c) }
}

func (l *listeners[T]) remove(id string, c chan T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.byID[id], c)
	if len(l.byID[id]) == 0 {
		delete(l.byID, id)
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
