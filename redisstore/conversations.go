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

func (s *Store) BeginTurn(ctx context.Context, key registry.Key, lease time.Duration) (registry.Turn, error) {
	answer, err := s.conn.Ask(ctx, scriptChatBegin, 2, chatPlaceKeys(key), s.historyTTL, millis(lease))
	if err != nil {
		return registry.Turn{}, err
	}
	if redisconn.Int(answer[0]) != 1 {
		return registry.Turn{}, registry.ErrTurnTaken(time.Duration(redisconn.Int(answer[1])) * time.Millisecond)
	}
	return registry.Turn{Key: key, Fence: redisconn.Int(answer[1])}, nil
}

func (s *Store) RenewTurn(ctx context.Context, t registry.Turn, lease time.Duration) error {
	_, err := s.turn(ctx, scriptChatRenew, t, millis(lease))
	return err
}

func (s *Store) EndTurn(ctx context.Context, t registry.Turn) error {
	if _, err := s.turn(ctx, scriptChatEnd, t); err != nil {
		return err
	}
	running := []string{runningIndex(t.Key.Tenant)}
	if _, err := s.conn.Eval(ctx, scriptZRemIf, running, t.Key.Session, decimal(t.Fence)); err != nil {
		// The next reader of the index removes it.
		s.log.Debug("turn not removed from the running turns", "session", t.Key.Session, "error", err)
	}
	return nil
}

func (s *Store) AppendMessages(ctx context.Context, t registry.Turn, messages ...json.RawMessage) (int, error) {
	args := make([]any, 0, 3+len(messages))
	args = append(args, s.opts.HistoryCap, registry.MaxHistoryBytes, digest(messages))
	messages = messages[max(0, len(messages)-s.opts.HistoryCap):]
	for _, message := range messages {
		args = append(args, []byte(message))
	}
	n, err := s.turn(ctx, scriptChatAppend, t, args...)
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

func (s *Store) SaveDraft(ctx context.Context, t registry.Turn, draft json.RawMessage) error {
	_, err := s.turn(ctx, scriptChatDraft, t, []byte(draft))
	return err
}

func (s *Store) TruncateMessages(ctx context.Context, t registry.Turn, n int) error {
	n = min(max(n, 0), math.MaxInt32) // Lua prints such a number in full
	_, err := s.turn(ctx, scriptChatTruncate, t, n)
	if err != nil {
		return err
	}
	if err := s.touch(ctx, t); err != nil { // truncation must work even if Redis is full
		s.log.Debug("lists do not show a truncation", "session", t.Key.Session, "error", err)
	}
	return nil
}

func (s *Store) SetTitle(ctx context.Context, t registry.Turn, title string) error {
	if _, err := s.turn(ctx, scriptChatTitle, t, title); err != nil {
		return err
	}
	return s.touch(ctx, t)
}

func (s *Store) SetOwner(ctx context.Context, t registry.Turn, o registry.Owner) error {
	_, err := s.turn(ctx, scriptChatOwner, t, o.UserID, o.DeviceID, flag(o.Bound))
	return err // the lists show it with the first message
}

func (s *Store) Conversation(ctx context.Context, key registry.Key) (registry.Conversation, error) {
	answer, err := s.conn.Ask(ctx, scriptChatRead, 7, chatKeys(key))
	if err != nil {
		return registry.Conversation{}, err
	}
	text := redisconn.Strings(answer)
	found := registry.Conversation{
		Title: text[2], Busy: redisconn.Int(answer[3]) == 1,
		Owner: registry.Owner{UserID: text[4], DeviceID: text[5], Bound: text[6] == flag(true)},
	}
	for _, message := range redisconn.Strings(answer[0]) {
		found.Messages = append(found.Messages, json.RawMessage(message))
	}
	if text[1] != "" {
		found.Draft = json.RawMessage(text[1])
	}
	return found, nil
}

func (s *Store) CountMessages(ctx context.Context, key registry.Key) (int, error) {
	c, err := s.conn.Do(ctx, "LLEN", messagesKey(key))
	return int(c.Int()), err
}

func (s *Store) AppendTrail(ctx context.Context, key registry.Key, entry string, limit int) ([]string, error) {
	c, err := s.conn.Eval(ctx, scriptChatTrail, chatKeys(key),
		s.historyTTL, entry, min(max(limit, 1), registry.MaxTrail))
	return c.Strings(), err
}

func (s *Store) Trail(ctx context.Context, key registry.Key, limit int) ([]string, error) {
	if limit <= 0 {
		return nil, nil
	}
	c, err := s.conn.Do(ctx, "LRANGE", trailKey(key), -limit, -1)
	return c.Strings(), err
}

// turn runs a script that writes for a turn, and returns its answer.
func (s *Store) turn(ctx context.Context, sc *redisconn.Script, t registry.Turn, args ...any) (int, error) {
	c, err := s.conn.Eval(ctx, sc, chatKeys(t.Key), append([]any{s.historyTTL, decimal(t.Fence)}, args...)...)
	if err != nil {
		return 0, err
	}
	n := int(c.Int())
	if n < 0 {
		return 0, registry.ErrTurnLost
	}
	return n, nil
}

func (s *Store) DescribeConversations(ctx context.Context, keys ...registry.Key) ([]registry.ConversationInfo, error) {
	infos, unread, err := s.describe(ctx, keys)
	if err == nil && len(keys) == 1 {
		err = unread[0]
	}
	return infos, err
}

// describe describes conversations. Those that a newer release wrote have an error instead.
func (s *Store) describe(
	ctx context.Context, keys []registry.Key,
) (infos []registry.ConversationInfo, unread []error, err error) {
	pipe := s.conn.Pipeline()
	calls := make([]*redisconn.Command, len(keys))
	for i, key := range keys {
		calls[i] = pipe.Eval(scriptChatInfo, chatKeys(key), s.historyTTL)
	}
	if err := pipe.ExecEach(ctx); err != nil {
		return nil, nil, err
	}
	infos, unread = make([]registry.ConversationInfo, len(keys)), make([]error, len(keys))
	for i, c := range calls {
		if unread[i] = c.Err(); unread[i] != nil {
			infos[i].Key = keys[i]
			continue
		}
		answer := c.List()
		if len(answer) != 9 {
			return nil, nil, c.ErrShape()
		}
		text := c.Strings()
		infos[i] = registry.ConversationInfo{
			Key: keys[i], Messages: int(redisconn.Int(answer[0])), Title: text[1], Named: text[2] == "1",
			Created: fromMillis(text[3]), Active: fromMillis(text[4]),
			Owner: registry.Owner{UserID: text[5], DeviceID: text[6], Bound: text[8] == flag(true)},
		}
		if fence := redisconn.Int(answer[7]); fence > 0 {
			infos[i].Turn = time.UnixMicro(fence).UTC()
		}
	}
	return infos, unread, nil
}

// ListConversations implements registry.ConversationIndex. One call visits a bounded part of the index.
func (s *Store) ListConversations(
	ctx context.Context, q registry.ConversationQuery,
) ([]registry.ConversationInfo, *registry.ConversationCursor, error) {
	return scan(q.After, pageSize(q.Limit),
		func(at registry.Cursor, limit int) ([]place, error) {
			return s.conversationPlaces(ctx, q.Tenant, at, limit)
		},
		func(places []place) ([]registry.ConversationInfo, error) {
			return s.resolveConversations(ctx, q, places)
		})
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
	infos, unread, err := s.describe(ctx, keys)
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
		case unread[i] != nil: // not listed, and not removed
		case info.Messages == 0:
			stale.add(places[i].index, places[i].Session, places[i].Generation)
		case !connected[i]:
			there = append(there, info)
		}
	}
	s.removeStale(ctx, stale)
	return there, nil
}

// removeStale removes stale places. If that fails, the next reader tries again. shown are the tenants whose listings of
// sessions have changed by it.
func (s *Store) removeStale(ctx context.Context, stale removals, shown ...string) {
	if len(stale) == 0 {
		return
	}
	pipe := s.conn.Pipeline()
	stale.into(pipe)
	s.changed(pipe, shown...)
	if err := pipe.Exec(ctx); err != nil {
		s.log.Debug("stale index entries not removed", "error", err)
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
	c, err := s.conn.Eval(ctx, scriptPage, []string{index}, "up", after.Generation, after.Session, limit)
	if err != nil {
		return nil, nil, err
	}
	places := merge([]string{index}, []*redisconn.Command{c}, limit, false)
	infos, unread, err := s.describe(ctx, sessionsAt(tenant, places))
	if err != nil {
		return nil, nil, err
	}
	stale, running := make(removals), infos[:0]
	for i, info := range infos {
		if unread[i] != nil {
			continue
		}
		if info.Turn.IsZero() {
			stale.add(index, places[i].Session, places[i].Generation)
			continue
		}
		running = append(running, info)
	}
	s.removeStale(ctx, stale)
	if len(places) < limit {
		return running, nil, nil
	}
	return running, &places[len(places)-1].Cursor, nil
}

func (s *Store) ConversationsVersion(ctx context.Context, tenant string) (string, error) {
	answer, err := s.conn.Ask(ctx, scriptChatsVersion, 2, chatsKeys(tenant), s.historyTTL, rand.Text())
	if err != nil || answer[0] == "" {
		return "", err
	}
	return redisconn.Text(answer[0]) + " " + decimal(redisconn.Int(answer[1])), nil
}

func (s *Store) NameConversation(ctx context.Context, key registry.Key, title string) error {
	if _, err := s.conn.Eval(ctx, scriptChatName, chatKeys(key), s.historyTTL, title); err != nil {
		return err
	}
	_, err := s.conn.Do(ctx, "SET", chatsKeys(key.Tenant)[1], rand.Text(), "PX", s.historyTTL)
	return err
}

func (s *Store) EraseConversation(ctx context.Context, key registry.Key) (bool, error) {
	c, err := s.conn.Eval(ctx, scriptChatErase, chatPlaceKeys(key), s.historyTTL, millis(s.opts.PlaceTTL))
	if err != nil {
		return false, err
	}
	_, err = s.conn.Eval(ctx, scriptChatsForget, chatsKeys(key.Tenant), s.historyTTL, key.Session, rand.Text())
	return c.Int() > 0, err
}

// touch makes the lists show what a turn has changed. It is a second round trip, because a lost turn must change
// nothing, and the conversation and the lists are in different slots.
func (s *Store) touch(ctx context.Context, t registry.Turn) error {
	_, err := s.conn.Eval(ctx, scriptChatsTouch, chatsKeys(t.Key.Tenant),
		s.historyTTL, t.Key.Session, decimal(t.Fence), rand.Text())
	return err
}
