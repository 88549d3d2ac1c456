package memory

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/farhand/farhand/registry"
)

// Limits of the data about disconnected sessions, in bytes for all tenants. Entries expire in a minute. Sessions
// without room are not remembered: calls of them fail because the session, or the tool, is not found.
const (
	maxGone      = 64 << 20 // for 100,000 sessions with a few labels each
	maxGoneLists = 64 << 20 // for their tools: sessions with equal tools share one list
)

// goneSession is the store's data about a disconnected session.
type goneSession struct {
	life
	session  registry.Session
	expected expected
}

// size returns the approximate size in memory without the list of tools.
func (g *goneSession) size() int {
	sum := g.session.MemorySize()
	for name, value := range g.expected.labels {
		sum += len(name) + len(value) + 32
	}
	return sum
}

// goneList is a list of tools that disconnected sessions are expected to offer.
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

// forgetLocked removes a session and remembers for a while that it was connected. back is how long its device is
// expected to reconnect.
func (m *Store) forgetLocked(stored *storedSession, back time.Duration) {
	now, key := m.opts.Now(), stored.session.Key
	expires := life{now.Add(m.opts.SessionTTL)}
	gone := &goneSession{life: expires, session: stored.session}
	if back > 0 {
		gone.expected = m.expectLocked(key, stored.leaves(now), min(back, m.opts.SessionTTL))
	}
	_ = m.gone.put(key.Tenant, key, gone) // fails if there is no room: see maxGone
	m.sessions.remove(key.Tenant, key)
	m.changes++
}

// expectLocked returns e as expected for d from now, or nothing if there is no room for its list.
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

// expectedLocked returns a session with expected tools, and these; nil if there are none.
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

// forgetExpectedLocked removes expired expectations.
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

// maxExpected is the limit of a session's expected tools: twice the default limit of offered ones.
const maxExpected = 256

// expected is what a session is expected to offer until a time, because its previous connection did. The zero value
// expects nothing.
type expected struct {
	tools  toolList
	device string // device and labels of that connection: the next one has not sent its own yet
	labels map[string]string
	until  time.Time
}

func (e *expected) isDue(now time.Time) bool { return len(e.tools) > 0 && now.Before(e.until) }

// within returns e, expected for d from now.
func (e expected) within(now time.Time, d time.Duration) expected {
	e.until = now.Add(d)
	return e
}

// settle records that the session has registered tools: the rest follows soon.
func (e *expected) settle(now time.Time) {
	if limit := now.Add(registry.SettleWait); e.until.After(limit) {
		e.until = limit
	}
}

// leaves returns what the session's next connection is expected to offer: the tools of this one, and those still
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
	// Otherwise the list is the session's own. A session that always returns with other tools is expected to have only
	// its last ones.
	if slices.ContainsFunc(former.tools, missing) && len(former.tools)+len(stored.tools) <= maxExpected {
		next.tools = registry.MergeTools(former.tools, stored.tools, nil)
	}
	if len(next.labels) == 0 {
		next.labels = former.labels
	}
	return next
}

// Awaited implements registry.Directory. It scans the sessions with expected tools, and copies only what it returns:
// all devices of a fleet may be away at once, while many calls wait for them.
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
		case q.SessionID != "": // its pod has died and is not swept yet: the session is leaving
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
	slices.SortFunc(all, func(a, b found) int { return cmp.Compare(b.session.Generation, a.session.Generation) })
	all = all[:min(len(all), pageSize(q.Limit))]
	page := make([]registry.Awaited, len(all))
	for i, f := range all {
		s := *f.session
		if f.away {
			s = s.Away()
			s.Labels = f.session.Labels
		}
		page[i] = registry.Awaited{
			Session: s.Clone(), Tools: slices.Clone(f.expected.tools), Left: f.expected.until.Sub(now),
		}
	}
	return page, nil
}

// answers reports whether a session matches the query, with its current or its former data.
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

// toolList is tools by name. It never changes, so sessions with equal tools share their pod's list.
type toolList []registry.ToolSpec

// listID identifies a list by its memory address.
type listID struct {
	first *registry.ToolSpec
	n     int
}

// id returns the id of a non-empty list.
func (l toolList) id() listID { return listID{&l[0], len(l)} }

// sharedList is a list and the number of its sessions.
type sharedList struct {
	tools    toolList
	sessions int
}

// newToolList returns the list of tools. Tools from a pod are already ordered.
func newToolList(tools []registry.ToolSpec) toolList { return slices.Clip(registry.OrderTools(tools)) }

// get returns the tool with a name.
func (l toolList) get(name string) (registry.ToolSpec, bool) {
	byName := func(t registry.ToolSpec, name string) int { return strings.Compare(t.Name, name) }
	i, ok := slices.BinarySearchFunc(l, name, byName)
	if !ok {
		return registry.ToolSpec{}, false
	}
	return l[i], true
}
