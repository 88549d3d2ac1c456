package memory

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/farhand/farhand/registry"
)

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
