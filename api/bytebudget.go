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
	// budgetWait is how long a request waits for its bytes. budgetRetry is when a refused caller should try again.
	// stallCheck is how often a waiting request looks for a stalled client.
	budgetWait  = 5 * time.Second
	budgetRetry = 2 * time.Second
	stallCheck  = 50 * time.Millisecond

	// stallGrace is how long a client may neither send nor receive while others wait. Then it is disconnected.
	stallGrace = 250 * time.Millisecond
)

// byteBudget bounds the bytes that the bodies or the answers of this pod take. A request waits for its bytes, and
// stalled clients are disconnected for it. A byteBudget is safe for concurrent use.
type byteBudget struct {
	limit int64
	full  string // the message for a request that is refused

	// deadline sets when a transfer fails. A client that moves no part of it within partLimit is disconnected, also if
	// nobody waits; zero: the server sets that deadline.
	deadline  func(*http.ResponseController, time.Time) error
	partLimit time.Duration

	free *semaphore.Weighted
	made atomic.Int64 // bytes that are in memory already and wait

	refused atomic.Int64 // requests

	mu     sync.Mutex
	moving map[*reservation]time.Time // transfers under way, and when each last moved
}

// reservation is the bytes of one body or answer. It belongs to one goroutine at a time.
type reservation struct {
	budget   *byteBudget
	bytes    int64
	released atomic.Bool
	control  *http.ResponseController // nil before the transfer begins
}

// reserve waits for n bytes. Requests get theirs in the order in which they came, so that small ones do not pass a
// large one until its time is over.
func (r *byteBudget) reserve(ctx context.Context, n int64) (*reservation, error) {
	h := &reservation{budget: r, bytes: min(n, r.limit)}
	if r.free.TryAcquire(h.bytes) {
		return h, nil
	}
	ctx, cancel := context.WithTimeout(ctx, budgetWait)
	defer cancel()
	waiting, stop := context.WithCancel(ctx)
	var makingRoom sync.WaitGroup
	makingRoom.Go(func() { r.makeRoom(waiting, h.bytes) })
	err := r.free.Acquire(ctx, h.bytes)
	stop()
	makingRoom.Wait()
	if err != nil {
		r.refused.Add(1)
		return nil, r.busy()
	}
	return h, nil
}

// makeRoom disconnects stalled clients for a request that waits for n bytes, until ctx ends.
func (r *byteBudget) makeRoom(ctx context.Context, n int64) {
	check := time.NewTicker(stallCheck)
	defer check.Stop()
	for {
		r.disconnectStalled(n)
		select {
		case <-ctx.Done():
			return
		case <-check.C:
		}
	}
}

// reserveMade waits for n bytes that are in memory already. As many such bytes may wait as the budget has. Beyond that
// it fails at once.
func (r *byteBudget) reserveMade(ctx context.Context, n int64) (*reservation, error) {
	defer r.made.Add(-n)
	if r.made.Add(n) > r.limit {
		r.refused.Add(1)
		return nil, r.busy()
	}
	return r.reserve(ctx, n)
}

func (r *byteBudget) busy() error {
	return &registry.Error{Code: registry.CodeBusy, RetryAfter: budgetRetry, Message: r.full}
}

// disconnectStalled ends stalled transfers, the longest stalled first, until n bytes will be free.
func (r *byteBudget) disconnectStalled(n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	byAge := func(a, b *reservation) int { return r.moving[a].Compare(r.moving[b]) }
	for _, h := range slices.SortedFunc(maps.Keys(r.moving), byAge) {
		if n <= 0 || time.Since(r.moving[h]) < stallGrace {
			return
		}
		n -= h.bytes
		delete(r.moving, h)
		_ = r.deadline(h.control, time.Unix(1, 0)) // the transfer fails, and its request with it
	}
}

// nextPart notes that all parts so far have moved and that another one begins. It reports false if the client was
// disconnected.
func (h *reservation) nextPart(control *http.ResponseController) bool {
	r := h.budget
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

// endTransfer notes that no further part is expected. It reports false if the client was disconnected.
func (h *reservation) endTransfer() bool {
	h.budget.mu.Lock()
	defer h.budget.mu.Unlock()
	_, ok := h.budget.moving[h]
	delete(h.budget.moving, h)
	return ok
}

// shrink gives back the bytes beyond n.
func (h *reservation) shrink(n int) {
	if less := h.bytes - max(int64(n), 1); less > 0 {
		h.budget.free.Release(less)
		h.bytes -= less
	}
}

// release gives back all bytes, after the last part. Further calls do nothing.
func (h *reservation) release() {
	if h.released.Swap(true) {
		return
	}
	h.endTransfer()
	h.budget.free.Release(h.bytes)
}
