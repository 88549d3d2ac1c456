package memory

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/farhand/farhand/registry"
)

// maxConversations is the limit of conversations of all tenants. A full store rejects new ones.
const maxConversations = 100_000

// conversations are the conversations of all tenants.
type conversations struct {
	mu      sync.Mutex
	all     shared[string, *conversation] // by session
	places  places
	purges  throttle
	fence   int64 // the last number given to a turn or a place
	changes int64 // count of changes that lists show
}

type conversation struct {
	life
	messages []json.RawMessage
	appended []json.RawMessage // the turn's last append; nil: none since it began, or since a truncation
	draft    json.RawMessage
	title    string
	named    bool // a person chose title
	owner    registry.Owner
	owned    bool      // owner is set
	created  time.Time // of the first message
	active   time.Time // last change of messages
	trail    []string
	holder   int64     // fence of the current turn; zero once it has ended
	until    time.Time // when the lease of the current turn lapses
}

func (m *Store) BeginTurn(_ context.Context, key registry.Key, lease time.Duration) (registry.Turn, error) {
	s := &m.conversations
	s.mu.Lock()
	defer s.mu.Unlock()
	now := m.opts.Now()
	c, err := m.openLocked(key, now)
	if err != nil {
		return registry.Turn{}, err
	}
	if remaining := c.until.Sub(now); remaining > 0 {
		return registry.Turn{}, registry.ErrTurnTaken(remaining)
	}
	c.holder, c.until, c.appended = s.clock(now), now.Add(lease), nil
	m.keepLocked(c, now)
	return registry.Turn{Key: key, Fence: c.holder}, nil
}

func (m *Store) RenewTurn(_ context.Context, t registry.Turn, lease time.Duration) error {
	return m.change(t, func(c *conversation, now time.Time) { c.until = now.Add(lease) })
}

func (m *Store) EndTurn(_ context.Context, t registry.Turn) error {
	return m.change(t, func(c *conversation, _ time.Time) { c.holder, c.until, c.appended = 0, time.Time{}, nil })
}

func (m *Store) AppendMessages(_ context.Context, t registry.Turn, messages ...json.RawMessage) (count int, err error) {
	err = m.change(t, func(c *conversation, now time.Time) {
		if len(messages) == 0 || !slices.EqualFunc(c.appended, messages, sameMessage) {
			c.appended = cloneMessages(messages)
			c.messages = append(c.messages, c.appended...)
			c.forgetOldest(m.opts.HistoryCap)
			if len(messages) > 0 {
				m.conversations.touchLocked(c, now)
			}
		}
		c.draft, count = nil, len(c.messages)
	})
	return count, err
}

func (m *Store) SaveDraft(_ context.Context, t registry.Turn, draft json.RawMessage) error {
	return m.change(t, func(c *conversation, _ time.Time) {
		if c.draft = nil; len(draft) > 0 {
			c.draft = bytes.Clone(draft)
		}
	})
}

func (m *Store) TruncateMessages(_ context.Context, t registry.Turn, n int) error {
	return m.change(t, func(c *conversation, now time.Time) {
		m.conversations.touchLocked(c, now)
		c.messages = slices.Delete(c.messages, min(max(n, 0), len(c.messages)), len(c.messages))
		c.draft, c.appended = nil, nil
	})
}

func (m *Store) SetTitle(_ context.Context, t registry.Turn, title string) error {
	return m.change(t, func(c *conversation, _ time.Time) {
		if !c.named {
			c.title = title
			m.conversations.changes++
		}
	})
}

func (m *Store) SetOwner(_ context.Context, t registry.Turn, o registry.Owner) error {
	return m.change(t, func(c *conversation, _ time.Time) {
		if !c.owned {
			c.owner, c.owned = o, true
			m.conversations.changes++
		}
	})
}

func (m *Store) Conversation(_ context.Context, key registry.Key) (registry.Conversation, error) {
	m.conversations.mu.Lock()
	defer m.conversations.mu.Unlock()
	now := m.opts.Now()
	c := m.conversations.all.get(key.Tenant, key.Session, now)
	if c == nil {
		return registry.Conversation{}, nil
	}
	return registry.Conversation{
		Messages: cloneMessages(c.messages), Draft: bytes.Clone(c.draft), Title: c.title, Owner: c.owner,
		Busy: now.Before(c.until),
	}, nil
}

func (m *Store) CountMessages(_ context.Context, key registry.Key) (int, error) {
	m.conversations.mu.Lock()
	defer m.conversations.mu.Unlock()
	if c := m.conversations.all.get(key.Tenant, key.Session, m.opts.Now()); c != nil {
		return len(c.messages), nil
	}
	return 0, nil
}

func (m *Store) AppendTrail(_ context.Context, key registry.Key, entry string, limit int) ([]string, error) {
	m.conversations.mu.Lock()
	defer m.conversations.mu.Unlock()
	now := m.opts.Now()
	c, err := m.openLocked(key, now)
	if err != nil {
		return nil, err
	}
	c.trail = lastOf(append(c.trail, entry), min(max(limit, 1), registry.MaxTrail))
	m.keepLocked(c, now)
	return slices.Clone(c.trail), nil
}

func (m *Store) Trail(_ context.Context, key registry.Key, limit int) ([]string, error) {
	m.conversations.mu.Lock()
	defer m.conversations.mu.Unlock()
	c := m.conversations.all.get(key.Tenant, key.Session, m.opts.Now())
	if c == nil || limit <= 0 {
		return nil, nil
	}
	return slices.Clone(c.trail[max(0, len(c.trail)-limit):]), nil
}

// change runs f on the conversation of a turn if it is the current turn.
func (m *Store) change(t registry.Turn, f func(c *conversation, now time.Time)) error {
	m.conversations.mu.Lock()
	defer m.conversations.mu.Unlock()
	now := m.opts.Now()
	c := m.conversations.all.get(t.Key.Tenant, t.Key.Session, now)
	if c == nil || c.holder == 0 || c.holder != t.Fence {
		return registry.ErrTurnLost
	}
	f(c, now)
	m.keepLocked(c, now)
	return nil
}

// openLocked returns a conversation, a new one if there is none. The caller writes to it and then calls keepLocked.
func (m *Store) openLocked(key registry.Key, now time.Time) (*conversation, error) {
	s := &m.conversations
	if c := s.all.get(key.Tenant, key.Session, now); c != nil {
		return c, nil
	}
	if s.purges.due(now, m.opts.HistoryTTL/purgesPerLife) {
		s.purge(now)
	}
	c := &conversation{}
	if err := s.all.put(key.Tenant, key.Session, c); err != nil {
		return nil, err
	}
	return c, nil
}

// keepLocked renews the life of a conversation. It lasts at least as long as the turn, because a lease must not be
// dropped while it runs.
func (m *Store) keepLocked(c *conversation, now time.Time) {
	c.expires = now.Add(m.opts.HistoryTTL)
	if c.until.After(c.expires) {
		c.expires = c.until
	}
}

func (m *Store) purgeConversations() {
	m.conversations.mu.Lock()
	defer m.conversations.mu.Unlock()
	m.conversations.purge(m.opts.Now())
}

func (s *conversations) purge(now time.Time) {
	s.changes += int64(s.all.purge(now))
	s.places.purge(now)
}

// forgetOldest removes messages until there are at most limit of them, and at most MaxHistoryBytes.
func (c *conversation) forgetOldest(limit int) {
	kept, size := 0, 0
	for _, message := range slices.Backward(c.messages) {
		size += len(message)
		if kept == limit || kept > 0 && size > registry.MaxHistoryBytes {
			break
		}
		kept++
	}
	c.messages = lastOf(c.messages, kept)
}

// lastOf removes all but the last n elements.
func lastOf[S ~[]E, E any](s S, n int) S { return slices.Delete(s, 0, max(0, len(s)-n)) }

func sameMessage(a, b json.RawMessage) bool { return bytes.Equal(a, b) }

// cloneMessages returns a copy that shares no bytes; nil if there are none.
func cloneMessages(messages []json.RawMessage) []json.RawMessage {
	if len(messages) == 0 {
		return nil
	}
	clones := make([]json.RawMessage, len(messages))
	for i, message := range messages {
		clones[i] = bytes.Clone(message)
	}
	return clones
}
