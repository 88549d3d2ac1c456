package memory

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/farhand/farhand/registry"
)

// Options configures a Store.
type Options struct {
	SessionTTL time.Duration    // default DefaultSessionTTL
	PodLease   time.Duration    // default DefaultPodLease
	Now        func() time.Time // the store's clock; default time.Now

	Retention      time.Duration // life of a call's record after its last change; default DefaultRetention
	IdempotencyTTL time.Duration // life of idempotency keys; default DefaultIdempotencyTTL
	ActivityCap    int           // lines kept in the feed of a tenant; default DefaultActivityCap
	ActivityBytes  int           // bytes of those lines; default DefaultActivityBytes
	HistoryTTL     time.Duration // life of a conversation after its last change; default DefaultHistoryTTL
	HistoryCap     int           // messages kept of a conversation; default DefaultHistoryCap
}

func (o *Options) setDefaults() {
	if o.SessionTTL <= 0 {
		o.SessionTTL = registry.DefaultSessionTTL
	}
	if o.PodLease <= 0 {
		o.PodLease = registry.DefaultPodLease
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Retention <= 0 {
		o.Retention = registry.DefaultRetention
	}
	if o.IdempotencyTTL <= 0 {
		o.IdempotencyTTL = registry.DefaultIdempotencyTTL
	}
	if o.ActivityCap <= 0 {
		o.ActivityCap = registry.DefaultActivityCap
	}
	if o.ActivityBytes <= 0 {
		o.ActivityBytes = registry.DefaultActivityBytes
	}
	if o.HistoryTTL <= 0 {
		o.HistoryTTL = registry.DefaultHistoryTTL
	}
	if o.HistoryCap <= 0 {
		o.HistoryCap = registry.DefaultHistoryCap
	}
}

// Store is the store of a gateway that runs alone: no Redis, nothing kept over a restart. It behaves as a shared
// store does, and several pods of one process may use it together, each with a bus of its own.
type Store struct {
	opts Options

	mu         sync.Mutex
	sessions   map[registry.Key]*memorySession
	gone       map[registry.Key]memoryGone
	formers    map[registry.Key][]memoryFormer
	pods       map[string]time.Time
	generation int64
	boot       string // another one for each Memory
	changes    int64  // made to sessions so far

	calls memoryCalls

	feedsMu sync.Mutex
	feeds   map[string]*memoryFeed // by tenant

	conversations memoryConversations
	continuations memoryContinuations

	budgets memoryBudgets

	buses sync.Map // pod → *Bus
}

var _ registry.Store = (*Store)(nil)

type memorySession struct {
	session registry.Session
	tools   map[string]registry.ToolSpec
	expires time.Time
}

// memoryGone remembers a session that was connected.
type memoryGone struct {
	generation int64
	pod        string
	until      time.Time
	session    registry.Session // what claims have to know of it
}

// New returns an empty store.
func New(o Options) *Store {
	o.setDefaults()
	return &Store{
		opts:     o,
		sessions: make(map[registry.Key]*memorySession),
		gone:     make(map[registry.Key]memoryGone),
		formers:  make(map[registry.Key][]memoryFormer),
		pods:     make(map[string]time.Time),
		boot:     rand.Text(), calls: newMemoryCalls(), feeds: make(map[string]*memoryFeed),
		budgets:       memoryBudgets{all: make(map[memoryBudgetKey]memoryBudget)},
		conversations: memoryConversations{all: make(map[registry.Key]*memoryConversation)},
	}
}

// Ping implements Store.
func (m *Store) Ping(context.Context) error { return nil }

// Claim implements SessionStore.
func (m *Store) Claim(_ context.Context, s registry.Session) (registry.Claim, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.opts.Now()
	var claim registry.Claim
	former := ""
	if old := m.liveLocked(s.Key); old != nil {
		previous := old.session.Clone()
		if previous.AskFirst() && s.Generation != previous.Generation && s.Generation != registry.AnyHolder {
			return registry.Claim{}, &registry.Held{Holder: previous, At: now}
		}
		claim.Previous, claim.Before, former = &previous, &previous, previous.Pod
	} else if gone, ok := m.gone[s.Key]; ok && now.Before(gone.until) {
		claim.Before, former = &gone.session, gone.pod
	}
	s.Heirs, s.HeirsUntil = nil, time.Time{}
	if claim.Before != nil {
		s.Heirs, s.HeirsUntil = registry.Succeed(*claim.Before, now)
	}
	claim.Formers = m.leaveLocked(s.Key, former, s.Pod)
	m.generation = max(m.generation+1, now.UnixMicro())
	s.Generation = m.generation
	claim.Session = m.storeLocked(s, nil)
	return claim, nil
}

// memoryFormer is a pod a session has left.
type memoryFormer struct {
	pod   string
	until time.Time
}

// leaveLocked notes that a session leaves the pod former, empty if it was on none, for another, and returns all those
// it has left.
func (m *Store) leaveLocked(key registry.Key, former, next string) []string {
	now := m.opts.Now()
	left := m.formersLocked(key, now)
	if former != "" && former != next {
		left = slices.DeleteFunc(left, func(f memoryFormer) bool { return f.pod == former })
		left = slices.Insert(left, 0, memoryFormer{former, now.Add(registry.FormerTerm)})
	}
	if len(left) == 0 {
		delete(m.formers, key)
		return nil
	}
	left = left[:min(len(left), registry.MaxFormers)]
	m.formers[key] = left
	pods := make([]string, len(left))
	for i, f := range left {
		pods[i] = f.pod
	}
	return pods
}

func (m *Store) formersLocked(key registry.Key, now time.Time) []memoryFormer {
	return slices.DeleteFunc(m.formers[key], func(f memoryFormer) bool { return !now.Before(f.until) })
}

// Restore implements SessionStore.
func (m *Store) Restore(_ context.Context, e registry.Entry) (registry.Session, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := e.Session
	live, gone := m.liveLocked(s.Key), m.gone[s.Key]
	switch {
	case live != nil && (live.isClaim(s) || live.isRestored(s)):
		s.Generation = live.session.Generation
	case live != nil && live.session.Generation > s.Generation,
		gone.generation > s.Generation && m.opts.Now().Before(gone.until):
		return registry.Session{}, registry.ErrNotOwner
	default: // removals still under way for the claim that was lost cannot touch the next one
		s.Generation++
	}
	m.generation = max(m.generation, s.Generation)
	return m.storeLocked(s, e.Tools), nil
}

// isClaim reports whether s is the claim that is stored.
func (stored *memorySession) isClaim(s registry.Session) bool {
	return stored.session.Pod == s.Pod && stored.session.Generation == s.Generation
}

// isRestored reports whether what is stored is s, which its pod has restored without hearing so.
func (stored *memorySession) isRestored(s registry.Session) bool {
	s.Generation++
	return stored.isClaim(s)
}

// has reports whether all of an entry is stored. Heirs are not compared: claims write them.
func (stored *memorySession) has(e registry.Entry) bool {
	mine, its := stored.session, e.Session
	mine.Heirs, mine.HeirsUntil, mine.ConnectedAt = its.Heirs, its.HeirsUntil, its.ConnectedAt
	if !reflect.DeepEqual(mine, its) || len(stored.tools) != len(e.Tools) {
		return false
	}
	for _, t := range e.Tools {
		if known, ok := stored.tools[t.Name]; !ok || !reflect.DeepEqual(known, t) {
			return false
		}
	}
	return true
}

// storeLocked writes a session.
func (m *Store) storeLocked(s registry.Session, tools []registry.ToolSpec) registry.Session {
	now := m.opts.Now()
	s = s.Clone()
	if s.ConnectedAt.IsZero() {
		s.ConnectedAt = now.UTC().Truncate(time.Millisecond)
	}
	stored := &memorySession{session: s, expires: now.Add(m.opts.SessionTTL)}
	stored.setTools(tools)
	m.sessions[s.Key] = stored
	m.changes++
	delete(m.gone, s.Key)
	return s.Clone()
}

// Update implements SessionStore.
func (m *Store) Update(_ context.Context, s registry.Session) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.fenceLocked(s); err != nil {
		return err
	}
	m.sessions[s.Key].session = s.Clone()
	m.changes++
	return nil
}

// SetTools implements SessionStore.
func (m *Store) SetTools(_ context.Context, s registry.Session, tools []registry.ToolSpec) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.fenceLocked(s); err != nil {
		return err
	}
	m.sessions[s.Key].setTools(tools)
	m.changes++
	return nil
}

// Refresh implements SessionStore. What lacks a write that failed, or was restored without its pod hearing so, is
// missing.
func (m *Store) Refresh(_ context.Context, entries []registry.Entry) (missing, lost []registry.Key, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	expires := m.opts.Now().Add(m.opts.SessionTTL)
	for _, e := range entries {
		switch stored := m.liveLocked(e.Session.Key); {
		case stored == nil, stored.isRestored(e.Session), stored.isClaim(e.Session) && !stored.has(e):
			missing = append(missing, e.Session.Key)
		case m.ownedLocked(e.Session) == nil:
			lost = append(lost, e.Session.Key)
		default:
			stored.expires = expires
		}
	}
	return missing, lost, nil
}

// Release implements SessionStore.
func (m *Store) Release(_ context.Context, s registry.Session) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ownedLocked(s) == nil {
		return false, nil
	}
	m.forgetLocked(s.Key)
	return true, nil
}

// forgetLocked removes a session but keeps it known as disconnected for a while.
func (m *Store) forgetLocked(key registry.Key) {
	s := m.sessions[key].session
	until := m.opts.Now().Add(m.opts.SessionTTL)
	m.gone[key] = memoryGone{generation: s.Generation, pod: s.Pod, until: until, session: s}
	delete(m.sessions, key)
	m.changes++
}

// liveLocked returns the session unless it has expired.
func (m *Store) liveLocked(key registry.Key) *memorySession {
	stored := m.sessions[key]
	if stored == nil || !m.opts.Now().Before(stored.expires) {
		return nil
	}
	return stored
}

// ownedLocked returns the session if s is its current claim.
func (m *Store) ownedLocked(s registry.Session) *memorySession {
	stored := m.liveLocked(s.Key)
	if stored == nil || !stored.isClaim(s) {
		return nil
	}
	return stored
}

// fenceLocked returns nil if s is the current claim, ErrNotOwner if there is or was a newer one, and
// CodeStoreUnavailable if the session was forgotten.
func (m *Store) fenceLocked(s registry.Session) error {
	gone, known := m.gone[s.Key]
	switch {
	case m.ownedLocked(s) != nil:
		return nil
	case m.liveLocked(s.Key) != nil, known && gone.generation > s.Generation && m.opts.Now().Before(gone.until):
		return registry.ErrNotOwner
	default:
		return registry.StoreUnavailable("write", errors.New("the session was forgotten"))
	}
}

func (s *memorySession) setTools(tools []registry.ToolSpec) {
	s.tools = make(map[string]registry.ToolSpec, len(tools))
	for _, t := range tools {
		s.tools[t.Name] = t
	}
}

func (s *memorySession) entry() registry.Entry {
	byName := func(a, b registry.ToolSpec) int { return strings.Compare(a.Name, b.Name) }
	tools := slices.SortedFunc(maps.Values(s.tools), byName)
	return registry.Entry{Session: s.session.Clone(), Tools: tools}
}

func compareCursor(a, b registry.Cursor) int {
	return cmp.Or(cmp.Compare(a.Generation, b.Generation), strings.Compare(a.Session, b.Session))
}
