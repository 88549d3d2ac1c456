package redisstore

import (
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
