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
	// smallResponse is up to how many bytes an answer is not counted: the buffers of its connection take it at once.
	smallResponse = 64 << 10

	// pageBytes is about how long a page of a list becomes: then it ends, whatever its limit of rows. pageCost is what it is
	// counted as while it is made.
	pageBytes = 1 << 20
	pageCost  = 12 << 20

	// logCost is what reading a part of a call's log is counted as.
	logCost = 2 << 20

	// recordCost is what reading a record of a call is counted as, transcriptCost what reading a conversation is.
	recordCost     = 8 << 20
	transcriptCost = 12 << 20

	// stallLimit is how long a client may take to receive smallResponse bytes. When others wait for room, a client that has
	// received nothing for stallGrace is cut off.
	stallLimit = 10 * time.Second
	stallGrace = 250 * time.Millisecond

	// roomWait is how long a request waits for room, roomRetry when its caller should try again, and roomLook how often it
	// looks for a client that holds it up.
	roomWait  = 5 * time.Second
	roomRetry = 2 * time.Second
	roomLook  = 50 * time.Millisecond
)

// responses bounds the bytes of the answers that this pod is making, or that are being received. It is safe for concurrent use.
type responses struct {
	limit int64
	room  *semaphore.Weighted
	made  atomic.Int64 // bytes of answers that are made and wait for room

	refused atomic.Int64 // answers there was no room for

	mu      sync.Mutex
	writing map[*response]time.Time // since when nothing of it has been received
}

func newResponses(limit int64) *responses {
	return &responses{limit: limit, room: semaphore.NewWeighted(limit), writing: make(map[*response]time.Time)}
}

// response is the room that one answer takes. It belongs to one goroutine.
type response struct {
	owner   *responses
	bytes   int64
	control *http.ResponseController // nil before the first write
}

// reserve waits for room for n bytes. Clients that do not read make room for those that do.
func (r *responses) reserve(ctx context.Context, n int64) (*response, error) {
	ctx, cancel := context.WithTimeout(ctx, roomWait)
	defer cancel()
	p := &response{owner: r, bytes: min(n, r.limit)}
	for !r.room.TryAcquire(p.bytes) {
		r.cutStalled(p.bytes)
		look, stop := context.WithTimeout(ctx, roomLook)
		err := r.room.Acquire(look, p.bytes)
		stop()
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			r.refused.Add(1)
			return nil, noRoom()
		}
	}
	return p, nil
}

// reserveMade waits for room for an answer that is there already. As many bytes may wait as may be sent; then there is no waiting.
func (r *responses) reserveMade(ctx context.Context, n int64) (*response, error) {
	defer r.made.Add(-n)
	if r.made.Add(n) > r.limit {
		r.refused.Add(1)
		return nil, noRoom()
	}
	return r.reserve(ctx, n)
}

func noRoom() error {
	return &registry.Error{
		Code: registry.CodeBusy, RetryAfter: roomRetry,
		Message: "This pod is sending as much as it may. Retry after a moment, or ask for shorter pages.",
	}
}

// cutStalled ends answers of which nothing has been received for long, the slowest first, until there will be room for n bytes.
func (r *responses) cutStalled(n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	stalled := slices.SortedFunc(maps.Keys(r.writing), func(a, b *response) int { return r.writing[a].Compare(r.writing[b]) })
	for _, p := range stalled {
		if n <= 0 || time.Since(r.writing[p]) < stallGrace {
			return
		}
		n -= p.bytes
		delete(r.writing, p)
		_ = p.control.SetWriteDeadline(time.Unix(1, 0)) // the write under way fails, and with it the connection
	}
}

// shrink gives up the room that the answer, which has been made now, does not need.
func (p *response) shrink(n int) {
	if less := p.bytes - max(int64(n), 1); less > 0 {
		p.owner.room.Release(less)
		p.bytes -= less
	}
}

// release gives up all of the room. It is called once, after the last write.
func (p *response) release() {
	p.owner.mu.Lock()
	delete(p.owner.writing, p)
	p.owner.mu.Unlock()
	p.owner.room.Release(p.bytes)
}

// write sends a body a part at a time. A client that takes in none of them soon enough is cut off.
func (p *response) write(w http.ResponseWriter, body []byte) {
	control := http.NewResponseController(w)
	for len(body) > 0 {
		n := min(len(body), smallResponse)
		if !p.begin(control) {
			return
		}
		if _, err := w.Write(body[:n]); err != nil {
			return // the client is gone, or was cut off
		}
		body = body[n:]
	}
}

// begin notes that everything so far has been received. It reports false if the answer was cut off.
func (p *response) begin(control *http.ResponseController) bool {
	p.owner.mu.Lock()
	defer p.owner.mu.Unlock()
	if _, ok := p.owner.writing[p]; !ok && p.control != nil {
		return false
	}
	p.control = control
	p.owner.writing[p] = time.Now()
	_ = p.control.SetWriteDeadline(time.Now().Add(stallLimit)) // a writer without deadlines (a test's recorder) has no slow reader
	return true
}
