package memory

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/farhand/farhand/registry"
)

// What the store remembers of sessions that are not connected any more, in bytes of all tenants. They leave in a
// minute. What has no room is not remembered: a call of it is told that there is no such session, or no such tool.
const (
	maxGone      = 64 << 20 // of 100,000 sessions with a few labels each
	maxGoneLists = 64 << 20 // of their tools: sessions with equal tools have one list
)

// goneSession is what the store remembers of a session that is not connected any more.
type goneSession struct {
	life
	session  registry.Session
	expected expected
}

// size is about what it takes in memory beside its list of tools.
func (g *goneSession) size() int {
	sum := g.session.MemorySize()
	for name, value := range g.expected.labels {
		sum += len(name) + len(value) + 32
	}
	return sum
}

// goneList is a list of tools that sessions which are gone are expected to offer.
type goneList struct {
	life
	tools toolList
}

func (l *goneList) size() (sum int) {
	for _, t := range l.tools {
		sum += t.Size() + 256
	}
	return sum
}

// forgetLocked removes a session and remembers for a while that it was connected. For as long as back, its device is
// expected to connect again.
func (m *Store) forgetLocked(stored *storedSession, back time.Duration) {
	now, key := m.opts.Now(), stored.session.Key
	expires := life{now.Add(m.opts.SessionTTL)}
	gone := &goneSession{life: expires, session: stored.session}
	if back > 0 {
		gone.expected = m.expectLocked(key, stored.leaves(now), min(back, m.opts.SessionTTL))
	}
	_ = m.gone.put(key.Tenant, key, gone) // or there is no room: see maxGone
	m.sessions.remove(key.Tenant, key)
	m.changes++
}

// expectLocked returns what is expected of a session for so long from now on: nothing if there is no room for its list.
func (m *Store) expectLocked(key registry.Key, e expected, d time.Duration) expected {
	now := m.opts.Now()
	if !e.isDue(now) {
		return expected{}
	}
	list := &goneList{life: life{now.Add(m.opts.SessionTTL)}, tools: e.tools}
	if m.goneLists.put(key.Tenant, e.tools.id(), list) != nil {
		return expected{}
	}
	if m.expecting[key.Tenant] == nil {
		m.expecting[key.Tenant] = make(map[registry.Key]struct{})
	}
	m.expecting[key.Tenant][key] = struct{}{}
	return e.within(now, d)
}

// expectedLocked returns a session of which something is expected, and what; nil if nothing is.
func (m *Store) expectedLocked(key registry.Key) (*registry.Session, *expected) {
	now := m.opts.Now()
	if gone := m.gone.get(key.Tenant, key, now); gone != nil && gone.expected.isDue(now) {
		return &gone.session, &gone.expected
	}
	if live := m.liveLocked(key); live != nil && live.expected.isDue(now) {
		return &live.session, &live.expected
	}
	return nil, nil
}

// forgetExpectedLocked forgets what is expected no longer.
func (m *Store) forgetExpectedLocked() {
	for tenant, keys := range m.expecting {
		for key := range keys {
			if s, _ := m.expectedLocked(key); s != nil {
				continue
			}
			delete(keys, key)
			if live := m.liveLocked(key); live != nil {
				live.expected = expected{}
			}
		}
		if len(keys) == 0 {
			delete(m.expecting, tenant)
		}
	}
}

// maxExpected is how many tools are expected of a session: twice as many as one offers by default.
const maxExpected = 256

// expected is what a session is expected to offer until a time, because the connection before it did. The zero value
// expects nothing.
type expected struct {
	tools  toolList
	device string // of that connection, and its labels: the next one has not said yet what its own are
	labels map[string]string
	until  time.Time
}

func (e *expected) isDue(now time.Time) bool { return len(e.tools) > 0 && now.Before(e.until) }

// within returns e, expected for so long from now on.
func (e expected) within(now time.Time, d time.Duration) expected {
	e.until = now.Add(d)
	return e
}

// settle notes that the session has registered tools: all are there soon.
func (e *expected) settle(now time.Time) {
	if limit := now.Add(registry.SettleWait); e.until.After(limit) {
		e.until = limit
	}
}

// leaves returns what the next connection of a session is expected to offer: what this one does, and what is still
// expected of it.
func (stored *storedSession) leaves(now time.Time) expected {
	former := &stored.expected
	if !former.isDue(now) {
		former = &expected{}
	}
	next := expected{
		tools: stored.tools, device: cmp.Or(stored.session.DeviceID, former.device),
		labels: stored.session.Labels, until: now.Add(registry.RegisterWait),
	}
	missing := func(t registry.ToolSpec) bool {
		_, offered := stored.tools.get(t.Name)
		return !offered
	}
	// Else the list is the session's own. One that always comes back with other tools is expected to have its last
	// ones.
	if slices.ContainsFunc(former.tools, missing) && len(former.tools)+len(stored.tools) <= maxExpected {
		next.tools = registry.MergeTools(former.tools, stored.tools, nil)
	}
	if len(next.labels) == 0 {
		next.labels = former.labels
	}
	return next
}

// Awaited implements registry.Directory. It looks at the sessions of which something is expected, and copies what it
// returns only: devices of a fleet may all be away at once, and many calls wait for them.
func (m *Store) Awaited(_ context.Context, q registry.Query) ([]registry.Awaited, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	now := m.opts.Now()
	type found struct {
		session  *registry.Session
		expected *expected
		away     bool
	}
	var all []found
	add := func(s *registry.Session, e *expected, isAway bool) {
		if e.isDue(now) && e.answers(q, s) {
			all = append(all, found{s, e, isAway})
		}
	}
	look := func(key registry.Key) {
		switch live := m.liveLocked(key); {
		case live == nil, m.podLiveLocked(live.session.Pod):
			if s, e := m.expectedLocked(key); s != nil {
				add(s, e, live == nil)
			}
		case q.SessionID != "": // its pod has died, and is not swept yet: it leaves
			left := live.leaves(now)
			add(&live.session, &left, true)
		}
	}
	if q.SessionID != "" {
		look(registry.Key{Tenant: q.Tenant, Session: q.SessionID})
	} else {
		for key := range m.expecting[q.Tenant] {
			look(key)
		}
	}
	if q.SessionID == "" && m.anyDeadLocked() {
		for _, stored := range m.sessions.byTenant[q.Tenant] {
			if now.Before(stored.expires) && !m.podLiveLocked(stored.session.Pod) {
				left := stored.leaves(now)
				add(&stored.session, &left, true)
			}
		}
	}
	slices.SortFunc(all, func(a, b found) int {
		return cmp.Or(cmp.Compare(b.session.Generation, a.session.Generation),
			strings.Compare(a.session.Key.Session, b.session.Key.Session))
	})
	all = all[:min(len(all), pageSize(q.Limit))]
	page := make([]registry.Awaited, len(all))
	for i, f := range all {
		s := *f.session
		if f.away {
			s = away(s)
		}
		page[i] = registry.Awaited{
			Session: s.Clone(), Tools: slices.Clone(f.expected.tools), Left: f.expected.until.Sub(now),
		}
	}
	return page, nil
}

// away returns what is told of a session without a connection.
func away(s registry.Session) registry.Session {
	return registry.Session{
		Key: s.Key, Generation: s.Generation, UserID: s.UserID, DeviceID: s.DeviceID, Bound: s.Bound, Labels: s.Labels,
	}
}

// answers reports whether a session is one that the query asks for: as it is now, or as it was before.
func (e *expected) answers(q registry.Query, s *registry.Session) bool {
	if _, offered := e.tools.get(q.Tool); q.Tool != "" && !offered {
		return false
	}
	if q.Matches(*s) {
		return true
	}
	before := *s
	before.DeviceID, before.Labels = e.device, e.labels
	return q.Matches(before)
}

// toolList is tools by name. It never changes, so sessions with equal tools have the one that their pod has.
type toolList []registry.ToolSpec

// listID tells lists apart by where they are in memory.
type listID struct {
	first *registry.ToolSpec
	n     int
}

// id returns the id of a list that is not empty.
func (l toolList) id() listID { return listID{&l[0], len(l)} }

// sharedList is a list, and how many sessions have it.
type sharedList struct {
	tools    toolList
	sessions int
}

// newToolList returns the list of tools, which are ordered already if they come from a pod. The last of a name counts.
func newToolList(tools []registry.ToolSpec) toolList {
	rises := func(a, b registry.ToolSpec) bool { return a.Name < b.Name }
	for i := 1; i < len(tools); i++ {
		if !rises(tools[i-1], tools[i]) {
			return registry.MergeTools(nil, tools, nil)
		}
	}
	return toolList(slices.Clip(tools))
}

// get returns the tool of a name.
func (l toolList) get(name string) (registry.ToolSpec, bool) {
	byName := func(t registry.ToolSpec, name string) int { return strings.Compare(t.Name, name) }
	i, ok := slices.BinarySearchFunc(l, name, byName)
	if !ok {
		return registry.ToolSpec{}, false
	}
	return l[i], true
}
