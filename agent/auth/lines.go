package auth

import (
	"sync"
	"time"
)

// lineLimit is how many lines of one kind a log gets.
var lineLimit = Limit{Rate: 0.5, Burst: 10}

// Lines keeps a flood of one kind from filling a log: of each kind the first ten lines are written, then one every two
// seconds, which says how many were left out. Kinds must be few: they are never forgotten. It is safe for concurrent
// use.
type Lines[K comparable] struct {
	started time.Time

	mu    sync.Mutex
	kinds map[K]*lineKind
}

type lineKind struct {
	bucket  Bucket
	omitted int // since the last line
}

// NewLines returns a limit that has let nothing through yet.
func NewLines[K comparable]() *Lines[K] {
	return &Lines[K]{started: time.Now(), kinds: make(map[K]*lineKind)}
}

// May reports whether a line of a kind may be written now, and how many were left out before it.
func (l *Lines[K]) May(kind K) (omitted int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.kinds[kind]
	if k == nil {
		k = &lineKind{}
		l.kinds[kind] = k
	}
	if !k.bucket.Take(lineLimit, time.Since(l.started), 1) {
		k.omitted++
		return 0, false
	}
	omitted, k.omitted = k.omitted, 0
	return omitted, true
}
