package redisstore

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/farhand/farhand/redisstore/internal/redisconn"
	"github.com/farhand/farhand/registry"
)

// BeginTurn implements registry.ConversationStore.
func (s *Store) BeginTurn(ctx context.Context, key registry.Key, lease time.Duration) (registry.Turn, error) {
	c, err := s.conn.Eval(ctx, scriptChatBegin, chatPlaceKeys(key), s.historyTTL, millis(lease))
	if err != nil {
		return registry.Turn{}, redisconn.Unavailable("begin turn", err)
	}
	answer := c.List()
	if len(answer) != 2 {
		return registry.Turn{}, redisconn.Unavailable("begin turn", c.ErrShape())
	}
	if redisconn.Int(answer[0]) != 1 {
		return registry.Turn{}, registry.ErrTurnTaken(time.Duration(redisconn.Int(answer[1])) * time.Millisecond)
	}
	return registry.Turn{Key: key, Fence: redisconn.Int(answer[1])}, nil
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
	running := []string{runningIndex(t.Key.Tenant)}
	if _, err := s.conn.Eval(ctx, scriptZRemIf, running, t.Key.Session, decimal(t.Fence)); err != nil {
		// The next reader of the index removes it.
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

// digest identifies messages by their contents and number.
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
	n = min(max(n, 0), math.MaxInt32) // which Lua prints in full
	_, err := s.turn(ctx, "truncate messages", scriptChatTruncate, t, n)
	if err != nil {
		return err
	}
	if err := s.touch(ctx, t); err != nil { // truncating must work even if Redis is full
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
	_, err := s.turn(ctx, "set owner", scriptChatOwner, t, o.UserID, o.DeviceID, flag(o.Bound))
	return err // the lists show it with the first message
}

// Conversation implements registry.ConversationStore.
func (s *Store) Conversation(ctx context.Context, key registry.Key) (registry.Conversation, error) {
	c, err := s.chat(ctx, "read conversation", scriptChatRead, key)
	if err != nil {
		return registry.Conversation{}, err
	}
	answer := c.List()
	if len(answer) != 7 {
		return registry.Conversation{}, redisconn.Unavailable("read conversation", c.ErrShape())
	}
	var found registry.Conversation
	for _, message := range redisconn.Strings(answer[0]) {
		found.Messages = append(found.Messages, json.RawMessage(message))
	}
	if draft, _ := answer[1].(string); draft != "" {
		found.Draft = json.RawMessage(draft)
	}
	found.Title, _ = answer[2].(string)
	found.Busy = redisconn.Int(answer[3]) == 1
	found.Owner.UserID, _ = answer[4].(string)
	found.Owner.DeviceID, _ = answer[5].(string)
	found.Owner.Bound = answer[6] == flag(true)
	return found, nil
}

// CountMessages implements registry.ConversationStore.
func (s *Store) CountMessages(ctx context.Context, key registry.Key) (int, error) {
	c, err := s.conn.Do(ctx, "LLEN", messagesKey(key))
	return int(c.Int()), redisconn.Unavailable("count messages", err)
}

// AppendTrail implements registry.ConversationStore.
func (s *Store) AppendTrail(ctx context.Context, key registry.Key, entry string, limit int) ([]string, error) {
	c, err := s.chat(ctx, "append trail", scriptChatTrail, key, entry, min(max(limit, 1), registry.MaxTrail))
	if err != nil {
		return nil, err
	}
	return c.Strings(), nil
}

// Trail implements registry.ConversationStore.
func (s *Store) Trail(ctx context.Context, key registry.Key, limit int) ([]string, error) {
	if limit <= 0 {
		return nil, nil
	}
	c, err := s.conn.Do(ctx, "LRANGE", trailKey(key), -limit, -1)
	return c.Strings(), redisconn.Unavailable("read trail", err)
}

// turn runs a script that writes in the name of a turn, and returns what it answers.
func (s *Store) turn(ctx context.Context, op string, sc *redisconn.Script, t registry.Turn, args ...any) (int, error) {
	c, err := s.chat(ctx, op, sc, t.Key, append([]any{decimal(t.Fence)}, args...)...)
	if err != nil {
		return 0, err
	}
	n := int(c.Int())
	if n < 0 {
		return 0, registry.ErrTurnLost
	}
	return n, nil
}

// chat runs a script on a conversation.
func (s *Store) chat(
	ctx context.Context, op string, sc *redisconn.Script, key registry.Key, args ...any,
) (*redisconn.Command, error) {
	c, err := s.conn.Eval(ctx, sc, chatKeys(key), append([]any{s.historyTTL}, args...)...)
	return c, redisconn.Unavailable(op, err)
}
