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
	s, sum := &g.session, 512
	sum += len(s.Key.Session) + len(s.UserID) + len(s.DeviceID) + len(s.Pod)
	for _, labels := range []map[string]string{s.Labels, g.expected.labels} {
		for name, value := range labels {
			sum += len(name) + len(value) + 32
		}
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
	if before := stored.leaves(now); back > 0 && before.isDue(now) {
		list := &goneList{life: expires, tools: before.tools}
		if m.goneLists.put(key.Tenant, before.tools.id(), list) == nil {
			gone.expected = before.within(now, min(back, m.opts.SessionTTL))
		}
	}
	_ = m.gone.put(key.Tenant, key, gone) // or there is no room: see maxGone
	m.sessions.remove(key.Tenant, key)
	m.changes++
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

// Awaited implements registry.Directory.
func (m *Store) Awaited(_ context.Context, q registry.Query) ([]registry.Awaited, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.opts.Now()
	var found []registry.Awaited
	add := func(s registry.Session, e expected) {
		if e.isDue(now) && e.answers(q, s) {
			found = append(found, e.awaited(s, now))
		}
	}
	for _, gone := range m.gone.byTenant[q.Tenant] {
		if now.Before(gone.expires) {
			add(away(gone.session), gone.expected)
		}
	}
	for _, stored := range m.sessions.byTenant[q.Tenant] {
		switch {
		case !now.Before(stored.expires):
		case m.podLiveLocked(stored.session.Pod):
			add(stored.session, stored.expected)
		default: // its pod has died, and is not swept yet
			add(away(stored.session), stored.leaves(now))
		}
	}
	slices.SortFunc(found, func(a, b registry.Awaited) int {
		return cmp.Or(cmp.Compare(b.Session.Generation, a.Session.Generation),
			strings.Compare(a.Session.Key.Session, b.Session.Key.Session))
	})
	return found[:min(len(found), pageSize(q.Limit))], nil
}

// away returns what is told of a session without a connection.
func away(s registry.Session) registry.Session {
	return registry.Session{
		Key: s.Key, Generation: s.Generation, UserID: s.UserID, DeviceID: s.DeviceID, Bound: s.Bound, Labels: s.Labels,
	}
}

// answers reports whether a session is one that the query asks for: as it is now, or as it was before.
func (e *expected) answers(q registry.Query, s registry.Session) bool {
	if _, offered := e.tools.get(q.Tool); q.Tool != "" && !offered {
		return false
	}
	if q.Matches(s) {
		return true
	}
	s.DeviceID, s.Labels = e.device, e.labels
	return q.Matches(s)
}

func (e *expected) awaited(s registry.Session, now time.Time) registry.Awaited {
	return registry.Awaited{Session: s.Clone(), Tools: slices.Clone(e.tools), Left: e.until.Sub(now)}
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
