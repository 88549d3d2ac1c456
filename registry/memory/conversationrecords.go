package memory

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/farhand/farhand/registry"
)

// conversationRecord is what a journal keeps of a conversation, besides its messages and its draft.
type conversationRecord struct {
	Title    string         `json:"title,omitempty"`
	Named    bool           `json:"named,omitempty"`
	Owner    registry.Owner `json:"owner"`
	Owned    bool           `json:"owned,omitempty"`
	Created  time.Time      `json:"created,omitzero"`
	Active   time.Time      `json:"active,omitzero"`
	Recorded time.Time      `json:"recorded"` // its life begins
}

func conversationKey(k registry.Key) string { return key(k.Tenant, k.Session) }

func messageKey(k registry.Key, number int64) string {
	return key(k.Tenant, k.Session, ordered(number))
}

// keep records a conversation, except for its messages and its draft.
func (c *conversation) keep(tx *change, key registry.Key, now time.Time) {
	c.recorded = now.UTC().Round(0)
	if tx.kept() {
		value, _ := json.Marshal(conversationRecord{ // cannot fail
			c.title, c.named, c.owner, c.owned, c.created, c.active, c.recorded,
		})
		tx.put(kindConversation, conversationKey(key), value)
	}
}

// erase removes all records of a conversation.
func (c *conversation) erase(tx *change, key registry.Key) {
	if !tx.kept() {
		return
	}
	if !c.recorded.IsZero() {
		tx.drop(kindConversation, conversationKey(key))
	}
	if c.draft != nil {
		tx.drop(kindDraft, conversationKey(key))
	}
	for _, message := range c.messages {
		tx.drop(kindMessage, messageKey(key, message.number))
	}
}

// loadConversation takes a conversation into memory, without its messages and its draft. Without a record it becomes
// one of which nothing was written yet: a turn may still run.
func (m *Store) loadConversation(r Record) error {
	s := &m.conversations
	s.mu.Lock()
	defer s.mu.Unlock()
	c, err := s.find(r, nil)
	if c == nil || err != nil {
		return err
	}
	var stored conversationRecord
	if r.Value != nil {
		if err := json.Unmarshal(r.Value, &stored); err != nil {
			return err
		}
		c.expires = latest(stored.Recorded.Add(m.opts.HistoryTTL), c.until)
	}
	c.title, c.named, c.owner, c.owned = stored.Title, stored.Named, stored.Owner, stored.Owned
	c.created, c.active, c.recorded = stored.Created, stored.Active, stored.Recorded
	s.changes++
	return nil
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// find returns the conversation that a record belongs to, a new one if the record has a value. It is nil if there is
// none.
func (s *conversations) find(r Record, number *string) (*conversation, error) {
	var k registry.Key
	parts := []*string{&k.Tenant, &k.Session}
	if number != nil {
		parts = append(parts, number)
	}
	if err := split(r.Key, parts...); err != nil {
		return nil, err
	}
	c := s.all.byTenant[k.Tenant][k]
	if c == nil && r.Value != nil {
		c = new(conversation)
		s.all.set(k.Tenant, k, c)
	}
	return c, nil
}

// loadMessage takes a message into memory, or out of it.
func (m *Store) loadMessage(r Record) error {
	s := &m.conversations
	s.mu.Lock()
	defer s.mu.Unlock()
	var part string
	c, err := s.find(r, &part)
	if c == nil || err != nil {
		return err
	}
	var number int64
	if err := numbers(part, &number); err != nil {
		return err
	}
	at, found := slices.BinarySearchFunc(c.messages, number, func(m message, n int64) int { return int(m.number - n) })
	if found {
		c.messages = slices.Delete(c.messages, at, at+1)
	}
	if r.Value != nil {
		c.messages = slices.Insert(c.messages, at, message{number, slices.Clone(r.Value)})
		c.next = max(c.next, number+1)
	}
	c.appended = nil
	return nil
}

// loadDraft takes a draft into memory, or out of it.
func (m *Store) loadDraft(r Record) error {
	s := &m.conversations
	s.mu.Lock()
	defer s.mu.Unlock()
	c, err := s.find(r, nil)
	if c != nil && err == nil {
		c.draft = slices.Clone(r.Value)
	}
	return err
}
