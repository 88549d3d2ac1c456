package redisstore

import (
	"context"
	"sync"

	"github.com/farhand/farhand/registry"
)

// maxLineBuffer is how large a buffer may have become and still be used again.
const maxLineBuffer = 1 << 20

// lineBuffers are the buffers in which the lines of a batch are written one behind the other.
type lineBuffers struct{ pool sync.Pool }

// take returns an empty buffer.
func (l *lineBuffers) take() *[]byte {
	if buf, ok := l.pool.Get().(*[]byte); ok {
		return buf
	}
	return new([]byte)
}

// put takes a buffer back that nobody refers to any more.
func (l *lineBuffers) put(buf *[]byte) {
	if cap(*buf) <= maxLineBuffer {
		*buf = (*buf)[:0]
		l.pool.Put(buf)
	}
}

// AppendActivity implements registry.ActivityStore. The first entries of a feed are appended by a script, which sees to it
// that the stream expires; a busy pod's many others follow as plain commands, for which Redis needs two thirds of the time
// (it hashes every byte a script is given), and only to a stream that is there.
func (s *Store) AppendActivity(ctx context.Context, all []registry.Activity) error {
	buf := s.lines.take()
	defer s.lines.put(buf) // the batches have run by then, and nothing else refers to the lines
	feeds, err := encodeFeeds(buf, all)
	if err != nil {
		return registry.AsError(err)
	}
	head, rest, more := s.conn.batch(), s.conn.batch(), make(map[string][]*call)
	for tenant, texts := range feeds {
		key, n := activityKey(tenant), min(feedHead, len(texts))
		appendTo(head, []string{key}, s.activityTTL, s.activities, texts[:n])
		if n < len(texts) {
			more[tenant] = s.appendRest(rest, key, texts[n:])
		}
	}
	err = head.run(ctx)
	if err == nil && len(more) > 0 {
		if err = rest.run(ctx); err == nil {
			err = s.appendRefused(ctx, feeds, more)
		}
	}
	return unavailable("append activity", err)
}

// appendRefused appends with the script what had no stream any more to be appended to: Redis was emptied in between.
func (s *Store) appendRefused(ctx context.Context, feeds map[string][]any, appended map[string][]*call) error {
	b, refused := s.conn.batch(), false
	for tenant, calls := range appended {
		var again []any
		for i, c := range calls {
			if c.cmd.Val() == nil {
				again = append(again, feeds[tenant][feedHead+i])
			}
		}
		if len(again) > 0 {
			refused = true
			appendTo(b, []string{activityKey(tenant)}, s.activityTTL, s.activities, again)
		}
	}
	if !refused {
		return nil
	}
	return b.run(ctx)
}

// appendRest appends entries to a feed that has just been written to. A stream that is gone answers with nothing.
func (s *Store) appendRest(b *batch, key string, texts []any) []*call {
	calls := make([]*call, len(texts))
	command := []any{"XADD", key, "NOMKSTREAM", "*", streamField, nil}
	args := make([]any, 0, len(texts)*len(command)) // of all of them
	for i, text := range texts {
		args = append(args, command...)
		args[len(args)-1] = text
		calls[i] = b.do(args[len(args)-len(command) : len(args) : len(args)]...)
	}
	b.do("XTRIM", key, "MAXLEN", "~", s.activities)
	return calls
}

// encodeFeeds writes lines into the buffer and returns them by tenant, in order.
func encodeFeeds(buf *[]byte, all []registry.Activity) (map[string][]any, error) {
	counts := make(map[string]int)
	for i := range all {
		counts[all[i].Tenant]++
	}
	feeds := make(map[string][]any, len(counts))
	for i := range all {
		start := len(*buf)
		var err error
		if *buf, err = appendActivity(*buf, &all[i]); err != nil {
			return nil, err
		}
		tenant := all[i].Tenant
		if feeds[tenant] == nil {
			feeds[tenant] = make([]any, 0, counts[tenant])
		}
		feeds[tenant] = append(feeds[tenant], (*buf)[start:])
	}
	return feeds, nil
}
