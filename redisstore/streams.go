package redisstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/farhand/farhand/registry"
)

const (
	streamField   = "d"         // the one field of every entry, JSON
	maxCallEvents = 2048        // kept of one call, roughly
	appendChunk   = 100         // entries appended by one script: it holds up the server
	feedHead      = 16          // entries of a batch appended to a feed by a script
	followBlock   = time.Second // how long one read waits: it cannot be called off
)

// AppendCallEvents implements registry.CallStore.
func (s *Store) AppendCallEvents(ctx context.Context, events []registry.CallEvent) error {
	type call struct{ tenant, id string }
	logs := make(map[call][]any)
	for _, e := range events {
		text, err := encodeJSON(e)
		if err != nil {
			return registry.AsError(err)
		}
		c := call{e.Tenant, e.CallID}
		logs[c] = append(logs[c], text)
	}
	b := s.conn.batch()
	for c, texts := range logs {
		keys := []string{callEventsKey(c.tenant, c.id), callKey(c.tenant, c.id)}
		appendTo(b, keys, s.retention, maxCallEvents, texts)
	}
	return unavailable("append call events", b.run(ctx))
}

// appendTo adds to a stream, a bounded number of entries at a time.
func appendTo(b *batch, keys []string, ttl int64, limit int, texts []any) {
	for start := 0; start < len(texts); start += appendChunk {
		chunk := texts[start:min(start+appendChunk, len(texts))]
		b.eval(scriptAppend, keys, append([]any{ttl, limit}, chunk...)...)
	}
}

// CallEvents implements registry.CallStore.
func (s *Store) CallEvents(ctx context.Context, tenant, callID, after string) ([]registry.CallEvent, error) {
	start, err := beyond(after, "-")
	if err != nil {
		return nil, err
	}
	b := s.conn.batch()
	c := b.do("XRANGE", callEventsKey(tenant, callID), start, "+")
	if err := b.run(ctx); err != nil {
		return nil, unavailable("read call events", err)
	}
	events, err := parseEntries(c, func(text []byte, id string) (registry.CallEvent, error) {
		e := registry.CallEvent{ID: id, Tenant: tenant}
		err := json.Unmarshal(text, &e)
		return e, err
	})
	return events, unavailable("read call events", err)
}

// ReadActivity implements registry.ActivityStore. It returns up to a second after ctx has ended.
func (s *Store) ReadActivity(
	ctx context.Context, tenant, after string, limit int, wait time.Duration,
) ([]registry.Activity, error) {
	start, err := beyond(after, "-")
	if err != nil {
		return nil, err
	}
	for deadline := time.Now().Add(wait); ; {
		found, err := s.activity(ctx, tenant, limit, "XRANGE", start, "+")
		left := time.Until(deadline)
		if err != nil || len(found) > 0 || left <= 0 {
			return found, err
		}
		if err := s.conn.follow.wait(ctx, activityKey(tenant), after, min(left, followBlock)); err != nil {
			return nil, unavailable("wait for activity", err)
		}
	}
}

// LastActivity implements registry.ActivityStore.
func (s *Store) LastActivity(ctx context.Context, tenant, before string, limit int) ([]registry.Activity, error) {
	end, err := beyond(before, "+")
	if err != nil {
		return nil, err
	}
	return s.activity(ctx, tenant, limit, "XREVRANGE", end, "-")
}

// activity reads a page of a feed.
func (s *Store) activity(
	ctx context.Context, tenant string, limit int, command, from, to string,
) ([]registry.Activity, error) {
	b := s.conn.batch()
	c := b.do(command, activityKey(tenant), from, to, "COUNT", pageSize(limit))
	if err := b.run(ctx); err != nil {
		return nil, unavailable("read activity", err)
	}
	found, err := parseEntries(c, func(text []byte, id string) (registry.Activity, error) {
		return parseActivity(text, id, tenant)
	})
	return found, unavailable("read activity", err)
}

// beyond returns the bound of a range that excludes the entry with that id; all when there is none.
func beyond(id, all string) (string, error) {
	if id == "" {
		return all, nil
	}
	if err := registry.CheckFeedID(id); err != nil {
		return "", err
	}
	return "(" + id, nil
}

// parseEntries reads a range of a stream; parse reads the text of one entry.
func parseEntries[T any](c *call, parse func(text []byte, id string) (T, error)) ([]T, error) {
	list := c.list()
	entries := make([]T, len(list))
	for i, raw := range list {
		entry, _ := raw.([]any)
		if len(entry) != 2 {
			return nil, errShape(c)
		}
		id, _ := entry[0].(string)
		var err error
		if entries[i], err = parse([]byte(toMap(entry[1])[streamField]), id); err != nil {
			return nil, fmt.Errorf("entry %s: %w", id, err)
		}
	}
	return entries, nil
}

// follower waits for streams to grow, on connections of its own. When more want to wait than there are connections
// they take turns, and look for themselves in between. It is safe for concurrent use.
type follower struct {
	client redis.UniversalClient
	slots  chan struct{}
}

func newFollower(a address) *follower {
	return &follower{client: newClient(a, roleFollower), slots: make(chan struct{}, followerPool)}
}

func (f *follower) close() error { return f.client.Close() }

// wait returns when the stream has an entry behind the one with that id, or after about that time.
func (f *follower) wait(ctx context.Context, key, after string, atMost time.Duration) error {
	if after == "" {
		after = "0-0"
	}
	turn := time.NewTimer(atMost)
	defer turn.Stop()
	select {
	case f.slots <- struct{}{}:
		defer func() { <-f.slots }()
	case <-turn.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
	bounded, cancel := context.WithTimeout(ctx, atMost+ioTimeout) // a Redis that hangs is noticed
	defer cancel()
	err := f.client.XRead(bounded, &redis.XReadArgs{
		Streams: []string{key, after}, Count: 1, Block: max(atMost, time.Millisecond), // zero would be forever
	}).Err()
	if err == nil || errors.Is(err, redis.Nil) {
		return ctx.Err()
	}
	return err
}
