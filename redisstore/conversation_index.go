package redisstore

import (
	"context"
	"crypto/rand"
	"time"

	"github.com/farhand/farhand/registry"
)

// maxRunningReads bounds how often the running conversations are read again because some of them had ended without saying so.
const maxRunningReads = 5

// DescribeConversations implements registry.ConversationIndex.
func (s *Store) DescribeConversations(ctx context.Context, keys ...registry.Key) ([]registry.ConversationInfo, error) {
	infos, err := s.describe(ctx, keys)
	return infos, unavailable("describe conversations", err)
}

func (s *Store) describe(ctx context.Context, keys []registry.Key) ([]registry.ConversationInfo, error) {
	b := s.conn.batch()
	calls := make([]*call, len(keys))
	for i, key := range keys {
		calls[i] = b.eval(scriptChatInfo, chatKeys(key), s.historyTTL)
	}
	if err := b.run(ctx); err != nil {
		return nil, err
	}
	infos := make([]registry.ConversationInfo, len(keys))
	for i, c := range calls {
		answer := c.list()
		if len(answer) != 8 {
			return nil, errShape(c)
		}
		text := toStrings(c.cmd.Val())
		infos[i] = registry.ConversationInfo{
			Key: keys[i], Messages: int(toInt(answer[0])), Title: text[1], Named: text[2] == "1",
			Created: timeOf(text[3], time.UnixMilli), Active: timeOf(text[4], time.UnixMilli),
			Owner: registry.Owner{UserID: text[5], DeviceID: text[6]}, Turn: timeOf(text[7], time.UnixMicro),
		}
	}
	return infos, nil
}

// timeOf reads a clock reading, the zero time if there is none.
func timeOf(text string, unit func(int64) time.Time) time.Time {
	if n := toInt(text); n > 0 {
		return unit(n).UTC()
	}
	return time.Time{}
}

// ListConversations implements registry.ConversationIndex. One call looks at a bounded part of the index.
func (s *Store) ListConversations(
	ctx context.Context, q registry.ConversationQuery,
) ([]registry.ConversationInfo, *registry.ConversationCursor, error) {
	limit := pageSize(q.Limit)
	var found []registry.ConversationInfo
	for scanned, at := 0, q.After; ; {
		want := min(limit-len(found), listChunk)
		places, err := s.conversationPlaces(ctx, q.Tenant, at, want+1)
		if err != nil {
			return nil, nil, unavailable("list conversations", err)
		}
		more := len(places) > want
		places = places[:min(want, len(places))]
		infos, err := s.resolveConversations(ctx, q, places)
		if err != nil {
			return nil, nil, unavailable("list conversations", err)
		}
		found = append(found, infos...)
		if !more {
			return found, nil, nil
		}
		last := places[len(places)-1]
		at = registry.ConversationCursor{Active: last.Generation, Session: last.Session}
		scanned += len(places)
		if len(found) >= limit || scanned >= maxScan {
			return found, &at, nil
		}
	}
}

// conversationPlaces reads a part of the index, the last used first.
func (s *Store) conversationPlaces(
	ctx context.Context, tenant string, after registry.ConversationCursor, limit int,
) ([]place, error) {
	index := chatsIndex(tenant)
	b := s.conn.batch()
	b.eval(scriptChatsPrune, chatsKeys(tenant), s.historyTTL)
	c := b.eval(scriptPage, []string{index}, "down", decimal(after.Active), after.Session, limit)
	if err := b.run(ctx); err != nil {
		return nil, err
	}
	return merge([]string{index}, []*call{c}, limit, true), nil
}

// resolveConversations describes what is at the given places, and removes places that lead nowhere.
func (s *Store) resolveConversations(
	ctx context.Context, q registry.ConversationQuery, places []place,
) ([]registry.ConversationInfo, error) {
	if len(places) == 0 {
		return nil, nil
	}
	keys := make([]registry.Key, len(places))
	for i, p := range places {
		keys[i] = registry.Key{Tenant: q.Tenant, Session: p.Session}
	}
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

// removeStale removes places that led nowhere. If that fails, the next reader tries again.
func (s *Store) removeStale(ctx context.Context, tenant string, stale removals) {
	if len(stale) == 0 {
		return
	}
	b := s.conn.batch()
	stale.into(b)
	if err := b.run(ctx); err != nil {
		s.log.Debug("stale entries of conversations not removed", "tenant", tenant, "error", err)
	}
}

// connected reports of each session whether it is connected. The keys are of one tenant.
func (s *Store) connected(ctx context.Context, keys []registry.Key) ([]bool, error) {
	b := s.conn.batch()
	owners := make([]*call, len(keys))
	for i, key := range keys {
		owners[i] = b.do("HGET", sessionKey(key), fieldPod)
	}
	if err := b.run(ctx); err != nil {
		return nil, err
	}
	var pods []string
	for _, c := range owners {
		if pod, ok := c.text(); ok {
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
		pod, ok := c.text()
		connected[i] = ok && live[pod]
	}
	return connected, nil
}

// RunningConversations implements registry.ConversationIndex.
func (s *Store) RunningConversations(ctx context.Context, tenant string, limit int) ([]registry.ConversationInfo, error) {
	index := runningIndex(tenant)
	var running []registry.ConversationInfo
	for range maxRunningReads {
		b := s.conn.batch()
		c := b.eval(scriptPage, []string{index}, "up", 0, "", pageSize(limit))
		if err := b.run(ctx); err != nil {
			return nil, unavailable("list running conversations", err)
		}
		places := merge([]string{index}, []*call{c}, limit, false)
		keys := make([]registry.Key, len(places))
		for i, p := range places {
			keys[i] = registry.Key{Tenant: tenant, Session: p.Session}
		}
		infos, err := s.describe(ctx, keys)
		if err != nil {
			return nil, unavailable("list running conversations", err)
		}
		stale := make(removals)
		running = infos[:0]
		for i, info := range infos {
			if info.Turn.IsZero() {
				stale.add(index, places[i].Session, places[i].Generation)
				continue
			}
			running = append(running, info)
		}
		s.removeStale(ctx, tenant, stale)
		if len(stale) == 0 || len(places) < limit {
			break
		}
	}
	return running, nil
}

// ConversationsVersion implements registry.ConversationIndex.
func (s *Store) ConversationsVersion(ctx context.Context, tenant string) (string, error) {
	b := s.conn.batch()
	c := b.eval(scriptChatsVersion, chatsKeys(tenant), s.historyTTL, rand.Text())
	if err := b.run(ctx); err != nil {
		return "", unavailable("version of conversations", err)
	}
	answer := c.list()
	if len(answer) != 2 {
		return "", unavailable("version of conversations", errShape(c))
	}
	version, _ := answer[0].(string)
	if version == "" {
		return "", nil
	}
	return version + " " + decimal(toInt(answer[1])), nil
}

// NameConversation implements registry.ConversationIndex.
func (s *Store) NameConversation(ctx context.Context, key registry.Key, title string) error {
	if _, err := s.chat(ctx, "name conversation", scriptChatName, key, title); err != nil {
		return err
	}
	b := s.conn.batch()
	b.do("SET", chatsKeys(key.Tenant)[1], rand.Text(), "PX", s.historyTTL)
	return unavailable("name conversation", b.run(ctx))
}

// EraseConversation implements registry.ConversationIndex.
func (s *Store) EraseConversation(ctx context.Context, key registry.Key) (bool, error) {
	c, err := s.chat(ctx, "erase conversation", scriptChatErase, key)
	if err != nil {
		return false, err
	}
	b := s.conn.batch()
	b.eval(scriptChatsForget, chatsKeys(key.Tenant), s.historyTTL, key.Session, rand.Text())
	return c.int() > 0, unavailable("erase conversation", b.run(ctx))
}

// touch has the lists show what a turn changed. It is another trip: what a lost turn writes must leave no trace, and the
// conversation and the lists are in different slots.
func (s *Store) touch(ctx context.Context, t registry.Turn) error {
	b := s.conn.batch()
	b.eval(scriptChatsTouch, chatsKeys(t.Key.Tenant), s.historyTTL, t.Key.Session, decimal(t.Fence), rand.Text())
	return unavailable("list a conversation", b.run(ctx))
}
