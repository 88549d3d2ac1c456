package api

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
)

const (
	// budgetWait is how long a request waits for its bytes. budgetRetry is when a rejected caller should retry.
	// stallCheck is how often a waiting request looks for a stalled client.
	budgetWait  = 5 * time.Second
	budgetRetry = 2 * time.Second
	stallCheck  = 50 * time.Millisecond

	// stallGrace is how long a client may neither send nor receive while others wait. After that it is disconnected.
	stallGrace = 250 * time.Millisecond
)

// byteBudget bounds the bytes of the bodies or the answers of this pod. A request waits for its bytes, and meanwhile
// stalled clients are disconnected. A byteBudget is safe for concurrent use.
type byteBudget struct {
	limit int64
	full  string // the message for a rejected request

	pool *share.Pool
	made *share.Pool // bytes that wait and are already in memory

	// deadline sets when a transfer fails. A client that moves no part of it within partLimit is disconnected, even if
	// no other request waits; zero: the server sets that deadline.
	deadline  func(*http.ResponseController, time.Time) error
	partLimit time.Duration

	refused atomic.Int64 // requests

	mu     sync.Mutex
	moving map[*reservation]time.Time // transfers in progress, and when each last moved
}

// reservation holds the bytes of one body or answer. It belongs to one goroutine at a time.
type reservation struct {
	*share.Grant
	budget  *byteBudget
	by      share.Owner
	size    int64                    // in bytes
	control *http.ResponseController // nil before the transfer begins
}

// newByteBudget returns a budget that ends transfers with setDeadline.
func newByteBudget(
	of share.Bounds, setDeadline func(*http.ResponseController, time.Time) error,
) *byteBudget {
	return &byteBudget{
		limit: of.Pod, pool: share.New(of), made: share.New(of), deadline: setDeadline,
		moving: make(map[*reservation]time.Time),
	}
}

// reserve waits for n bytes. The requests of an identity are served in order of arrival, so small ones do not overtake
// a large one until it times out.
func (r *byteBudget) reserve(ctx context.Context, by share.Owner, n int64) (*reservation, error) {
	h := &reservation{budget: r, by: by, size: min(n, r.limit)}
	if h.Grant = r.pool.TakeFree(by, h.size); h.Grant != nil {
		return h, nil
	}
	ctx, cancel := context.WithTimeout(ctx, budgetWait)
	defer cancel()
	waiting, stop := context.WithCancel(ctx)
	var makingRoom sync.WaitGroup
	makingRoom.Go(func() { r.makeRoom(waiting, by, h.size) })
	var err error
	h.Grant, err = r.pool.Acquire(ctx, by, h.size)
	stop()
	makingRoom.Wait()
	if err != nil {
		r.refused.Add(1)
		return nil, r.busy()
	}
	return h, nil
}

// makeRoom disconnects stalled clients for a request that waits for n bytes, until ctx ends.
func (r *byteBudget) makeRoom(ctx context.Context, by share.Owner, n int64) {
	check := time.NewTicker(stallCheck)
	defer check.Stop()
	for {
		r.disconnectStalled(by, n)
		select {
		case <-ctx.Done():
			return
		case <-check.C:
		}
	}
}

// reserveMade waits for n bytes that are already in memory. At most the size of the budget may wait this way. Beyond
// that it fails immediately.
func (r *byteBudget) reserveMade(ctx context.Context, by share.Owner, n int64) (*reservation, error) {
	waits, err := r.made.Try(by, n)
	if err != nil {
		r.refused.Add(1)
		return nil, r.busy()
	}
	defer waits.Release()
	return r.reserve(ctx, by, n)
}

// rowsWaiting is the divisor of the budget that gives how many bytes of rows of one identity may wait.
const rowsWaiting = 4

// reserveRow waits for n bytes of a row that is already in memory, until ctx ends: the reader of the rows before it may
// be slow. It fails immediately if too many bytes wait. It disconnects no client: that may be the reader of the row.
func (r *byteBudget) reserveRow(ctx context.Context, by share.Owner, n int64) (*reservation, error) {
	h := &reservation{budget: r, by: by, size: min(n, r.limit)}
	if h.Grant = r.pool.TakeFree(by, h.size); h.Grant != nil {
		return h, nil
	}
	few := by
	few.Most = max(r.limit/rowsWaiting, 1)
	waits, err := r.made.Try(few, n)
	if err == nil {
		defer waits.Release()
		h.Grant, err = r.pool.Acquire(ctx, by, h.size)
	}
	if err != nil {
		r.refused.Add(1)
		return nil, r.busy()
	}
	return h, nil
}

func (r *byteBudget) busy() error {
	return &registry.Error{Code: registry.CodeBusy, RetryAfter: budgetRetry, Message: r.full}
}

// disconnectStalled ends stalled transfers, the longest stalled first, until n bytes will be free for an owner. If the
// identity is at its own bound, only its own transfers are ended. Otherwise also those of its tenant, and of tenants
// that hold more.
func (r *byteBudget) disconnectStalled(by share.Owner, n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	held, own := r.pool.Held(by.Tenant), r.pool.Lacks(by, n) == share.Identity
	byAge := func(a, b *reservation) int { return r.moving[a].Compare(r.moving[b]) }
	for _, h := range slices.SortedFunc(maps.Keys(r.moving), byAge) {
		if n <= 0 || time.Since(r.moving[h]) < stallGrace {
			return
		}
		same := h.by.Tenant == by.Tenant
		if own && (!same || h.by.Identity != by.Identity) || !same && r.pool.Held(h.by.Tenant) <= held {
			continue
		}
		n -= h.size
		delete(r.moving, h)
		_ = r.deadline(h.control, time.Unix(1, 0)) // fails the transfer, and its request
	}
}

// nextPart records that all parts so far have moved and that another begins. It returns false if the client was
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

// endTransfer records that no further part follows. It returns false if the client was disconnected.
func (h *reservation) endTransfer() bool {
	h.budget.mu.Lock()
	defer h.budget.mu.Unlock()
	_, ok := h.budget.moving[h]
	delete(h.budget.moving, h)
	return ok
}

// shrink releases the bytes beyond n. Its caller owns the reservation.
func (h *reservation) shrink(n int) {
	h.size = min(h.size, max(int64(n), 1))
	h.Shrink(h.size)
}

// release releases all bytes, after the last part. Further calls have no effect.
func (h *reservation) release() {
	h.endTransfer()
	h.Release()
}

const (
	// smallResponse is the length up to which an answer needs no reservation: it fits the buffers of its connection.
	smallResponse = 64 << 10

	// pageBytes is the approximate maximum size of a page of a list, whatever its limit of rows. pageCost is the number
	// of bytes that a page reserves while it is built.
	pageBytes = 1 << 20
	pageCost  = 12 << 20

	// logCost is the reservation for a part of a call's log, recordCost for the record of a call, and transcriptCost
	// for a conversation.
	logCost        = 2 << 20
	recordCost     = 8 << 20
	transcriptCost = 12 << 20

	// stallLimit is how long a client may take to receive smallResponse bytes.
	stallLimit = 10 * time.Second
)

// newResponses returns the budget for answers that are being built or received.
func newResponses(limit int64) *byteBudget {
	r := newByteBudget(share.Bounds{Pod: limit, Identity: limit / 2}, (*http.ResponseController).SetWriteDeadline)
	r.partLimit = stallLimit
	r.full = "This pod's memory for responses, or this tenant's share of it, is full. Retry after a moment, or " +
		"request shorter pages."
	return r
}

// writeParts sends a body in parts. A client that is too slow for a part is disconnected. It returns false if the
// client was disconnected or is gone.
func (h *reservation) writeParts(w http.ResponseWriter, body []byte) bool {
	control := http.NewResponseController(w)
	for len(body) > 0 {
		n := min(len(body), smallResponse)
		if !h.nextPart(control) {
			return false
		}
		if _, err := w.Write(body[:n]); err != nil {
			return false
		}
		body = body[n:]
	}
	return true
}

// slotRetry is when a client should retry after it met a bound of slots.
const slotRetry = 5 * time.Second

// Limits of requests that wait for the end of a call (wait_ms): in total, and for one identity. Each costs the pod
// about 75 KiB, mostly for its open connection.
const (
	maxWaiting       = 2000
	maxCallerWaiting = 500
)

// slots bounds the open requests of a kind on this pod: in total, per tenant, and per identity. It is safe for
// concurrent use.
type slots struct {
	what string // the kind, in the plural
	pool *share.Pool
}

func newSlots(what string, all, each int) *slots {
	return &slots{what, share.New(share.Bounds{Pod: int64(all), Identity: int64(each)})}
}

// enter counts one more request in, and returns a function that counts it out. It fails if a bound is met.
func (s *slots) enter(by share.Owner) (release func(), err error) {
	return s.taken(s.pool.Try(by, 1))
}

// wait is enter, but waits for a free slot until ctx ends.
func (s *slots) wait(ctx context.Context, by share.Owner) (release func(), err error) {
	return s.taken(s.pool.Acquire(ctx, by, 1))
}

// taken returns the function that releases a slot, or the error for the bound that was met. For a request that waited,
// it is the bound of its share or of the pod.
func (s *slots) taken(g *share.Grant, err error) (release func(), _ error) {
	if err == nil {
		return g.Release, nil
	}
	message := "This pod has reached its limit of " + s.what + ". Retry after a moment."
	if full, ok := errors.AsType[*share.FullError](err); ok && full.Bound == share.Identity {
		message = "This identity has reached its limit of " + s.what + " on this pod. Close some, or retry later."
	} else if ok && full.Bound == share.Tenant {
		message = "This tenant has used its share of this pod's " + s.what + ". Close some, or retry after a moment."
	}
	return nil, tooMany(message)
}

func tooMany(message string) error {
	return &registry.Error{Code: registry.CodeBusy, Message: message, RetryAfter: slotRetry}
}

// reserveStream counts one more event stream in, and returns a function that counts it out. It fails if there are too
// many, or if the pod is draining.
func (h *handler) reserveStream(by share.Owner) (release func(), err error) {
	if h.isDraining() {
		return nil, draining()
	}
	return h.streams.enter(by)
}

// owner returns the owner for the shares that a request takes of this pod. Requests without an identity have no tenant,
// and each network that sends them counts as one identity.
func (h *handler) owner(c *gin.Context) share.Owner {
	if _, known := c.Get(keyCaller); known {
		return caller(c).Owner()
	}
	return share.Owner{Identity: h.Sources.Network(c.Request).String()}
}

// countServed counts a request with a credential from when its body has arrived until it ends. Until then, its
// connection counts as idle and can be evicted for others.
func (h *handler) countServed(c *gin.Context) error {
	_, known := c.Get(keyCaller)
	if _, counted := c.Get(keyServed); !known || counted { // without a body, it is counted before its handler reads it
		return nil
	}
	release, err := h.served.enter(h.owner(c))
	if err == nil {
		c.Set(keyServed, release)
	}
	return err
}

// maxReading is the maximum number of requests that read a large part of the store at a time: thousands of lines of the
// audit log, or rows of usage. Each costs bounded but considerable memory and CPU time.
const maxReading = 4
