package api

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/farhand/farhand/registry"
)

const (
	// roomWait is how long a request waits for room. roomRetry is when a refused caller should try again. roomLook is
	// how often a waiting request looks for a stalled client.
	roomWait  = 5 * time.Second
	roomRetry = 2 * time.Second
	roomLook  = 50 * time.Millisecond

	// stallGrace is how long a client may neither send nor receive while others wait for room. Then it is cut off.
	stallGrace = 250 * time.Millisecond
)

// room bounds the bytes that the bodies or the answers of this pod take. A request waits for room, and stalled clients
// make room for it. It is safe for concurrent use.
type room struct {
	limit int64
	full  string // the message for a request that finds no room

	// deadline sets when a transfer fails. A client that moves no part of it within partLimit is cut off, also if
	// nobody waits; zero: the server sets that deadline.
	deadline  func(*http.ResponseController, time.Time) error
	partLimit time.Duration

	free *semaphore.Weighted
	made atomic.Int64 // bytes that are in memory already and wait for room

	refused atomic.Int64 // requests that found no room

	mu     sync.Mutex
	moving map[*hold]time.Time // transfers under way, and when each last moved
}

// hold is the room that one body or answer takes. It belongs to one goroutine at a time.
type hold struct {
	room     *room
	bytes    int64
	released atomic.Bool
	control  *http.ResponseController // nil before the transfer begins
}

// reserve waits for room for n bytes.
func (r *room) reserve(ctx context.Context, n int64) (*hold, error) {
	ctx, cancel := context.WithTimeout(ctx, roomWait)
	defer cancel()
	h := &hold{room: r, bytes: min(n, r.limit)}
	for !r.free.TryAcquire(h.bytes) {
		r.cutStalled(h.bytes)
		look, stop := context.WithTimeout(ctx, roomLook)
		err := r.free.Acquire(look, h.bytes)
		stop()
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			r.refused.Add(1)
			return nil, r.busy()
		}
	}
	return h, nil
}

// reserveMade waits for room for n bytes that are in memory already. As many such bytes may wait as fit in the room.
// Beyond that it fails at once.
func (r *room) reserveMade(ctx context.Context, n int64) (*hold, error) {
	defer r.made.Add(-n)
	if r.made.Add(n) > r.limit {
		r.refused.Add(1)
		return nil, r.busy()
	}
	return r.reserve(ctx, n)
}

func (r *room) busy() error {
	return &registry.Error{Code: registry.CodeBusy, RetryAfter: roomRetry, Message: r.full}
}

// cutStalled ends stalled transfers, the longest stalled first, until there will be room for n bytes.
func (r *room) cutStalled(n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	byAge := func(a, b *hold) int { return r.moving[a].Compare(r.moving[b]) }
	for _, h := range slices.SortedFunc(maps.Keys(r.moving), byAge) {
		if n <= 0 || time.Since(r.moving[h]) < stallGrace {
			return
		}
		n -= h.bytes
		delete(r.moving, h)
		_ = r.deadline(h.control, time.Unix(1, 0)) // the transfer fails, and its request with it
	}
}

// nextPart notes that all parts so far have moved and that another one begins. It reports false if the client was cut
// off.
func (h *hold) nextPart(control *http.ResponseController) bool {
	r := h.room
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.moving[h]; !ok && h.control != nil {
		return false
	}
	h.control = control
	r.moving[h] = time.Now()
	if r.partLimit > 0 {
		_ = r.deadline(control, time.Now().Add(r.partLimit)) // fails for a test's recorder, which has no slow reader
	}
	return true
}

// endTransfer notes that no further part is expected. It reports false if the client was cut off.
func (h *hold) endTransfer() bool {
	h.room.mu.Lock()
	defer h.room.mu.Unlock()
	_, ok := h.room.moving[h]
	delete(h.room.moving, h)
	return ok
}

// shrink gives up the room beyond n bytes.
func (h *hold) shrink(n int) {
	if less := h.bytes - max(int64(n), 1); less > 0 {
		h.room.free.Release(less)
		h.bytes -= less
	}
}

// release gives up all of the room, after the last part. Further calls do nothing.
func (h *hold) release() {
	if h.released.Swap(true) {
		return
	}
	h.endTransfer()
	h.room.free.Release(h.bytes)
}
