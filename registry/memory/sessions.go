package memory

import (
	"context"
	"errors"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/farhand/farhand/registry"
)

// storedSession is a session and the tools it offers, by name.
type storedSession struct {
	life
	session  registry.Session
	tools    toolList
	pulse    registry.Pulse
	expected expected
}

// former is a pod that a session has left.
type former struct {
	pod   string
	until time.Time
}

func (m *Store) Claim(_ context.Context, s registry.Session) (registry.Claim, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.opts.Now()
	var claim registry.Claim
	owner := m.ownerLocked(s.Key)
	if owner != nil && !owner.BelongsTo(&s) {
		return registry.Claim{}, registry.ErrForeignSession
	}
	s = s.Inherit(owner)
	var before expected
	if old := m.liveLocked(s.Key); old != nil {
		previous := old.session.Clone()
		if previous.AskFirst() && s.Generation != previous.Generation && s.Generation != registry.AnyHolder {
			return registry.Claim{}, &registry.Held{Holder: previous, At: now}
		}
		claim.Previous, claim.Before = &previous, &previous
		before = old.leaves(now)
	} else if gone := m.gone.get(s.Tenant, s.Key, now); gone != nil {
		claim.Before = &gone.session
		before = gone.expected
	}
	s.ReclaimableBy, s.ReclaimableUntil = nil, time.Time{}
	leaves := ""
	if claim.Before != nil {
		s.ReclaimableBy, s.ReclaimableUntil = registry.Succeed(*claim.Before, now)
		leaves = claim.Before.Pod
	}
	claim.Formers = m.leaveLocked(s.Key, leaves, s.Pod)
	m.generation = max(m.generation+1, now.UnixMicro())
	s.Generation = m.generation
	claim.Session = m.storeLocked(s, nil)
	m.liveLocked(s.Key).expected = m.expectLocked(s.Key, before, registry.RegisterWait)
	return claim, nil
}

// ownerLocked returns the session whose user and device own a key, nil if it has no owner.
func (m *Store) ownerLocked(key registry.Key) *registry.Session {
	if live := m.liveLocked(key); live != nil {
		return &live.session
	}
	if gone := m.gone.get(key.Tenant, key, m.opts.Now()); gone != nil {
		return &gone.session
	}
	return nil
}

// leaveLocked records that a session leaves a pod for another; pod is empty if it was on none. It returns all pods that
// the session has left.
func (m *Store) leaveLocked(key registry.Key, pod, next string) []string {
	now := m.opts.Now()
	formers := slices.DeleteFunc(m.formers[key], func(f former) bool { return !now.Before(f.until) })
	if pod != "" && pod != next {
		formers = slices.DeleteFunc(formers, func(f former) bool { return f.pod == pod })
		formers = slices.Insert(formers, 0, former{pod, now.Add(registry.FormerTerm)})
	}
	if len(formers) == 0 {
		delete(m.formers, key)
		return nil
	}
	formers = formers[:min(len(formers), registry.MaxFormers)]
	m.formers[key] = formers
	pods := make([]string, len(formers))
	for i, f := range formers {
		pods[i] = f.pod
	}
	return pods
}

func (m *Store) Restore(_ context.Context, e registry.Entry) (registry.Session, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s, before := e.Session, expected{}
	live := m.liveLocked(s.Key)
	if live != nil {
		before = live.expected
	}
	switch {
	case live != nil && (live.isClaim(s) || live.isRestored(s)):
		s.Generation = live.session.Generation
	case live != nil && live.session.Generation > s.Generation, m.replacedLocked(s):
		return registry.Session{}, registry.ErrNotOwner
	default: // pending removals for the lost claim cannot affect the next one
		s.Generation++
	}
	m.generation = max(m.generation, s.Generation)
	restored := m.storeLocked(s, e.Tools)
	now := m.liveLocked(s.Key)
	now.expected, now.pulse = before, e.Pulse
	return restored, nil
}

// isClaim reports whether s is the stored claim.
func (stored *storedSession) isClaim(s registry.Session) bool {
	return stored.session.Pod == s.Pod && stored.session.Generation == s.Generation
}

// isRestored reports whether s is stored, restored by its pod without the pod's knowledge.
func (stored *storedSession) isRestored(s registry.Session) bool {
	s.Generation++
	return stored.isClaim(s)
}

// has reports whether all of an entry is stored. ReclaimableBy is not compared, because claims write it.
func (stored *storedSession) has(e registry.Entry) bool {
	mine, its := stored.session, e.Session
	mine.ReclaimableBy, mine.ReclaimableUntil = its.ReclaimableBy, its.ReclaimableUntil
	mine.ConnectedAt = its.ConnectedAt
	if !reflect.DeepEqual(mine, its) || len(stored.tools) != len(e.Tools) {
		return false
	}
	for _, t := range e.Tools {
		if known, ok := stored.tools.get(t.Name); !ok || !reflect.DeepEqual(known, t) {
			return false
		}
	}
	return true
}

func (m *Store) storeLocked(s registry.Session, tools []registry.ToolSpec) registry.Session {
	now := m.opts.Now()
	s = s.Clone()
	if s.ConnectedAt.IsZero() {
		s.ConnectedAt = now.UTC().Truncate(time.Millisecond)
	}
	stored := &storedSession{session: s, life: life{now.Add(m.opts.SessionTTL)}, tools: newToolList(tools)}
	_ = m.sessions.put(s.Tenant, s.Key, stored) // never fails: connections are limited where they are accepted
	m.changes++
	m.gone.remove(s.Tenant, s.Key)
	return s.Clone()
}

func (m *Store) Update(_ context.Context, s registry.Session) error {
	return m.write(s, func(stored *storedSession) { stored.session = s.Clone() })
}

func (m *Store) SetTools(_ context.Context, s registry.Session, tools []registry.ToolSpec) error {
	return m.write(s, func(stored *storedSession) {
		stored.tools = newToolList(tools)
		stored.expected.settle(m.opts.Now())
	})
}

// write changes the stored session of s if s is the current claim. It fails with ErrNotOwner if there is or was a newer
// claim, and with CodeStoreUnavailable if the session was lost.
func (m *Store) write(s registry.Session, change func(*storedSession)) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch stored := m.liveLocked(s.Key); {
	case stored != nil && stored.isClaim(s):
		change(stored)
		m.changes++
		return nil
	case stored != nil, m.replacedLocked(s):
		return registry.ErrNotOwner
	default:
		return registry.StoreUnavailable("write", errors.New("the session was forgotten"))
	}
}

// replacedLocked reports whether a claim newer than s came and went.
func (m *Store) replacedLocked(s registry.Session) bool {
	gone := m.gone.get(s.Tenant, s.Key, m.opts.Now())
	return gone != nil && gone.session.Generation > s.Generation
}

// Refresh implements registry.SessionStore. A session is missing if a write of it failed, or if its pod restored it but
// does not know.
func (m *Store) Refresh(_ context.Context, entries []registry.Entry) (missing, lost []registry.Key, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	expires := m.opts.Now().Add(m.opts.SessionTTL)
	for _, e := range entries {
		switch stored := m.liveLocked(e.Session.Key); {
		case stored == nil, stored.isRestored(e.Session), stored.isClaim(e.Session) && !stored.has(e):
			missing = append(missing, e.Session.Key)
		case !stored.isClaim(e.Session):
			lost = append(lost, e.Session.Key)
		default:
			stored.expires = expires
			if e.Pulse != (registry.Pulse{}) {
				stored.pulse = e.Pulse
			}
		}
	}
	return missing, lost, nil
}

func (m *Store) Release(_ context.Context, s registry.Session, back time.Duration) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	stored := m.liveLocked(s.Key)
	if stored == nil || !stored.isClaim(s) {
		return false, nil
	}
	m.forgetLocked(stored, back)
	return true, nil
}

// Forget implements registry.SessionStore. This store has nothing that a Release leaves behind.
func (m *Store) Forget(registry.Entry) func(context.Context) error {
	return func(context.Context) error { return nil }
}

// liveLocked returns a session, nil if there is none or it has expired.
func (m *Store) liveLocked(key registry.Key) *storedSession {
	return m.sessions.get(key.Tenant, key, m.opts.Now())
}

func (stored *storedSession) entry() registry.Entry {
	return registry.Entry{Session: stored.session.Clone(), Tools: slices.Clone(stored.tools), Pulse: stored.pulse}
}

func (stored *storedSession) cursor() registry.Cursor {
	return registry.CursorOf(&stored.session)
}

func (m *Store) Heartbeat(_ context.Context, pod string) (known bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	known = m.podLiveLocked(pod)
	// The configured lease is the promise to users: its last fifth is for noticing the lapse and cleaning up.
	m.pods[pod] = m.opts.Now().Add(m.opts.PodLease * 4 / 5)
	return known, nil
}

func (m *Store) podLiveLocked(pod string) bool {
	expires, ok := m.pods[pod]
	return ok && m.opts.Now().Before(expires)
}

// Whole implements registry.PodStore. This store is never emptied.
func (m *Store) Whole(context.Context) error { return nil }

func (m *Store) Live(context.Context) ([]string, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.livePodsLocked(), nil
}

func (m *Store) livePodsLocked() []string {
	var live []string
	for pod := range m.pods {
		if m.podLiveLocked(pod) {
			live = append(live, pod)
		}
	}
	return live
}

// Sweep implements registry.PodStore. It also removes expired data.
func (m *Store) Sweep(context.Context) ([]registry.DeadPod, error) {
	m.purgeCalls()
	m.purgeFeeds()
	if c, err := m.keeper.begin(); err == nil {
		m.conversations.mu.Lock()
		m.conversations.purge(c, m.opts.Now())
		c.unlock(&m.conversations.mu)
		c.end()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var dead []registry.DeadPod
	for pod := range m.pods {
		if !m.podLiveLocked(pod) {
			dead = append(dead, registry.DeadPod{Pod: pod})
			delete(m.pods, pod)
		}
	}
	for tenant, of := range m.sessions.byTenant {
		for _, stored := range of {
			at := slices.IndexFunc(dead, func(d registry.DeadPod) bool { return d.Pod == stored.session.Pod })
			if at < 0 {
				continue
			}
			if d := &dead[at]; !slices.Contains(d.Tenants, tenant) {
				d.Tenants = append(d.Tenants, tenant)
			}
			m.forgetLocked(stored, registry.ReturnWait)
		}
	}
	now := m.opts.Now()
	m.changes += int64(m.sessions.purge(now, nil))
	m.gone.purge(now, nil)
	m.forgetExpectedLocked()
	m.goneLists.purge(now, nil)
	maps.DeleteFunc(m.left, func(_ string, until time.Time) bool { return !now.Before(until) })
	for key := range m.formers {
		m.leaveLocked(key, "", "")
	}
	return dead, nil
}

func (m *Store) Leave(_ context.Context, pod string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.pods, pod)
	m.left[pod] = m.opts.Now().Add(m.opts.SessionTTL)
	return nil
}

// anyDeadLocked reports whether there may be sessions of pods that are gone.
func (m *Store) anyDeadLocked() bool {
	for pod := range m.pods {
		if !m.podLiveLocked(pod) {
			return true
		}
	}
	return len(m.left) > 0
}
