package redisconn

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// maxTogether is how many commands of several goroutines travel as one pipeline. A single goroutine with more commands
// still sends them as one pipeline.
const maxTogether = 512

// maxTogetherBytes is how many bytes of commands of several goroutines travel as one pipeline. The timeouts of a
// connection apply to a whole pipeline, so devices that register megabytes of definitions must not make the commands of
// others fail.
const maxTogetherBytes = 1 << 20

// maxUnderWay is how many pipelines are in flight at a time. While the answers to one travel, the server works on the
// other.
const maxUnderWay = 2

// Together combines what several goroutines send at the same time into one pipeline. While fewer than maxUnderWay
// pipelines are in flight, a goroutine sends immediately. Otherwise it waits. When a pipeline ends, the goroutine that
// has waited longest sends for all that wait. So thousands of devices that connect at the same time cost a fraction of
// the system calls, here and at the server. It is safe for concurrent use.
type Together[T any] struct {
	send  func(ctx context.Context, items []T)
	fail  func(items []T, err error) // for items that are not sent, because their context has ended
	bytes func(items []T) int        // about how many bytes the items have

	mu       sync.Mutex
	inFlight int              // pipelines that are sent, or will be by a goroutine that leads
	waiting  []*submission[T] // in order of arrival; only the first can lead
}

// together is Together for commands.
type together = Together[redis.Cmder]

func newTogether(send sender) *together {
	t := NewTogether(send, setErrors)
	t.bytes = bytesOf
	return t
}

// NewTogether returns a Together that sends items with send, which returns when each has its answer or error. It is for
// small items: their bytes are not counted. fail sets the error of items that are not sent.
func NewTogether[T any](send func(ctx context.Context, items []T), fail func(items []T, err error)) *Together[T] {
	return &Together[T]{send: send, fail: fail, bytes: func([]T) int { return 0 }}
}

// submission is what one goroutine waits to send.
type submission[T any] struct {
	items    []T
	bytes    int
	deadline time.Time // zero: none
	leads    bool      // its goroutine sends for all

	// turn gets one value: true if its goroutine leads, and false when all items have their answers or errors. Each
	// goroutine waits on a channel of its own, because many that wait on one contend for its lock.
	turn chan bool
}

// Exec sends items and returns when all have their answers or errors. If ctx ends while they wait to be sent, they are
// not sent, and fail with its error. A shared pipeline ends at the latest deadline of all goroutines that have items in
// it.
func (t *Together[T]) Exec(ctx context.Context, items ...T) { t.exec(ctx, items) }

func (t *Together[T]) exec(ctx context.Context, items []T) {
	own := t.arrive(ctx, items)
	if own == nil {
		defer t.end() // also if the client library panics
		t.send(ctx, items)
		return
	}
	select {
	case lead := <-own.turn:
		if lead {
			t.sendWaiting(ctx)
		}
	case <-ctx.Done():
		if t.withdraw(own) {
			t.fail(items, ctx.Err())
			return
		}
		<-own.turn
	}
}

// arrive returns nil if the caller may send immediately. Otherwise it adds the items to those that wait.
func (t *Together[T]) arrive(ctx context.Context, items []T) *submission[T] {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.inFlight < maxUnderWay && len(t.waiting) == 0 {
		t.inFlight++
		return nil
	}
	own := &submission[T]{items: items, bytes: t.bytes(items), turn: make(chan bool, 1)}
	own.deadline, _ = ctx.Deadline()
	t.waiting = append(t.waiting, own)
	return own
}

// end ends a pipeline.
func (t *Together[T]) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.inFlight--
	t.lead()
}

// lead makes the first goroutine that waits send, if another pipeline may be in flight. The caller holds the lock.
func (t *Together[T]) lead() {
	if t.inFlight < maxUnderWay && len(t.waiting) > 0 && !t.waiting[0].leads {
		t.inFlight++
		t.waiting[0].leads = true
		t.waiting[0].turn <- true
	}
}

// withdraw removes a waiting submission. It returns false if the submission no longer waits.
func (t *Together[T]) withdraw(own *submission[T]) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := slices.Index(t.waiting, own)
	if i < 0 {
		return false
	}
	t.waiting = slices.Delete(t.waiting, i, i+1)
	if own.leads {
		t.inFlight--
		t.lead()
	}
	return true
}

// sendWaiting sends the next batch. The submission of its caller, which leads, is the first.
func (t *Together[T]) sendWaiting(ctx context.Context) {
	batch := t.next()
	defer func() {
		for _, s := range batch[1:] {
			s.turn <- false
		}
		t.end()
	}()
	ctx, cancel := contextOf(ctx, batch)
	defer cancel()
	var items []T
	for _, s := range batch {
		items = append(items, s.items...)
	}
	t.send(ctx, items)
}

// next takes the first submissions that wait, as many as may travel together.
func (t *Together[T]) next() []*submission[T] {
	t.mu.Lock()
	defer t.mu.Unlock()
	n, items, bytes := 0, 0, 0
	for _, s := range t.waiting {
		items, bytes = items+len(s.items), bytes+s.bytes
		if n > 0 && (items > maxTogether || bytes > maxTogetherBytes) {
			break
		}
		n++
	}
	batch := slices.Clone(t.waiting[:n])
	t.waiting = slices.Delete(t.waiting, 0, n)
	t.lead()
	return batch
}

// contextOf returns a context for a batch. Only the latest deadline in the batch ends it.
func contextOf[T any](ctx context.Context, batch []*submission[T]) (context.Context, context.CancelFunc) {
	ctx = context.WithoutCancel(ctx)
	var latest time.Time
	for _, s := range batch {
		if s.deadline.IsZero() {
			return ctx, func() {}
		}
		if s.deadline.After(latest) {
			latest = s.deadline
		}
	}
	return context.WithDeadline(ctx, latest)
}

func bytesOf(commands []redis.Cmder) (n int) {
	for _, c := range commands {
		for _, arg := range c.Args() {
			switch arg := arg.(type) {
			case string:
				n += len(arg)
			case []byte:
				n += len(arg)
			}
		}
	}
	return n
}

func setErrors(commands []redis.Cmder, err error) {
	for _, c := range commands {
		c.SetErr(err)
	}
}
