package redisconn

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// maxTogether is how many commands of several goroutines travel as one pipeline. A goroutine that has more sends them
// as one, too.
const maxTogether = 512

// maxTogetherBytes is how many bytes of commands of several goroutines travel as one pipeline. The timeouts of a
// connection are for a whole pipeline, so devices that register megabytes of definitions must not make the commands of
// others fail.
const maxTogetherBytes = 1 << 20

// together sends what several goroutines want to send at the same time as one pipeline. A goroutine that comes alone
// sends at once. What comes while its answers are under way waits, and goes out together, sent by the first that waits.
// Thousands of devices that come at once so cost a fraction of the system calls, here and at the server. It is safe for
// concurrent use.
type together struct {
	send sender

	mu      sync.Mutex
	sending int           // pipelines under way
	waiting []*submission // in the order they came
}

// maxUnderWay is how many pipelines are under way at a time. While the answers to one travel, the server has the other
// to work on.
const maxUnderWay = 2

// submission is what one goroutine wants to send.
type submission struct {
	commands []redis.Cmder
	bytes    int       // of the commands, about; of those that wait
	deadline time.Time // zero: none

	// ready gets the submissions that the goroutine must send, its own among them, or nil if another has sent its own.
	ready chan []*submission
}

// exec sends commands and returns when all have their answers or errors. If ctx ends while they wait to be sent, they
// are not sent, and have its error. The pipeline that they are in ends with the latest of the deadlines of all who have
// commands in it.
func (t *together) exec(ctx context.Context, commands []redis.Cmder) {
	own := &submission{commands: commands}
	own.deadline, _ = ctx.Deadline()
	t.mu.Lock()
	if t.sending < maxUnderWay {
		t.sending++
		t.mu.Unlock()
		t.lead(ctx, own, []*submission{own})
		return
	}
	own.ready, own.bytes = make(chan []*submission, 1), bytesOf(commands)
	t.waiting = append(t.waiting, own)
	t.mu.Unlock()
	var batch []*submission
	select {
	case batch = <-own.ready:
	case <-ctx.Done():
		if t.withdraw(own) {
			setErrors(commands, ctx.Err())
			return
		}
		batch = <-own.ready // it is being sent, or must send
	}
	if batch != nil {
		t.lead(ctx, own, batch)
	}
}

// withdraw takes a submission out of those that wait. It reports false if it does not wait any more.
func (t *together) withdraw(own *submission) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := slices.Index(t.waiting, own)
	if i < 0 {
		return false
	}
	t.waiting = slices.Delete(t.waiting, i, i+1)
	return true
}

// lead sends a batch, tells the others in it that theirs is sent, and lets those that wait go on.
func (t *together) lead(ctx context.Context, own *submission, batch []*submission) {
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

// next lets the first that waits send what has come, or notes that a pipeline less is under way.
func (t *together) next() {
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
func contextOf(ctx context.Context, batch []*submission) (context.Context, context.CancelFunc) {
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

// bytesOf returns about how many bytes the commands are.
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
