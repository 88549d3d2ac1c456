package redisstore

import (
	"context"
	"crypto/rand"
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
	n = min(max(n, 0), math.MaxInt32) // Lua prints such a number in full
	_, err := s.turn(ctx, "truncate messages", scriptChatTruncate, t, n)
	if err != nil {
		return err
	}
	if err := s.touch(ctx, t); err != nil { // truncation must work even if Redis is full
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

// turn runs a script that writes for a turn, and returns its answer.
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

// DescribeConversations implements registry.ConversationIndex.
func (s *Store) DescribeConversations(ctx context.Context, keys ...registry.Key) ([]registry.ConversationInfo, error) {
	infos, err := s.describe(ctx, keys)
	return infos, redisconn.Unavailable("describe conversations", err)
}

func (s *Store) describe(ctx context.Context, keys []registry.Key) ([]registry.ConversationInfo, error) {
	pipe := s.conn.Pipeline()
	calls := make([]*redisconn.Command, len(keys))
	for i, key := range keys {
		calls[i] = pipe.Eval(scriptChatInfo, chatKeys(key), s.historyTTL)
	}
	if err := pipe.Exec(ctx); err != nil {
		return nil, err
	}
	infos := make([]registry.ConversationInfo, len(keys))
	for i, c := range calls {
		answer := c.List()
		if len(answer) != 9 {
			return nil, c.ErrShape()
		}
		text := c.Strings()
		infos[i] = registry.ConversationInfo{
			Key: keys[i], Messages: int(redisconn.Int(answer[0])), Title: text[1], Named: text[2] == "1",
			Created: timeOf(text[3], time.UnixMilli), Active: timeOf(text[4], time.UnixMilli),
			Owner: registry.Owner{UserID: text[5], DeviceID: text[6], Bound: text[8] == flag(true)},
			Turn:  timeOf(text[7], time.UnixMicro),
		}
	}
	return infos, nil
}

// timeOf converts a clock reading. It returns the zero time if there is none.
func timeOf(text string, unit func(int64) time.Time) time.Time {
	if n := redisconn.Int(text); n > 0 {
		return unit(n).UTC()
	}
	return time.Time{}
}

// ListConversations implements registry.ConversationIndex. One call visits a bounded part of the index.
func (s *Store) ListConversations(
	ctx context.Context, q registry.ConversationQuery,
) ([]registry.ConversationInfo, *registry.ConversationCursor, error) {
	after := registry.Cursor{Generation: q.After.Active, Session: q.After.Session}
	found, next, err := scan(after, pageSize(q.Limit),
		func(at registry.Cursor, limit int) ([]place, error) {
			return s.conversationPlaces(ctx, q.Tenant, at, limit)
		},
		func(places []place) ([]registry.ConversationInfo, error) {
			return s.resolveConversations(ctx, q, places)
		})
	if err != nil || next == nil {
		return found, nil, redisconn.Unavailable("list conversations", err)
	}
	return found, &registry.ConversationCursor{Active: next.Generation, Session: next.Session}, nil
}

// conversationPlaces reads a part of the index, the most recently used first. The generation of such a place is the
// time when its conversation was last used, in ms.
func (s *Store) conversationPlaces(
	ctx context.Context, tenant string, after registry.Cursor, limit int,
) ([]place, error) {
	index := chatsIndex(tenant)
	pipe := s.conn.Pipeline()
	pipe.Eval(scriptChatsPrune, chatsKeys(tenant), s.historyTTL)
	c := pipe.Eval(scriptPage, []string{index}, "down", decimal(after.Generation), after.Session, limit)
	if err := pipe.Exec(ctx); err != nil {
		return nil, err
	}
	return merge([]string{index}, []*redisconn.Command{c}, limit, true), nil
}

// resolveConversations describes the conversations at the given places, and removes places without one.
func (s *Store) resolveConversations(
	ctx context.Context, q registry.ConversationQuery, places []place,
) ([]registry.ConversationInfo, error) {
	if len(places) == 0 {
		return nil, nil
	}
	keys := sessionsAt(q.Tenant, places)
	infos, err := s.describe(ctx, keys)
	if err != nil {
		return nil, err
	}
	connected := make([]bool, len(keys))
	if q.Offline {
		if connected, err = s.connected(ctx, keys); err != nil {
			return nil, err
		}
	}
	stale, there := make(removals), infos[:0]
	for i, info := range infos {
		switch {
		case info.Messages == 0:
			stale.add(places[i].index, places[i].Session, places[i].Generation)
		case !connected[i]:
			there = append(there, info)
		}
	}
	s.removeStale(ctx, q.Tenant, stale)
	return there, nil
}

// removeStale removes stale places. If that fails, the next reader tries again.
func (s *Store) removeStale(ctx context.Context, tenant string, stale removals) {
	if len(stale) == 0 {
		return
	}
	pipe := s.conn.Pipeline()
	stale.into(pipe)
	if err := pipe.Exec(ctx); err != nil {
		s.log.Debug("stale entries of conversations not removed", "tenant", tenant, "error", err)
	}
}

// connected reports for each session whether it is connected. All keys must be of one tenant.
func (s *Store) connected(ctx context.Context, keys []registry.Key) ([]bool, error) {
	pipe := s.conn.Pipeline()
	owners := make([]*redisconn.Command, len(keys))
	for i, key := range keys {
		owners[i] = pipe.Do("HGET", sessionKey(key), fieldPod)
	}
	if err := pipe.Exec(ctx); err != nil {
		return nil, err
	}
	var pods []string
	for _, c := range owners {
		if pod, ok := c.Text(); ok {
			pods = append(pods, pod)
		}
	}
	connected := make([]bool, len(keys))
	if len(pods) == 0 {
		return connected, nil
	}
	live, err := s.live.has(ctx, pods)
	if err != nil {
		return nil, err
	}
	for i, c := range owners {
		pod, ok := c.Text()
		connected[i] = ok && live[pod]
	}
	return connected, nil
}

// RunningConversations implements registry.ConversationIndex. Places are ordered by fences, which grow with each turn.
func (s *Store) RunningConversations(
	ctx context.Context, tenant string, after registry.ConversationCursor, limit int,
) ([]registry.ConversationInfo, *registry.ConversationCursor, error) {
	index, limit := runningIndex(tenant), pageSize(limit)
	c, err := s.conn.Eval(ctx, scriptPage, []string{index}, "up", after.Active, after.Session, limit)
	if err != nil {
		return nil, nil, redisconn.Unavailable("list running conversations", err)
	}
	places := merge([]string{index}, []*redisconn.Command{c}, limit, false)
	infos, err := s.describe(ctx, sessionsAt(tenant, places))
	if err != nil {
		return nil, nil, redisconn.Unavailable("list running conversations", err)
	}
	stale, running := make(removals), infos[:0]
	for i, info := range infos {
		if info.Turn.IsZero() {
			stale.add(index, places[i].Session, places[i].Generation)
			continue
		}
		running = append(running, info)
	}
	s.removeStale(ctx, tenant, stale)
	if len(places) < limit {
		return running, nil, nil
	}
	last := places[len(places)-1]
	return running, &registry.ConversationCursor{Active: last.Generation, Session: last.Session}, nil
}

// ConversationsVersion implements registry.ConversationIndex.
func (s *Store) ConversationsVersion(ctx context.Context, tenant string) (string, error) {
	c, err := s.conn.Eval(ctx, scriptChatsVersion, chatsKeys(tenant), s.historyTTL, rand.Text())
	if err != nil {
		return "", redisconn.Unavailable("version of conversations", err)
	}
	answer := c.List()
	if len(answer) != 2 {
		return "", redisconn.Unavailable("version of conversations", c.ErrShape())
	}
	version, _ := answer[0].(string)
	if version == "" {
		return "", nil
	}
	return version + " " + decimal(redisconn.Int(answer[1])), nil
}

// NameConversation implements registry.ConversationIndex.
func (s *Store) NameConversation(ctx context.Context, key registry.Key, title string) error {
	if _, err := s.chat(ctx, "name conversation", scriptChatName, key, title); err != nil {
		return err
	}
	_, err := s.conn.Do(ctx, "SET", chatsKeys(key.Tenant)[1], rand.Text(), "PX", s.historyTTL)
	return redisconn.Unavailable("name conversation", err)
}

// EraseConversation implements registry.ConversationIndex.
func (s *Store) EraseConversation(ctx context.Context, key registry.Key) (bool, error) {
	c, err := s.conn.Eval(ctx, scriptChatErase, chatPlaceKeys(key), s.historyTTL, s.placeTTL)
	if err != nil {
		return false, redisconn.Unavailable("erase conversation", err)
	}
	_, err = s.conn.Eval(ctx, scriptChatsForget, chatsKeys(key.Tenant), s.historyTTL, key.Session, rand.Text())
	return c.Int() > 0, redisconn.Unavailable("erase conversation", err)
}

// touch makes the lists show what a turn has changed. It is a second round trip, because a lost turn must change
// nothing, and the conversation and the lists are in different slots.
func (s *Store) touch(ctx context.Context, t registry.Turn) error {
	_, err := s.conn.Eval(ctx, scriptChatsTouch, chatsKeys(t.Key.Tenant),
		s.historyTTL, t.Key.Session, decimal(t.Fence), rand.Text())
	return redisconn.Unavailable("list a conversation", err)
}
