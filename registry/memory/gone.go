package memory

import (
	"time"

	"github.com/farhand/farhand/registry"
)

// What the store remembers of sessions that are not connected any more, in bytes of all tenants. They leave in a minute.
// What has no room is not remembered: a call of it is told that there is no such session, or no such tool.
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
