package schema

import (
	"context"
	"runtime"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/farhand/farhand/registry"
)

const (
	// longText is from how many bytes on the reading of a text counts: some tens of microseconds.
	longText = 16 << 10

	// longWait is how long a text waits, at most, until it may be read.
	longWait = 5 * time.Second
)

// longTexts bounds the cores that read long texts, so that short ones never wait for more than one of them.
type longTexts struct{ cores *semaphore.Weighted }

func newLongTexts() longTexts {
	return longTexts{semaphore.NewWeighted(int64(min(max(1, runtime.GOMAXPROCS(0)/2), maxLong)))}
}

// read waits until a text of n bytes may be read. done says that it has been.
func (l longTexts) read(ctx context.Context, deadline time.Time, n int) (done func(), err error) {
	if n < longText {
		return func() {}, nil
	}
	ctx, cancel := until(ctx, deadline)
	defer cancel()
	wait, stop := context.WithTimeout(ctx, longWait)
	defer stop()
	if err := acquire(wait, l.cores, 1); err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		e := registry.Errorf(registry.CodeBusy, "This pod has more long texts to read than it can. Retry after a moment, or send less.")
		e.RetryAfter = time.Second
		return nil, e
	}
	return func() { l.cores.Release(1) }, nil
}
