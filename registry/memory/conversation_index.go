package memory

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/farhand/farhand/registry"
)

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

func (m *Store) ListConversations(
	_ context.Context, q registry.ConversationQuery,
) ([]registry.ConversationInfo, *registry.ConversationCursor, error) {
	found, next := m.newestConversations(q)
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

// newestConversations returns a page, and the cursor of the next one.
func (m *Store) newestConversations(
	q registry.ConversationQuery,
) ([]registry.ConversationInfo, *registry.ConversationCursor) {
	m.conversations.mu.Lock()
	defer m.conversations.mu.Unlock()
	now, enough := m.opts.Now(), pageSize(q.Limit)+1
	newestFirst := func(a, b registry.ConversationCursor) int { return b.Compare(a) }
	var places []registry.ConversationCursor
	for session, c := range m.conversations.all.byTenant[q.Tenant] {
		at := registry.ConversationCursor{Generation: c.active.UnixMilli(), Session: session}
		if len(c.messages) == 0 || !now.Before(c.expires) ||
			q.After != (registry.ConversationCursor{}) && at.Compare(q.After) >= 0 {
			continue
		}
		if places = append(places, at); len(places) == 4*enough { // only a page is sorted and kept
			slices.SortFunc(places, newestFirst)
			places = places[:enough]
		}
	}
	slices.SortFunc(places, newestFirst)
	return m.pageLocked(q.Tenant, places, q.Limit)
}

// pageLocked describes the conversations at the first of the places, and returns the cursor of the next page.
func (m *Store) pageLocked(
	tenant string, places []registry.ConversationCursor, limit int,
) (page []registry.ConversationInfo, next *registry.ConversationCursor) {
	if limit = pageSize(limit); len(places) > limit {
		places, next = places[:limit], new(places[limit-1])
	}
	now := m.opts.Now()
	for _, at := range places {
		if c := m.conversations.all.get(tenant, at.Session, now); c != nil {
			page = append(page, c.info(registry.Key{Tenant: tenant, Session: at.Session}, now))
		}
	}
	return page, next
}

// RunningConversations implements registry.ConversationIndex. Positions are the fences of turns.
func (m *Store) RunningConversations(
	_ context.Context, tenant string, after registry.ConversationCursor, limit int,
) ([]registry.ConversationInfo, *registry.ConversationCursor, error) {
	m.conversations.mu.Lock()
	defer m.conversations.mu.Unlock()
	now := m.opts.Now()
	var places []registry.ConversationCursor
	for session, c := range m.conversations.all.byTenant[tenant] {
		at := registry.ConversationCursor{Generation: c.holder, Session: session}
		if now.Before(c.until) && len(c.messages) > 0 && at.Compare(after) > 0 {
			places = append(places, at)
		}
	}
	slices.SortFunc(places, registry.ConversationCursor.Compare)
	running, next := m.pageLocked(tenant, places, limit)
	return running, next, nil
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

// holder is the continuations of one owner.
type holder struct {
	life   // until the last of them expires
	kept   expiring[string, *continuation]
	bytes  int
	purges throttle
}

type continuation struct {
	life
	data []byte
}

func (m *Store) KeepContinuation(
	_ context.Context, o registry.ContinuationOwner, id string, data []byte, ttl time.Duration,
) error {
	if len(data) > registry.MaxContinuation {
		return registry.ErrContinuationTooLarge
	}
	s := &m.continuations
	now := s.lock(m.opts.Now)
	defer s.mu.Unlock()
	h := s.all.get(o, now)
	if h == nil {
		h = &holder{kept: make(expiring[string, *continuation])}
		s.all[o] = h
	}
	if h.purges.due(now, ttl/purgesPerLife) {
		for id := range h.kept {
			if h.kept.get(id, now) == nil {
				h.drop(id)
			}
		}
	}
	h.drop(id)
	c := &continuation{life{now.Add(ttl)}, bytes.Clone(data)}
	h.kept[id] = c
	h.bytes += len(data) + registry.ContinuationOverhead
	for h.bytes > registry.MaxHeldContinuations {
		h.drop(h.oldest(id))
	}
	if c.expires.After(h.expires) {
		h.expires = c.expires
	}
	return nil
}

func (m *Store) Continuations(
	_ context.Context, o registry.ContinuationOwner, limit int, ids ...string,
) (map[string][]byte, error) {
	s := &m.continuations
	now := s.lock(m.opts.Now)
	defer s.mu.Unlock()
	found, h := make(map[string][]byte), s.all.get(o, now)
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
