package redisstore

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/farhand/farhand/internal/strictjson"
	"github.com/farhand/farhand/redisstore/internal/redisconn"
	"github.com/farhand/farhand/registry"
)

const (
	streamField = "d" // the one field of every entry, JSON
	appendChunk = 100 // entries per script, because a script blocks the server
	feedWhole   = 64  // lines of a batch that a script appends to a feed; of a larger batch it appends feedHead
	feedHead    = 16
	followBlock = time.Second // how long one read waits: it cannot be cancelled

	followerPool = 32 // connections for waiting, per server
)

func (s *Store) AppendCallEvents(ctx context.Context, events []registry.CallEvent) error {
	type call struct{ tenant, id string }
	logs := make(map[call][]any)
	for _, e := range events {
		text, err := strictjson.Encode(e)
		if err != nil {
			return registry.AsError(err)
		}
		c := call{e.Tenant, e.CallID}
		logs[c] = append(logs[c], e.Rank(), text)
	}
	pipe := s.conn.Pipeline()
	for c, pairs := range logs {
		for pairs := range slices.Chunk(pairs, 2*appendChunk) {
			pipe.Eval(scriptCallLog, callKeys(c.tenant, c.id), append([]any{s.retention}, pairs...)...)
		}
	}
	return pipe.ExecEach(ctx)
}

// stateEvent returns the event that reports a state in the log of a call: a rank and a text.
func stateEvent(tenant, callID string, state registry.State) ([]any, error) {
	e := registry.StateEvent(tenant, callID, state, time.Now().UTC())
	text, err := strictjson.Encode(e)
	return []any{e.Rank(), text}, err
}

func (s *Store) CallEvents(ctx context.Context, tenant, callID, after string, limit int) ([]registry.CallEvent, error) {
	start, err := beyond(after, "-")
	if err != nil {
		return nil, err
	}
	parse := func(text []byte, id string) (registry.CallEvent, error) {
		e := registry.CallEvent{ID: id, Tenant: tenant}
		err := json.Unmarshal(text, &e)
		return e, err
	}
	events, _, err := readStream(ctx, s, redisconn.FormCallEvent, limit, parse, "XRANGE", callEventsKey(tenant, callID),
		start, "+")
	return events, err
}

// ReadActivity implements registry.ActivityStore. It may return up to a second after ctx has ended.
func (s *Store) ReadActivity(
	ctx context.Context, tenant, after string, limit int, wait time.Duration,
) ([]registry.Activity, error) {
	start, err := beyond(after, "-")
	if err != nil {
		return nil, err
	}
	for deadline := time.Now().Add(wait); ; {
		found, last, err := s.activity(ctx, tenant, limit, "XRANGE", start, "+")
		if last != "" { // also skip entries that cannot be read
			after, start = last, "("+last
		}
		remaining := time.Until(deadline)
		if err != nil || len(found) > 0 || remaining <= 0 {
			return found, err
		}
		if err := s.follow.wait(ctx, activityKey(tenant), after, min(remaining, followBlock)); err != nil {
			return nil, redisconn.Unavailable("wait for activity", err)
		}
	}
}

func (s *Store) LastActivity(ctx context.Context, tenant, before string, limit int) ([]registry.Activity, error) {
	end, err := beyond(before, "+")
	if err != nil {
		return nil, err
	}
	found, _, err := s.activity(ctx, tenant, limit, "XREVRANGE", end, "-")
	return found, err
}

func (s *Store) FindCall(ctx context.Context, tenant, callID string) (registry.Record, error) {
	keys, mark := feedKeys(tenant), callMark(callID)
	pipe := s.conn.Pipeline()
	places := []*redisconn.Command{pipe.Do("HGET", keys[2], mark), pipe.Do("HGET", keys[3], mark)}
	if err := pipe.Exec(ctx); err != nil {
		return registry.Record{}, err
	}
	for _, place := range places {
		id, ok := place.Text()
		if !ok {
			continue
		}
		found, _, err := s.activity(ctx, tenant, 1, "XRANGE", id, id)
		if err != nil {
			return registry.Record{}, err
		}
		if len(found) == 1 && found[0].Call != nil && found[0].Call.CallID == callID {
			return *found[0].Call, nil
		}
	}
	return registry.Record{}, registry.ErrNoCall
}

// activity reads a page of a feed.
func (s *Store) activity(
	ctx context.Context, tenant string, limit int, command, from, to string,
) (found []registry.Activity, last string, err error) {
	parse := func(text []byte, id string) (registry.Activity, error) { return parseActivity(text, id, tenant) }
	return readStream(ctx, s, redisconn.FormActivity, limit, parse, command, activityKey(tenant), from, to)
}

// readStream reads a page of a stream, and returns the id of the last entry that it visited, empty if there was none.
// It leaves out unreadable entries. A page of only such entries does not end the stream.
func readStream[T any](
	ctx context.Context, s *Store, form redisconn.Form, limit int, parse func(text []byte, id string) (T, error),
	command, key, from, to string,
) (found []T, last string, err error) {
	for {
		c, err := s.conn.Do(ctx, command, key, from, to, "COUNT", pageSize(limit))
		if err != nil {
			return nil, "", err
		}
		var end string
		found, end = parseEntries(s, form, c, parse)
		if end != "" {
			last = end
		}
		if len(found) > 0 || end == "" || from == to {
			return found, last, nil
		}
		from = "(" + end
	}
}

// beyond returns the bound of a range that excludes the entry with that id. It returns all if the id is empty.
func beyond(id, all string) (string, error) {
	if id == "" {
		return all, nil
	}
	if err := registry.CheckFeedID(id); err != nil {
		return "", err
	}
	return "(" + id, nil
}

// parseEntries reads a range of a stream, and returns the id of its last entry. parse reads the text of one entry.
// Unreadable entries are left out, because one of them must not hide all others. They come from another release or
// another program.
func parseEntries[T any](
	s *Store, form redisconn.Form, c *redisconn.Command, parse func(text []byte, id string) (T, error),
) (entries []T, last string) {
	list := c.List()
	entries = make([]T, 0, len(list))
	var failure error
	for _, raw := range list {
		entry, _ := raw.([]any)
		if len(entry) != 2 {
			failure = c.ErrShape()
			continue
		}
		last = redisconn.Text(entry[0])
		fields := redisconn.Map(entry[1])
		if s.conn.Forms().Check(form, fields[redisconn.FormField]) != nil {
			continue
		}
		parsed, err := parse([]byte(fields[streamField]), last)
		if err != nil {
			failure = fmt.Errorf("entry %s: %w", last, err)
			continue
		}
		entries = append(entries, parsed)
	}
	if failure != nil {
		s.log.Debug("entries not readable; skipped", "entries", len(list)-len(entries), "error", failure)
	}
	return entries, last
}

// follower waits for streams to grow, on its own connections. It is safe for concurrent use.
type follower struct {
	client  redis.UniversalClient
	timeout time.Duration // of the servers
}

func newFollower(conn *redisconn.Conn) *follower {
	return &follower{client: conn.NewBlockingClient(followerPool), timeout: conn.Timeout()}
}

func (f *follower) close() error { return f.client.Close() }

// wait returns when the stream has an entry after the one with that id, or after about atMost. If there are more
// readers than connections, it also returns when none became free in time, and its caller reads the stream.
func (f *follower) wait(ctx context.Context, key, after string, atMost time.Duration) error {
	// So that a hanging Redis is noticed. Waiting for a connection and the read may take f.timeout each.
	bounded, cancel := context.WithTimeout(ctx, atMost+2*f.timeout)
	defer cancel()
	err := f.client.XRead(bounded, &redis.XReadArgs{
		Streams: []string{key, cmp.Or(after, "0-0")}, Count: 1,
		Block: max(atMost, time.Millisecond), // zero would block forever
	}).Err()
	if err == nil || errors.Is(err, redis.Nil) || errors.Is(err, redis.ErrPoolTimeout) {
		return ctx.Err()
	}
	return err
}
