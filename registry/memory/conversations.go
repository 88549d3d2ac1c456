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
	all     shared[registry.Key, *conversation]
	places  places
	purges  throttle
	fence   int64 // the last number given to a turn or a place
	changes int64 // count of changes that lists show
}

type conversation struct {
	life
	messages []message
	next     int64             // number of the next message
	appended []json.RawMessage // the turn's last append; nil: none since it began, or since a truncation
	draft    json.RawMessage
	title    string
	named    bool // a person chose title
	owner    registry.Owner
	owned    bool      // owner is set
	created  time.Time // of the first message
	active   time.Time // last change of messages
	recorded time.Time // last change that a journal keeps
	trail    []string
	holder   int64     // fence of the current turn; zero once it has ended
	until    time.Time // when the lease of the current turn lapses
}

// message is a message with its number, which grows along the conversation.
type message struct {
	number int64
	json.RawMessage
}

func (m *Store) BeginTurn(
	ctx context.Context, key registry.Key, lease time.Duration,
) (turn registry.Turn, err error) {
	err = m.keeper.touch(ctx, func(tx *change) error { // a turn that nothing could be written of does not begin
		s := &m.conversations
		s.mu.Lock()
		defer tx.unlock(&s.mu)
		now := m.opts.Now()
		c, err := m.openLocked(tx, key, now)
		if err != nil {
			return err
		}
		if remaining := c.until.Sub(now); remaining > 0 {
			return registry.ErrTurnTaken(remaining)
		}
		c.holder, c.until, c.appended = s.clock(now), now.Add(lease), nil
		m.keepLocked(c, now)
		turn = registry.Turn{Key: key, Fence: c.holder}
		return nil
	})
	return turn, err
}

func (m *Store) RenewTurn(_ context.Context, t registry.Turn, lease time.Duration) error {
	m.conversations.mu.Lock()
	defer m.conversations.mu.Unlock()
	return m.inTurnLocked(t, func(c *conversation, now time.Time) { c.until = now.Add(lease) })
}

func (m *Store) EndTurn(_ context.Context, t registry.Turn) error {
	m.conversations.mu.Lock()
	defer m.conversations.mu.Unlock()
	return m.inTurnLocked(t, func(c *conversation, _ time.Time) {
		c.holder, c.until, c.appended = 0, time.Time{}, nil
	})
}

func (m *Store) AppendMessages(
	ctx context.Context, t registry.Turn, messages ...json.RawMessage,
) (count int, err error) {
	err = m.inTurn(ctx, t, func(tx *change, c *conversation, now time.Time) {
		if len(messages) == 0 || !slices.EqualFunc(c.appended, messages, sameMessage) {
			c.appended = cloneMessages(messages)
			for _, m := range c.appended {
				c.messages = append(c.messages, message{c.next, m})
				tx.put(kindMessage, messageKey(t.Key, c.next), m)
				c.next++
			}
			c.drop(tx, t.Key, 0, len(c.messages)-c.fitting(m.opts.HistoryCap))
			if len(messages) > 0 {
				m.conversations.touchLocked(c, now)
				c.keep(tx, t.Key, now)
			}
		}
		c.setDraft(tx, t.Key, nil)
		count = len(c.messages)
	})
	return count, err
}

func (m *Store) SaveDraft(ctx context.Context, t registry.Turn, draft json.RawMessage) error {
	return m.inTurn(ctx, t, func(tx *change, c *conversation, now time.Time) {
		c.setDraft(tx, t.Key, draft)
		if c.recorded.IsZero() {
			c.keep(tx, t.Key, now)
		}
	})
}

func (m *Store) TruncateMessages(ctx context.Context, t registry.Turn, n int) error {
	return m.inTurn(ctx, t, func(tx *change, c *conversation, now time.Time) {
		m.conversations.touchLocked(c, now)
		c.drop(tx, t.Key, min(max(n, 0), len(c.messages)), len(c.messages))
		c.setDraft(tx, t.Key, nil)
		c.appended = nil
		c.keep(tx, t.Key, now)
	})
}

func (m *Store) SetTitle(ctx context.Context, t registry.Turn, title string) error {
	return m.inTurn(ctx, t, func(tx *change, c *conversation, now time.Time) {
		if !c.named {
			c.title = title
			m.conversations.changes++
			c.keep(tx, t.Key, now)
		}
	})
}

func (m *Store) SetOwner(ctx context.Context, t registry.Turn, o registry.Owner) error {
	return m.inTurn(ctx, t, func(tx *change, c *conversation, now time.Time) {
		if !c.owned {
			c.owner, c.owned = o, true
			m.conversations.changes++
			c.keep(tx, t.Key, now)
		}
	})
}

func (m *Store) Conversation(_ context.Context, key registry.Key) (registry.Conversation, error) {
	m.conversations.mu.Lock()
	defer m.conversations.mu.Unlock()
	now := m.opts.Now()
	c := m.conversations.all.get(key.Tenant, key, now)
	if c == nil {
		return registry.Conversation{}, nil
	}
	return registry.Conversation{
		Messages: c.copyMessages(), Draft: bytes.Clone(c.draft), Title: c.title, Owner: c.owner,
		Busy: now.Before(c.until),
	}, nil
}

func (m *Store) CountMessages(_ context.Context, key registry.Key) (int, error) {
	m.conversations.mu.Lock()
	defer m.conversations.mu.Unlock()
	if c := m.conversations.all.get(key.Tenant, key, m.opts.Now()); c != nil {
		return len(c.messages), nil
	}
	return 0, nil
}

// AppendTrail implements registry.ConversationStore. A journal does not keep trails: calls append to them.
func (m *Store) AppendTrail(
	ctx context.Context, key registry.Key, entry string, limit int,
) (trail []string, err error) {
	err = m.keeper.touch(ctx, func(tx *change) error {
		m.conversations.mu.Lock()
		defer tx.unlock(&m.conversations.mu)
		now := m.opts.Now()
		c, err := m.openLocked(tx, key, now)
		if err != nil {
			return err
		}
		c.trail = lastOf(append(c.trail, entry), min(max(limit, 1), registry.MaxTrail))
		m.keepLocked(c, now)
		trail = slices.Clone(c.trail)
		return nil
	})
	return trail, err
}

func (m *Store) Trail(_ context.Context, key registry.Key, limit int) ([]string, error) {
	m.conversations.mu.Lock()
	defer m.conversations.mu.Unlock()
	c := m.conversations.all.get(key.Tenant, key, m.opts.Now())
	if c == nil || limit <= 0 {
		return nil, nil
	}
	return slices.Clone(c.trail[max(0, len(c.trail)-limit):]), nil
}

// inTurn changes the conversation of a turn if it is the current turn.
func (m *Store) inTurn(ctx context.Context, t registry.Turn, f func(*change, *conversation, time.Time)) error {
	return m.keeper.write(ctx, func(tx *change) error {
		m.conversations.mu.Lock()
		defer tx.unlock(&m.conversations.mu)
		return m.inTurnLocked(t, func(c *conversation, now time.Time) { f(tx, c, now) })
	})
}

// inTurnLocked runs f on the conversation of a turn if it is the current turn.
func (m *Store) inTurnLocked(t registry.Turn, f func(*conversation, time.Time)) error {
	now := m.opts.Now()
	c := m.conversations.all.get(t.Key.Tenant, t.Key, now)
	if c == nil || c.holder == 0 || c.holder != t.Fence {
		return registry.ErrTurnLost
	}
	f(c, now)
	m.keepLocked(c, now)
	return nil
}

// openLocked returns a conversation, a new one if there is none. The caller writes to it and then calls keepLocked.
func (m *Store) openLocked(tx *change, key registry.Key, now time.Time) (*conversation, error) {
	s := &m.conversations
	if c := s.all.get(key.Tenant, key, now); c != nil {
		return c, nil
	}
	if s.purges.due(now, m.opts.HistoryTTL/purgesPerLife) {
		s.purge(tx, now)
	}
	c, expired := &conversation{}, s.all.byTenant[key.Tenant][key]
	if err := s.all.put(key.Tenant, key, c); err != nil {
		return nil, err
	}
	if expired != nil {
		expired.erase(tx, key)
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

// purge removes expired conversations and places.
func (s *conversations) purge(tx *change, now time.Time) {
	s.changes += int64(s.all.purge(now, func(key registry.Key, c *conversation) { c.erase(tx, key) }))
	s.places.purge(tx, now)
}

// fitting returns how many of the newest messages may be kept: at most limit, and at most MaxHistoryBytes.
func (c *conversation) fitting(limit int) int {
	kept, size := 0, 0
	for _, message := range slices.Backward(c.messages) {
		size += len(message.RawMessage)
		if kept == limit || kept > 0 && size > registry.MaxHistoryBytes {
			break
		}
		kept++
	}
	return kept
}

// drop removes the messages from one index to another.
func (c *conversation) drop(tx *change, key registry.Key, from, to int) {
	for _, message := range c.messages[from:to] {
		tx.drop(kindMessage, messageKey(key, message.number))
	}
	c.messages = slices.Delete(c.messages, from, to)
}

func (c *conversation) setDraft(tx *change, key registry.Key, draft json.RawMessage) {
	former := c.draft
	if c.draft = nil; len(draft) > 0 {
		c.draft = bytes.Clone(draft)
	}
	if c.draft != nil || former != nil {
		tx.put(kindDraft, conversationKey(key), c.draft)
	}
}

// copyMessages returns a copy that shares no bytes; nil if there are none.
func (c *conversation) copyMessages() []json.RawMessage {
	var all []json.RawMessage
	for _, message := range c.messages {
		all = append(all, bytes.Clone(message.RawMessage))
	}
	return all
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
