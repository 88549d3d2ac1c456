package memory

import (
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
		if c := m.conversations.all.get(key.Tenant, key, now); c != nil {
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
	for key, c := range m.conversations.all.byTenant[q.Tenant] {
		at := registry.ConversationCursor{Generation: c.active.UnixMilli(), Session: key.Session}
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
		key := registry.Key{Tenant: tenant, Session: at.Session}
		if c := m.conversations.all.get(tenant, key, now); c != nil {
			page = append(page, c.info(key, now))
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
	for key, c := range m.conversations.all.byTenant[tenant] {
		at := registry.ConversationCursor{Generation: c.holder, Session: key.Session}
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

func (m *Store) NameConversation(ctx context.Context, key registry.Key, title string) error {
	return m.keeper.write(ctx, func(tx *change) error {
		m.conversations.mu.Lock()
		defer tx.unlock(&m.conversations.mu)
		now := m.opts.Now()
		c, err := m.openLocked(tx, key, now)
		if err != nil {
			return err
		}
		c.title, c.named = title, true
		m.conversations.changes++
		m.keepLocked(c, now)
		c.keep(tx, key, now)
		return nil
	})
}

func (m *Store) EraseConversation(ctx context.Context, key registry.Key) (known bool, err error) {
	err = m.keeper.write(ctx, func(tx *change) error {
		m.conversations.mu.Lock()
		defer tx.unlock(&m.conversations.mu)
		now := m.opts.Now()
		c := m.conversations.all.get(key.Tenant, key, now)
		if stored := m.conversations.all.byTenant[key.Tenant][key]; stored != nil {
			stored.erase(tx, key)
			m.conversations.all.remove(key.Tenant, key)
		}
		m.erasePlaceLocked(tx, key, c, now)
		m.conversations.changes++
		known = c != nil
		return nil
	})
	return known, err
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
