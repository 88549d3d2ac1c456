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

// Together combines what several goroutines send at the same time into one pipeline. While fewer than maxUnderWay
// pipelines are in flight, a goroutine sends immediately. Otherwise it waits until a pipeline ends, and the first
// waiting goroutine then sends for all of them. So thousands of devices that connect at the same time cost a fraction
// of the system calls, here and at the server. It is safe for concurrent use.
type Together[T any] struct {
	send  func(ctx context.Context, items []T)
	fail  func(items []T, err error) // for items that are not sent, because their context has ended
	bytes func(items []T) int        // about how many bytes the items have

	mu      sync.Mutex
	sending int              // pipelines in flight
	waiting []*submission[T] // in order of arrival
}

// together is Together for commands.
type together = Together[redis.Cmder]

func newTogether(send sender) *together {
	return &together{send: send, fail: setErrors, bytes: bytesOf}
}

// NewTogether returns a Together that sends items with send, which returns when each has its answer or error. It is for
// small items: their bytes are not counted. fail sets the error of items that are not sent.
func NewTogether[T any](send func(ctx context.Context, items []T), fail func(items []T, err error)) *Together[T] {
	return &Together[T]{send: send, fail: fail, bytes: func([]T) int { return 0 }}
}

// Exec sends items and returns when all have their answers or errors.
func (t *Together[T]) Exec(ctx context.Context, items ...T) { t.exec(ctx, items) }

// maxUnderWay is how many pipelines are in flight at a time. While the answers to one travel, the server works on the
// other.
const maxUnderWay = 2

// submission is what one goroutine sends.
type submission[T any] struct {
	commands []T
	bytes    int       // of the commands, about; set only if they wait
	deadline time.Time // zero: none

	// ready gets the submissions that the goroutine must send, including its own, or nil if another goroutine has sent
	// its own.
	ready chan []*submission[T]
}

// exec sends commands and returns when all have their answers or errors. If ctx ends while they wait to be sent, they
// are not sent, and fail with its error. A shared pipeline ends at the latest deadline of all goroutines that have
// commands in it.
func (t *Together[T]) exec(ctx context.Context, commands []T) {
	own := &submission[T]{commands: commands}
	own.deadline, _ = ctx.Deadline()
	t.mu.Lock()
	if t.sending < maxUnderWay {
		t.sending++
		t.mu.Unlock()
		t.lead(ctx, own, []*submission[T]{own})
		return
	}
	own.ready, own.bytes = make(chan []*submission[T], 1), t.bytes(commands)
	t.waiting = append(t.waiting, own)
	t.mu.Unlock()
	var batch []*submission[T]
	select {
	case batch = <-own.ready:
	case <-ctx.Done():
		if t.withdraw(own) {
			t.fail(commands, ctx.Err())
			return
		}
		batch = <-own.ready // it is already being sent, or must send
	}
	if batch != nil {
		t.lead(ctx, own, batch)
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
	return true
}

// lead sends a batch, notifies the other goroutines in it, and lets waiting submissions go on.
func (t *Together[T]) lead(ctx context.Context, own *submission[T], batch []*submission[T]) {
	defer func() { // also if the client library panics
		t.next()
		for _, e := range batch {
			if e != own {
				e.ready <- nil
			}
		}
	}()
	if len(batch) > 1 {
		var cancel context.CancelFunc
		if ctx, cancel = contextOf(ctx, batch); cancel != nil {
			defer cancel()
		}
	}
	commands := own.commands
	for _, e := range batch {
		if e != own {
			commands = append(commands, e.commands...)
		}
	}
	t.send(ctx, commands)
}

// next lets the first waiting goroutine send a batch. If none waits, one pipeline less is in flight.
func (t *Together[T]) next() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.waiting) == 0 {
		t.sending--
		t.waiting = nil
		return
	}
	n, commands, bytes := 0, 0, 0
	for _, e := range t.waiting {
		commands, bytes = commands+len(e.commands), bytes+e.bytes
		if n > 0 && (commands > maxTogether || bytes > maxTogetherBytes) {
			break
		}
		n++
	}
	batch := slices.Clone(t.waiting[:n])
	t.waiting = slices.Delete(t.waiting, 0, n)
	batch[0].ready <- batch
}

// contextOf returns a context for a batch: that of its leader, but only the latest deadline in the batch ends it.
func contextOf[T any](ctx context.Context, batch []*submission[T]) (context.Context, context.CancelFunc) {
	ctx = context.WithoutCancel(ctx)
	var latest time.Time
	for _, e := range batch {
		if e.deadline.IsZero() {
			return ctx, nil
		}
		if e.deadline.After(latest) {
			latest = e.deadline
		}
	}
	return context.WithDeadline(ctx, latest)
}

// bytesOf returns about how many bytes the commands have.
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
