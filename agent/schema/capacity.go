package schema

import (
	"context"
	"runtime"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/farhand/farhand/registry"
)

// Arguments take memory while they are decoded, up to a hundred times their text. Those of up to tinyArgs bytes of text
// do not count; the others share what is there for their size, so that large ones keep no small ones waiting.
const (
	tinyArgs       = 1 << 10
	smallArgs      = 256 << 10 // bytes decoded
	smallArgsBytes = 32 << 20
	largeArgsBytes = 64 << 20

	outputBytes = 64 << 20 // decoded, of outputs that are being validated: they take nothing of what arguments may
)

const (
	// maxLong bounds how many schemas are checked and how many compiled, how many long texts are read and how many long
	// validations run, at one time, on however many cores: each may take tens of megabytes.
	maxLong = 4

	// longText is from how many bytes on the reading of a text counts: some tens of microseconds.
	longText = 16 << 10

	// readWait is how long a text waits, at most, until it may be read.
	readWait = 5 * time.Second

	// heavyWait is how long a validation waits, at most, until it may take long: it holds memory meanwhile.
	heavyWait = time.Second

	busyRetry = time.Second // when a caller should ask a busy pod again
)

// capacity is what the pod has for the texts of strangers, whoever sent them.
type capacity struct {
	smallArgs *semaphore.Weighted // bytes
	largeArgs *semaphore.Weighted // bytes
	reading   *semaphore.Weighted // slots, one per core it may take; so are the next three
	checking  *semaphore.Weighted // schemas that are registered
	compiling *semaphore.Weighted // schemas that are called: no call waits for all who register
	heavy     *semaphore.Weighted // validations of arguments that take long

	outputs      *semaphore.Weighted // bytes
	heavyOutputs *semaphore.Weighted // validations of outputs that take long
}

func newCapacity() capacity {
	cores := int64(min(max(1, runtime.GOMAXPROCS(0)/2), maxLong))
	return capacity{
		smallArgs: semaphore.NewWeighted(smallArgsBytes), largeArgs: semaphore.NewWeighted(largeArgsBytes),
		reading: semaphore.NewWeighted(cores), checking: semaphore.NewWeighted(cores),
		compiling: semaphore.NewWeighted(cores), heavy: semaphore.NewWeighted(cores),
		outputs: semaphore.NewWeighted(outputBytes), heavyOutputs: semaphore.NewWeighted(cores),
	}
}

// ReserveArgs waits until the pod has memory for decoded arguments, at most until the deadline; zero is none. release
// gives it back. The error is an *registry.Error, as that of Validate.
func (s *Validator) ReserveArgs(ctx context.Context, deadline time.Time, args []byte) (release func(), err error) {
	if len(args) <= tinyArgs {
		return func() {}, nil
	}
	pool, weight := s.smallArgs, int64(decodedSize(args))
	if weight > smallArgs {
		pool, weight = s.largeArgs, min(weight, largeArgsBytes)
	}
	if err := acquire(ctx, deadline, pool, weight); err != nil {
		return nil, outOfTime(err)
	}
	return func() { pool.Release(weight) }, nil
}

// ReadText waits until a text of n bytes may be read: only few long ones are read at a time, so that short ones never
// wait for more than one of them. The caller calls done when it has read the text. The error is an *registry.Error, as
// that of Validate.
func (s *Validator) ReadText(ctx context.Context, deadline time.Time, n int) (done func(), err error) {
	if n < longText {
		return func() {}, nil
	}
	err = acquireWithin(ctx, deadline, s.reading, readWait,
		"This pod has more long texts to read than it can. Retry after a moment, or send less.")
	if err != nil {
		return nil, outOfTime(err)
	}
	return func() { s.reading.Release(1) }, nil
}

// acquire waits at most until the deadline; zero is none. It does not ask ctx unless it has to wait: work that needs no
// waiting ends by its own measure.
func acquire(ctx context.Context, deadline time.Time, s *semaphore.Weighted, weight int64) error {
	if s.TryAcquire(weight) {
		return nil
	}
	if !deadline.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, deadline)
		defer cancel()
	}
	return s.Acquire(ctx, weight)
}

// acquireWithin acquires a slot. After the wait, if the deadline does not come first, it fails with CodeBusy.
func acquireWithin(
	ctx context.Context, deadline time.Time, s *semaphore.Weighted, wait time.Duration, busy string,
) error {
	last := time.Now().Add(wait)
	if !deadline.IsZero() && deadline.Before(last) {
		return acquire(ctx, deadline, s, 1)
	}
	err := acquire(ctx, last, s, 1)
	if err == nil || ctx.Err() != nil {
		return err
	}
	e := registry.Errorf(registry.CodeBusy, "%s", busy)
	e.RetryAfter = busyRetry
	return e
}
