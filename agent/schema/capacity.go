package schema

import (
	"context"
	"errors"
	"runtime"
	"time"

	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
)

// Decoding arguments takes memory, up to a hundred times their text. Texts of up to tinyArgs bytes do not count. Larger
// arguments use the pool for their size, so that large ones do not delay small ones.
const (
	tinyArgs       = 1 << 10
	smallArgs      = 256 << 10 // bytes when decoded
	smallArgsBytes = 32 << 20
	largeArgsBytes = 64 << 20

	// Outputs have their own pools, so that they take no memory of arguments. They are also divided by size.
	smallOutputBytes = 32 << 20
	largeOutputBytes = 64 << 20
)

const (
	// maxLong is the maximum number of concurrent schema checks, of compilations, of reads of long texts, and of long
	// validations, on any number of cores. Each may take tens of megabytes.
	maxLong = 4

	longText      = 16 << 10        // bytes from which reading a text counts; that takes some tens of microseconds
	readWait      = 5 * time.Second // how long a text may wait to be read
	longCheckWait = time.Second     // how long a validation may wait to run long; it holds memory meanwhile
	busyRetry     = time.Second     // Retry-After of a busy pod
)

// capacity limits what the pod spends on untrusted texts. A tenant can use half of the bytes. Pools for computation
// have short turns: a single tenant can use all turns but one.
type capacity struct {
	smallArgs  *share.Pool // bytes
	largeArgs  *share.Pool // bytes
	reading    *share.Pool // turns, one per core; also the next three
	checking   *share.Pool // schemas that are registered
	compiling  *share.Pool // schemas of called tools, so that calls do not wait for registrations
	longChecks *share.Pool // long validations of arguments

	smallOutputs     *share.Pool // bytes
	largeOutputs     *share.Pool // bytes
	longOutputChecks *share.Pool // long validations of outputs
}

func newCapacity() capacity {
	cores := min(max(1, runtime.GOMAXPROCS(0)/2), maxLong)
	bytes := func(n int64) *share.Pool { return share.New(share.Bounds{Pod: n, Identity: n / 2}) }
	turns := func() *share.Pool { return share.New(share.Turns(cores)) }
	return capacity{
		smallArgs: bytes(smallArgsBytes), largeArgs: bytes(largeArgsBytes),
		reading: turns(), checking: turns(), compiling: turns(), longChecks: turns(),
		smallOutputs: bytes(smallOutputBytes), largeOutputs: bytes(largeOutputBytes), longOutputChecks: turns(),
	}
}

// Pools returns the fill levels of the validator's pools, by name.
func (s *Validator) Pools() map[string]share.Stats {
	return map[string]share.Stats{
		"argument_bytes": s.smallArgs.Stats(), "large_argument_bytes": s.largeArgs.Stats(),
		"checked_answer_bytes": s.smallOutputs.Stats(), "large_checked_answer_bytes": s.largeOutputs.Stats(),
		"parsing": s.reading.Stats(), "checking_schemas": s.checking.Stats(), "compiling_schemas": s.compiling.Stats(),
		"validating": s.longChecks.Stats(), "validating_answers": s.longOutputChecks.Stats(),
	}
}

// ReserveArgs waits until the pod has memory for the decoded arguments of a caller, at most until the deadline. A zero
// deadline means none. release frees the memory. The error is an *registry.Error, as for Validate.
func (s *Validator) ReserveArgs(
	ctx context.Context, by share.Owner, deadline time.Time, args []byte,
) (release func(), err error) {
	if len(args) <= tinyArgs {
		return func() {}, nil
	}
	weight := int64(decodedSize(args))
	memory, err := acquire(ctx, by, deadline, poolFor(weight, s.smallArgs, s.largeArgs), weight)
	if err != nil {
		return nil, outOfTime(err)
	}
	return memory.Release, nil
}

func poolFor(weight int64, small, large *share.Pool) *share.Pool {
	if weight > smallArgs {
		return large
	}
	return small
}

// decodeOutput decodes an output when the pod, and the tenant's share, has memory for it. release frees the memory. A
// small output is quick to read, so it waits for no slot.
func (s *Validator) decodeOutput(ctx context.Context, tenant string, text []byte) (v any, release func(), err error) {
	release = func() {}
	weight := int64(decodedSize(text))
	if weight > tinyArgs {
		pool := poolFor(weight, s.smallOutputs, s.largeOutputs)
		grant, err := pool.Acquire(ctx, share.Owner{Tenant: tenant}, weight)
		if err != nil {
			return nil, release, err
		}
		release = grant.Release
	}
	if weight > smallArgs {
		done, err := s.ReadText(ctx, share.Owner{Tenant: tenant}, time.Time{}, len(text))
		if err != nil {
			return nil, release, err
		}
		defer done()
	}
	if v, err = Decode(text, MaxDepth); err != nil {
		err = InputError{err}
	}
	return v, release, err
}

// ReadText waits until a text of n bytes may be read. Few long texts are read at a time, so that a short one never
// waits for more than one of them. Call done after reading. The error is an *registry.Error, as for Validate.
func (s *Validator) ReadText(
	ctx context.Context, by share.Owner, deadline time.Time, n int,
) (done func(), err error) {
	if n < longText {
		return func() {}, nil
	}
	turn, err := acquireWithin(ctx, by, deadline, s.reading, readWait,
		"This pod has no capacity to read another long text. Retry in a moment, or send less.")
	if err != nil {
		return nil, outOfTime(err)
	}
	return turn.Release, nil
}

// acquire waits at most until the deadline. A zero deadline means none. It checks ctx only if it must wait: work that
// starts immediately has its own limits. It fails with CodeBusy if too many callers wait.
func acquire(
	ctx context.Context, by share.Owner, deadline time.Time, p *share.Pool, weight int64,
) (*share.Grant, error) {
	if !deadline.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, deadline)
		defer cancel()
	}
	g, err := p.Acquire(ctx, by, weight)
	if full := (*share.FullError)(nil); errors.As(err, &full) {
		return nil, busy("Too many requests wait to be read or validated on this pod. Retry in a moment.")
	}
	if err != nil {
		return nil, ctx.Err()
	}
	return g, nil
}

// acquireWithin acquires a turn. It fails with CodeBusy after wait, unless the deadline comes first.
func acquireWithin(
	ctx context.Context, by share.Owner, deadline time.Time, p *share.Pool, wait time.Duration, why string,
) (*share.Grant, error) {
	last := time.Now().Add(wait)
	if !deadline.IsZero() && deadline.Before(last) {
		return acquire(ctx, by, deadline, p, 1)
	}
	g, err := acquire(ctx, by, last, p, 1)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return nil, busy(why)
	}
	return g, err
}

func busy(why string) error {
	return &registry.Error{Code: registry.CodeBusy, Message: why, RetryAfter: busyRetry}
}

// A unit of work takes about ten nanoseconds. Checking one value against one subschema takes two units.
const (
	maxWork   = 30_000_000  // of one validation; it takes about a second
	longWork  = 200_000     // from which a validation counts as long; few long ones run at a time
	lookEvery = 1 << 14     // between two checks whether a validation may continue
	maxTime   = time.Second // of the long part of one validation, whatever its counted work
)

// ErrTooExpensive is the error of a validation that exceeds the maximum work or time.
var ErrTooExpensive = errors.New("the validation takes too much work")

// meter counts the work of one validation, and ends the validation at its limits.
type meter struct {
	ctx        context.Context
	deadline   time.Time    // zero: none
	beforeLong func() error // waits until a long validation may run; nil: no wait

	left   int // work until the next check
	used   int // work before the last check
	longBy time.Time
	err    error // why the validation has ended
}

// spend reports whether n units of work may be done. After it has returned false, it always does.
func (m *meter) spend(n int) bool {
	m.left -= n
	return m.left >= 0 || m.look()
}

func (m *meter) look() bool {
	if m.err == nil {
		m.used += lookEvery - m.left
		m.left = lookEvery
		m.err = m.check()
	}
	if m.err != nil {
		m.left = -1
	}
	return m.err == nil
}

func (m *meter) check() error {
	if m.used > maxWork {
		return ErrTooExpensive
	}
	if err := m.ctx.Err(); err != nil {
		return err
	}
	now := time.Now()
	if !m.deadline.IsZero() && now.After(m.deadline) {
		return context.DeadlineExceeded
	}
	switch {
	case m.used < longWork:
		return nil
	case m.longBy.IsZero():
		if m.beforeLong != nil {
			if err := m.beforeLong(); err != nil {
				return err
			}
		}
		m.longBy = time.Now().Add(maxTime)
	case now.After(m.longBy):
		return ErrTooExpensive
	}
	return nil
}

func (m *meter) stop(err error) {
	if m.err == nil {
		m.err = err
	}
	m.left = -1
}

func (m *meter) stopped() bool { return m.err != nil }
