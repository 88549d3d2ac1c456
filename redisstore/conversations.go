package redisstore

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/farhand/farhand/registry"
)

// BeginTurn implements registry.ConversationStore.
func (s *Store) BeginTurn(ctx context.Context, key registry.Key, lease time.Duration) (registry.Turn, error) {
	c, err := s.chat(ctx, "begin turn", scriptChatBegin, key, millis(lease))
	if err != nil {
		return registry.Turn{}, err
	}
	answer := c.list()
	if len(answer) != 2 {
		return registry.Turn{}, unavailable("begin turn", errShape(c))
	}
	if toInt(answer[0]) != 1 {
		return registry.Turn{}, registry.ErrTurnTaken(time.Duration(toInt(answer[1])) * time.Millisecond)
	}
	return registry.Turn{Key: key, Fence: toInt(answer[1])}, nil
}

// RenewTurn implements registry.ConversationStore.
func (s *Store) RenewTurn(ctx context.Context, t registry.Turn, lease time.Duration) error {
	_, err := s.turn(ctx, "renew turn", scriptChatRenew, t, millis(lease))
	return err
}

// EndTurn implements registry.ConversationStore.
func (s *Store) EndTurn(ctx context.Context, t registry.Turn) error {
	if _, err := s.turn(ctx, "end turn", scriptChatEnd, t); err != nil {
		return err
	}
	b := s.conn.batch()
	b.eval(scriptZRemIf, []string{runningIndex(t.Key.Tenant)}, t.Key.Session, decimal(t.Fence))
	if err := b.run(ctx); err != nil { // who reads the index finds out
		s.log.Debug("turn not removed from those that run", "session", t.Key.Session, "error", err)
	}
	return nil
}

// AppendMessages implements registry.ConversationStore.
func (s *Store) AppendMessages(ctx context.Context, t registry.Turn, messages ...json.RawMessage) (int, error) {
	args := make([]any, 0, 3+len(messages))
	args = append(args, s.historyCap, registry.MaxHistoryBytes, digest(messages))
	messages = messages[max(0, len(messages)-s.historyCap):]
	for _, message := range messages {
		args = append(args, []byte(message))
	}
	n, err := s.turn(ctx, "append messages", scriptChatAppend, t, args...)
	if err != nil || len(messages) == 0 {
		return n, err
	}
	return n, s.touch(ctx, t)
}

// digest tells messages from others, by what they are and how many.
func digest(messages []json.RawMessage) string {
	h := sha256.New()
	for _, m := range messages {
		fmt.Fprintf(h, "%d:%s", len(m), m)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// SaveDraft implements registry.ConversationStore.
func (s *Store) SaveDraft(ctx context.Context, t registry.Turn, draft json.RawMessage) error {
	_, err := s.turn(ctx, "save draft", scriptChatDraft, t, []byte(draft))
	return err
}

// TruncateMessages implements registry.ConversationStore.
func (s *Store) TruncateMessages(ctx context.Context, t registry.Turn, n int) error {
	_, err := s.turn(ctx, "truncate messages", scriptChatTruncate, t, min(max(n, 0), math.MaxInt32)) // which Lua prints in full
	if err != nil {
		return err
	}
	if err := s.touch(ctx, t); err != nil { // a full Redis still truncates
		s.log.Debug("lists do not show a truncation", "session", t.Key.Session, "error", err)
	}
	return nil
}

// SetTitle implements registry.ConversationStore.
func (s *Store) SetTitle(ctx context.Context, t registry.Turn, title string) error {
	if _, err := s.turn(ctx, "set title", scriptChatTitle, t, title); err != nil {
		return err
	}
	return s.touch(ctx, t)
}

// SetOwner implements registry.ConversationStore.
func (s *Store) SetOwner(ctx context.Context, t registry.Turn, o registry.Owner) error {
	_, err := s.turn(ctx, "set owner", scriptChatOwner, t, o.UserID, o.DeviceID)
	return err // the lists show it with the first message
}

// Conversation implements registry.ConversationStore.
func (s *Store) Conversation(ctx context.Context, key registry.Key) (registry.Conversation, error) {
	c, err := s.chat(ctx, "read conversation", scriptChatRead, key)
	if err != nil {
		return registry.Conversation{}, err
	}
	answer := c.list()
	if len(answer) != 6 {
		return registry.Conversation{}, unavailable("read conversation", errShape(c))
	}
	var found registry.Conversation
	for _, message := range toStrings(answer[0]) {
		found.Messages = append(found.Messages, json.RawMessage(message))
	}
	if draft, _ := answer[1].(string); draft != "" {
		found.Draft = json.RawMessage(draft)
	}
	found.Title, _ = answer[2].(string)
	found.Busy = toInt(answer[3]) == 1
	found.Owner.UserID, _ = answer[4].(string)
	found.Owner.DeviceID, _ = answer[5].(string)
	return found, nil
}

// CountMessages implements registry.ConversationStore.
func (s *Store) CountMessages(ctx context.Context, key registry.Key) (int, error) {
	b := s.conn.batch()
	c := b.do("LLEN", messagesKey(key))
	err := b.run(ctx)
	return int(c.int()), unavailable("count messages", err)
}

// AppendTrail implements registry.ConversationStore.
func (s *Store) AppendTrail(ctx context.Context, key registry.Key, entry string, limit int) ([]string, error) {
	c, err := s.chat(ctx, "append trail", scriptChatTrail, key, entry, min(max(limit, 1), registry.MaxTrail))
	if err != nil {
		return nil, err
	}
	return toStrings(c.cmd.Val()), nil
}

// Trail implements registry.ConversationStore.
func (s *Store) Trail(ctx context.Context, key registry.Key, limit int) ([]string, error) {
	if limit <= 0 {
		return nil, nil
	}
	b := s.conn.batch()
	c := b.do("LRANGE", trailKey(key), -limit, -1)
	err := b.run(ctx)
	return toStrings(c.cmd.Val()), unavailable("read trail", err)
}

// turn runs a script that writes in the name of a turn, and returns what it answers.
func (s *Store) turn(ctx context.Context, op string, sc *script, t registry.Turn, args ...any) (int, error) {
	c, err := s.chat(ctx, op, sc, t.Key, append([]any{decimal(t.Fence)}, args...)...)
	if err != nil {
		return 0, err
	}
	n := int(c.int())
	if n < 0 {
		return 0, registry.ErrTurnLost
	}
	return n, nil
}

// chat runs a script on a conversation.
func (s *Store) chat(ctx context.Context, op string, sc *script, key registry.Key, args ...any) (*call, error) {
	b := s.conn.batch()
	c := b.eval(sc, chatKeys(key), append([]any{s.historyTTL}, args...)...)
	return c, unavailable(op, b.run(ctx))
}
