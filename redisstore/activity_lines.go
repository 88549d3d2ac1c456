package redisstore

import (
	"bytes"
	"context"
	"encoding/json"
	"hash/fnv"
	"sync"

	"github.com/farhand/farhand/redisstore/internal/redisconn"
	"github.com/farhand/farhand/registry"
)

// maxLineBuffer is how large a buffer may have become and still be used again.
const maxLineBuffer = 1 << 20

// lineBuffers are the buffers in which the lines of a batch are written one behind the other.
type lineBuffers struct{ pool sync.Pool }

// get returns an empty buffer.
func (l *lineBuffers) get() *bytes.Buffer {
	if buf, ok := l.pool.Get().(*bytes.Buffer); ok {
		return buf
	}
	return new(bytes.Buffer)
}

// put takes a buffer back when nobody refers to its lines any more.
func (l *lineBuffers) put(buf *bytes.Buffer) {
	if buf.Cap() <= maxLineBuffer {
		buf.Reset()
		l.pool.Put(buf)
	}
}

// feedLines are the lines to be added to the feed of one tenant.
type feedLines struct {
	texts []any
	marks []string // of the calls they tell the end of, empty for other lines
	bytes int
}

// AppendActivity implements registry.ActivityStore. The first lines of a feed are appended by a script, which sees to
// it that the stream expires; a busy pod's many others follow as plain commands, for which Redis needs two thirds of
// the time (it hashes every byte a script is given), and only to a stream that is there.
func (s *Store) AppendActivity(ctx context.Context, all []registry.Activity) error {
	buf := s.lines.get()
	defer s.lines.put(buf) // the batches have run by then, and nothing else refers to the lines
	feeds, err := encodeFeeds(buf, all)
	if err != nil {
		return registry.AsError(err)
	}
	head, rest, more := s.conn.Pipeline(), s.conn.Pipeline(), make(map[string][]*redisconn.Command)
	for tenant, feed := range feeds {
		n := min(feedHead, len(feed.texts))
		s.appendLines(head, tenant, feed.bytes, feed.texts[:n], feed.marks[:n])
		if n < len(feed.texts) {
			more[tenant] = appendRest(rest, activityKey(tenant), feed.texts[n:])
		}
	}
	err = head.Exec(ctx)
	if err == nil && len(more) > 0 {
		if err = rest.Exec(ctx); err == nil {
			err = s.finishRest(ctx, feeds, more)
		}
	}
	return redisconn.Unavailable("append activity", err)
}

// appendLines adds lines, their bytes and their calls to a feed, a bounded number at a time.
func (s *Store) appendLines(pipe *redisconn.Pipeline, tenant string, bytes int, texts []any, marks []string) {
	for start := 0; start == 0 || start < len(texts); start += appendChunk {
		end := min(start+appendChunk, len(texts))
		args := make([]any, 0, 4+2*(end-start))
		args = append(args, s.activityTTL, s.activities, s.feedBytes, bytes)
		for i := start; i < end; i++ {
			args = append(args, texts[i], marks[i])
		}
		pipe.Eval(scriptFeed, feedKeys(tenant), args...)
		bytes = 0 // they are counted
	}
}

// appendRest adds lines to a feed that has just been written to. A stream that is gone answers with nothing.
func appendRest(pipe *redisconn.Pipeline, key string, texts []any) []*redisconn.Command {
	calls := make([]*redisconn.Command, len(texts))
	command := []any{"XADD", key, "NOMKSTREAM", "*", streamField, nil}
	args := make([]any, 0, len(texts)*len(command)) // of all of them
	for i, text := range texts {
		args = append(args, command...)
		args[len(args)-1] = text
		calls[i] = pipe.Do(args[len(args)-len(command) : len(args) : len(args)]...)
	}
	return calls
}

// finishRest adds to the index what appendRest has appended, has the feed trimmed, and appends with the script what had
// no stream any more to be appended to: Redis was emptied in between.
func (s *Store) finishRest(
	ctx context.Context, feeds map[string]*feedLines, appended map[string][]*redisconn.Command,
) error {
	pipe := s.conn.Pipeline()
	for tenant, calls := range appended {
		feed, index := feeds[tenant], []any{"HSET", feedIndex(tenant)}
		var texts []any
		var marks []string
		for i, c := range calls {
			id, ok := c.Text()
			switch mark := feed.marks[feedHead+i]; {
			case !ok:
				texts, marks = append(texts, feed.texts[feedHead+i]), append(marks, mark)
			case mark != "":
				index = append(index, mark, id)
			}
		}
		if len(index) > 2 {
			pipe.Do(index...)
		}
		pipe.Then()
		s.appendLines(pipe, tenant, 0, texts, marks)
	}
	return pipe.Exec(ctx)
}

// callMark is what a call is known by in the index of a feed. The line it leads to says which call it is of.
func callMark(callID string) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(callID)) // never fails
	return string(h.Sum(nil))
}

// encodeFeeds writes lines into the buffer and returns them by tenant, in order.
func encodeFeeds(buf *bytes.Buffer, all []registry.Activity) (map[string]*feedLines, error) {
	counts := make(map[string]int)
	for i := range all {
		counts[all[i].Tenant]++
	}
	feeds := make(map[string]*feedLines, len(counts))
	encoder := json.NewEncoder(buf)
	encoder.SetEscapeHTML(false)
	for i := range all {
		start := buf.Len()
		if err := encoder.Encode(activityLine(&all[i])); err != nil {
			return nil, err
		}
		line, feed := buf.Bytes()[start:buf.Len()-1], feeds[all[i].Tenant] // without the line's end
		if feed == nil {
			n := counts[all[i].Tenant]
			feed = &feedLines{texts: make([]any, 0, n), marks: make([]string, 0, n)}
			feeds[all[i].Tenant] = feed
		}
		mark := ""
		if a := &all[i]; a.Type == registry.ActivityCall && a.Call != nil {
			mark = callMark(a.Call.CallID)
		}
		feed.texts, feed.marks, feed.bytes = append(feed.texts, line), append(feed.marks, mark), feed.bytes+len(line)
	}
	return feeds, nil
}
