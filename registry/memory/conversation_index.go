package memory

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/farhand/farhand/registry"
)

// DescribeConversations implements registry.ConversationIndex.
func (m *Store) DescribeConversations(_ context.Context, keys ...registry.Key) ([]registry.ConversationInfo, error) {
	m.conversations.mu.Lock()
	defer m.conversations.mu.Unlock()
	now := m.opts.Now()
	infos := make([]registry.ConversationInfo, len(keys))
	for i, key := range keys {
		infos[i] = registry.ConversationInfo{Key: key}
		if c := m.conversations.all.get(key.Tenant, key.Session, now); c != nil {
			infos[i] = c.info(key, now)
		}
	}
	return infos, nil
}

// ListConversations implements registry.ConversationIndex.
func (m *Store) ListConversations(
	_ context.Context, q registry.ConversationQuery,
) ([]registry.ConversationInfo, *registry.ConversationCursor, error) {
	limit := pageSize(q.Limit)
	found := m.newestConversations(q, limit+1)
	var next *registry.ConversationCursor
	if len(found) > limit {
		found = found[:limit]
		at := cursorOf(found[limit-1])
		next = &at
	}
	if !q.Offline {
		return found, next, nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.DeleteFunc(found, func(c registry.ConversationInfo) bool {
		stored := m.liveLocked(c.Key)
		return stored != nil && m.podLiveLocked(stored.session.Pod)
	}), next, nil
}

// newestConversations returns up to limit conversations after the cursor of a query. It scans all of them but keeps
// only few positions: once it has enough, it skips those that come after the last of them.
func (m *Store) newestConversations(q registry.ConversationQuery, limit int) []registry.ConversationInfo {
	m.conversations.mu.Lock()
	defer m.conversations.mu.Unlock()
	now := m.opts.Now()
	var places []registry.ConversationCursor
	var last registry.ConversationCursor // the last position kept, once there are enough
	of := m.conversations.all.byTenant[q.Tenant]
	for session, c := range of {
		if len(c.messages) == 0 || !now.Before(c.expires) {
			continue
		}
		at := registry.ConversationCursor{Active: c.active.UnixMilli(), Session: session}
		if q.After != (registry.ConversationCursor{}) && compareConversations(at, q.After) <= 0 ||
			last != (registry.ConversationCursor{}) && compareConversations(at, last) > 0 {
			continue
		}
		if places = append(places, at); len(places) >= 4*limit {
			places = newestOf(places, limit)
			last = places[limit-1]
		}
	}
	places = newestOf(places, limit)
	found := make([]registry.ConversationInfo, len(places))
	for i, at := range places {
		key := registry.Key{Tenant: q.Tenant, Session: at.Session}
		found[i] = of[at.Session].info(key, now)
	}
	return found
}

func newestOf(places []registry.ConversationCursor, limit int) []registry.ConversationCursor {
	slices.SortFunc(places, compareConversations)
	return places[:min(limit, len(places))]
}

// compareConversations orders the most recently used first.
func compareConversations(a, b registry.ConversationCursor) int {
	return cmp.Or(cmp.Compare(b.Active, a.Active), strings.Compare(b.Session, a.Session))
}

func cursorOf(c registry.ConversationInfo) registry.ConversationCursor {
	return registry.ConversationCursor{Active: c.Active.UnixMilli(), Session: c.Key.Session}
}

// RunningConversations implements registry.ConversationIndex. Positions are the start times of turns.
func (m *Store) RunningConversations(
	_ context.Context, tenant string, after registry.ConversationCursor, limit int,
) ([]registry.ConversationInfo, *registry.ConversationCursor, error) {
	m.conversations.mu.Lock()
	defer m.conversations.mu.Unlock()
	now, first := m.opts.Now(), after == registry.ConversationCursor{}
	var running []registry.ConversationInfo
	for session, c := range m.conversations.all.byTenant[tenant] {
		if !now.Before(c.until) || len(c.messages) == 0 {
			continue
		}
		key := registry.Key{Tenant: tenant, Session: session}
		if info := c.info(key, now); first || compareRunning(runningPlace(info), after) > 0 {
			running = append(running, info)
		}
	}
	slices.SortFunc(running, func(a, b registry.ConversationInfo) int {
		return compareRunning(runningPlace(a), runningPlace(b))
	})
	if limit = pageSize(limit); len(running) <= limit {
		return running, nil, nil
	}
	return running[:limit], new(runningPlace(running[limit-1])), nil
}

func runningPlace(c registry.ConversationInfo) registry.ConversationCursor {
	return registry.ConversationCursor{Active: c.Turn.UnixNano(), Session: c.Key.Session}
}

// compareRunning orders the longest running first.
func compareRunning(a, b registry.ConversationCursor) int {
	return cmp.Or(cmp.Compare(a.Active, b.Active), strings.Compare(a.Session, b.Session))
}

// ConversationsVersion implements registry.ConversationIndex. An expired conversation counts as a change when it is
// removed.
func (m *Store) ConversationsVersion(_ context.Context, tenant string) (string, error) {
	m.conversations.mu.Lock()
	defer m.conversations.mu.Unlock()
	if len(m.conversations.all.byTenant[tenant]) == 0 {
		return "", nil
	}
	return fmt.Sprintf("%s %d", m.boot, m.conversations.changes), nil
}

// NameConversation implements registry.ConversationIndex.
func (m *Store) NameConversation(_ context.Context, key registry.Key, title string) error {
	m.conversations.mu.Lock()
	defer m.conversations.mu.Unlock()
	now := m.opts.Now()
	c, err := m.openLocked(key, now)
	if err != nil {
		return err
	}
	c.title, c.named = title, true
	m.conversations.changes++
	m.keepLocked(c, now)
	return nil
}

// EraseConversation implements registry.ConversationIndex.
func (m *Store) EraseConversation(_ context.Context, key registry.Key) (bool, error) {
	m.conversations.mu.Lock()
	defer m.conversations.mu.Unlock()
	now := m.opts.Now()
	c := m.conversations.all.get(key.Tenant, key.Session, now)
	m.conversations.all.remove(key.Tenant, key.Session)
	m.erasePlaceLocked(key, c, now)
	m.conversations.changes++
	return c != nil, nil
}

// touchLocked records that messages changed.
func (s *conversations) touchLocked(c *conversation, now time.Time) {
	if c.created.IsZero() {
		c.created = now
	}
	c.active = now
	s.changes++
}

// info describes a conversation, with times as precise as a shared store keeps them.
func (c *conversation) info(key registry.Key, now time.Time) registry.ConversationInfo {
	info := registry.ConversationInfo{
		Key: key, Owner: c.owner, Title: c.title, Named: c.named, Messages: len(c.messages),
		Created: inMillis(c.created), Active: inMillis(c.active),
	}
	if now.Before(c.until) {
		info.Turn = time.UnixMicro(c.holder).UTC()
	}
	return info
}

// inMillis truncates a time to milliseconds. The zero time stays zero.
func inMillis(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.UTC().Truncate(time.Millisecond)
}

// continuations are the continuations of all owners.
type continuations struct {
	mu      sync.Mutex
	holders map[registry.ContinuationOwner]*holder
	purges  throttle
}

// holder is the continuations of one owner.
type holder struct {
	kept  expiring[string, *continuation]
	bytes int
}

type continuation struct {
	life
	data []byte
}

// KeepContinuation implements registry.ContinuationStore.
func (m *Store) KeepContinuation(
	_ context.Context, o registry.ContinuationOwner, id string, data []byte, ttl time.Duration,
) error {
	if len(data) > registry.MaxContinuation {
		return registry.ErrContinuationTooLarge
	}
	s, now := &m.continuations, m.opts.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.purges.due(now, ttl/purgesPerLife) {
		s.purge(now)
	}
	h := s.holders[o]
	if h == nil {
		h = &holder{kept: make(expiring[string, *continuation])}
		s.holders[o] = h
	}
	h.drop(id)
	h.kept[id] = &continuation{life{now.Add(ttl)}, bytes.Clone(data)}
	h.bytes += len(data) + registry.ContinuationOverhead
	for h.bytes > registry.MaxHeldContinuations {
		h.drop(h.oldest(id))
	}
	return nil
}

// Continuations implements registry.ContinuationStore.
func (m *Store) Continuations(
	_ context.Context, o registry.ContinuationOwner, limit int, ids ...string,
) (map[string][]byte, error) {
	s, now := &m.continuations, m.opts.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	found, h := make(map[string][]byte), s.holders[o]
	if h == nil {
		return found, nil
	}
	for _, id := range ids {
		c := h.kept.get(id, now)
		if _, twice := found[id]; c == nil || twice {
			continue
		}
		if limit -= len(c.data); limit < 0 {
			break
		}
		found[id] = bytes.Clone(c.data)
	}
	return found, nil
}

// purge removes expired continuations.
func (s *continuations) purge(now time.Time) {
	for o, h := range s.holders {
		for id := range h.kept {
			if h.kept.get(id, now) == nil {
				h.drop(id)
			}
		}
		if len(h.kept) == 0 {
			delete(s.holders, o)
		}
	}
}

func (h *holder) drop(id string) {
	if c, ok := h.kept[id]; ok {
		h.bytes -= len(c.data) + registry.ContinuationOverhead
		delete(h.kept, id)
	}
}

// oldest returns the continuation that expires first, other than the one that is being stored.
func (h *holder) oldest(but string) string {
	first, at := "", time.Time{}
	for id, c := range h.kept {
		if id != but && (first == "" || c.expires.Before(at)) {
			first, at = id, c.expires
		}
	}
	return first
}
