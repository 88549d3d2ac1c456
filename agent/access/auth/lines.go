package auth

import (
	"sync"
	"time"
)

// lineLimit is how many lines of one kind a log gets.
var lineLimit = Limit{Rate: 0.5, Burst: 10}

// maxLineKinds bounds the kinds that are remembered: one may name a tenant.
const maxLineKinds = 1 << 12

// Lines keeps a flood of one kind from filling a log: of each kind the first ten lines are written, then one every two
// seconds, which says how many were left out. Beyond maxLineKinds, kinds that may have ten lines again are forgotten
// with what was left out of them, and then any. It is safe for concurrent use.
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
	now := time.Since(l.started)
	k := l.kinds[kind]
	if k == nil {
		l.pruneLocked(now)
		k = &lineKind{}
		l.kinds[kind] = k
	}
	if !k.bucket.Take(lineLimit, now, 1) {
		k.omitted++
		return 0, false
	}
	omitted, k.omitted = k.omitted, 0
	return omitted, true
}

// pruneLocked makes room for a kind.
func (l *Lines[K]) pruneLocked(now time.Duration) {
	if len(l.kinds) < maxLineKinds {
		return
	}
	for kind, k := range l.kinds {
		if k.bucket.fill(lineLimit, now); k.bucket.spent == 0 || len(l.kinds) > maxLineKinds*3/4 {
			delete(l.kinds, kind)
		}
	}
}
