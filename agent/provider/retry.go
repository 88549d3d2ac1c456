package provider

import (
	"context"
	"math/rand/v2"
	"time"
)

// Retry says how often a request is made again and how long is waited before. The zero value is the default policy.
//
// A request is made again only while nothing of its answer was emitted, and only after failures that may pass: the
// statuses 408, 409, 429 and 5xx, a connection that fails or breaks, silence. The waits double from Base to Max, each
// cut by up to half at random, so that requests that failed together do not come back together. A wait the server asks
// for (Retry-After, retry-after-ms) is kept if it is longer.
type Retry struct {
	Attempts  int           // in all; default 4
	Base      time.Duration // of the first wait; default 500 ms
	Max       time.Duration // of any wait the server did not ask for; default 8 s
	MaxAdvice time.Duration // a server that asks for more is not asked again: the caller is told at once; default 20 s

	// Wait returns after d, or with ctx's error as soon as ctx ends. Default: a timer. Tests put their own here.
	Wait func(ctx context.Context, d time.Duration) error
}

func (r Retry) withDefaults() Retry {
	orDefault(&r.Attempts, 4)
	orDefault(&r.Base, 500*time.Millisecond)
	orDefault(&r.Max, 8*time.Second)
	orDefault(&r.MaxAdvice, 20*time.Second)
	if r.Wait == nil {
		r.Wait = wait
	}
	return r
}

// pause returns how long to wait after the attempt of this number, counted from 1, and whether there is another one. A
// wait that would outlast ctx is not begun: the failure at hand says more than a deadline.
func (r Retry) pause(ctx context.Context, attempt int, advice time.Duration) (time.Duration, bool) {
	if attempt >= r.Attempts || advice > r.MaxAdvice {
		return 0, false
	}
	d := r.Max
	if shift := attempt - 1; shift < 30 && r.Base < r.Max>>shift {
		d = r.Base << shift
	}
	d = max(d-rand.N(d/2+1), advice)
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= d {
		return 0, false
	}
	return d, true
}

func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func orDefault[T int | time.Duration](v *T, d T) {
	if *v <= 0 {
		*v = d
	}
}
