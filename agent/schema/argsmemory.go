package schema

import (
	"context"
	"time"

	"golang.org/x/sync/semaphore"
)

// Arguments take memory while they are decoded, up to a hundred times their text. Those of up to tinyArgs bytes of text
// do not count; the others share what is there for their size, so that large ones keep no small ones waiting.
const (
	tinyArgs       = 1 << 10
	smallArgs      = 256 << 10 // bytes decoded
	smallArgsBytes = 32 << 20
	largeArgsBytes = 64 << 20
)

// argsMemory is what the pod has for decoded arguments, whoever sent them.
type argsMemory struct{ small, large *semaphore.Weighted }

func newArgsMemory() argsMemory {
	return argsMemory{semaphore.NewWeighted(smallArgsBytes), semaphore.NewWeighted(largeArgsBytes)}
}

// reserve waits until there is memory for args, at most until the deadline; zero is none. What it returns gives it
// back.
func (m argsMemory) reserve(ctx context.Context, deadline time.Time, args []byte) (release func(), err error) {
	if len(args) <= tinyArgs {
		return func() {}, nil
	}
	pool, weight := m.small, int64(Weight(args))
	if weight > smallArgs {
		pool, weight = m.large, min(weight, largeArgsBytes)
	}
	ctx, cancel := until(ctx, deadline)
	defer cancel()
	if err := acquire(ctx, pool, weight); err != nil {
		return nil, err
	}
	return func() { pool.Release(weight) }, nil
}

// until returns a context that ends at the deadline, unless it is zero.
func until(ctx context.Context, deadline time.Time) (context.Context, context.CancelFunc) {
	if deadline.IsZero() {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, deadline)
}

// acquire does not ask ctx unless it has to wait: work that needs no waiting ends by its own measure.
func acquire(ctx context.Context, s *semaphore.Weighted, weight int64) error {
	if s.TryAcquire(weight) {
		return nil
	}
	return s.Acquire(ctx, weight)
}
