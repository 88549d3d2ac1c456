package schema

import (
	"context"
	"errors"
	"runtime"
	"time"

	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
)

// Arguments take memory while they are decoded, up to a hundred times their text. Those of up to tinyArgs bytes of text
// do not count; the others share what is there for their size, so that large ones keep no small ones waiting.
const (
	tinyArgs       = 1 << 10
	smallArgs      = 256 << 10 // bytes decoded
	smallArgsBytes = 32 << 20
	largeArgsBytes = 64 << 20

	// Outputs that are being validated take nothing of what arguments may, and are told apart by size as those are.
	smallOutputBytes = 32 << 20
	largeOutputBytes = 64 << 20
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

// capacity is what the pod has for the texts of strangers. A tenant has half of the bytes. What only computes has short
// turns: a tenant that is alone has all of them but one.
type capacity struct {
	smallArgs *share.Pool // bytes
	largeArgs *share.Pool // bytes
	reading   *share.Pool // turns, one per core it may take; so are the next three
	checking  *share.Pool // schemas that are registered
	compiling *share.Pool // schemas that are called: no call waits for all who register
	heavy     *share.Pool // validations of arguments that take long

	smallOutputs *share.Pool // bytes
	largeOutputs *share.Pool // bytes
	heavyOutputs *share.Pool // validations of outputs that take long
}

func newCapacity() capacity {
	cores := min(max(1, runtime.GOMAXPROCS(0)/2), maxLong)
	bytes := func(n int64) *share.Pool { return share.New(share.Bounds{Pod: n, Identity: n / 2}) }
	turns := func() *share.Pool { return share.New(share.Turns(cores)) }
	return capacity{
		smallArgs: bytes(smallArgsBytes), largeArgs: bytes(largeArgsBytes),
		reading: turns(), checking: turns(), compiling: turns(), heavy: turns(),
		smallOutputs: bytes(smallOutputBytes), largeOutputs: bytes(largeOutputBytes), heavyOutputs: turns(),
	}
}

// Pools returns how full the pools of the validator are, by name.
func (s *Validator) Pools() map[string]share.Stats {
	return map[string]share.Stats{
		"argument_bytes": s.smallArgs.Stats(), "large_argument_bytes": s.largeArgs.Stats(),
		"checked_answer_bytes": s.smallOutputs.Stats(), "large_checked_answer_bytes": s.largeOutputs.Stats(),
		"parsing": s.reading.Stats(), "checking_schemas": s.checking.Stats(), "compiling_schemas": s.compiling.Stats(),
		"validating": s.heavy.Stats(), "validating_answers": s.heavyOutputs.Stats(),
	}
}

// ReserveArgs waits until the pod has memory for the decoded arguments of a caller, at most until the deadline; zero is
// none. release gives it back. The error is an *registry.Error, as that of Validate.
func (s *Validator) ReserveArgs(
	ctx context.Context, by share.Owner, deadline time.Time, args []byte,
) (release func(), err error) {
	if len(args) <= tinyArgs {
		return func() {}, nil
	}
	pool, weight := s.smallArgs, int64(decodedSize(args))
	if weight > smallArgs {
		pool = s.largeArgs
	}
	held, err := acquire(ctx, by, deadline, pool, weight)
	if err != nil {
		return nil, outOfTime(err)
	}
	return held.Release, nil
}

// decodeOutput decodes an output when the pod, and the share of its tenant, has memory for it. release gives that back.
// A small output is soon read, so it waits for no slot.
func (s *Validator) decodeOutput(ctx context.Context, tenant string, text []byte) (v any, release func(), err error) {
	release = func() {}
	weight := int64(decodedSize(text))
	if weight > tinyArgs {
		pool := s.smallOutputs
		if weight > smallArgs {
			pool = s.largeOutputs
		}
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

// ReadText waits until a text of n bytes may be read: only few long ones are read at a time, so that short ones never
// wait for more than one of them. The caller calls done when it has read the text. The error is an *registry.Error, as
// that of Validate.
func (s *Validator) ReadText(
	ctx context.Context, by share.Owner, deadline time.Time, n int,
) (done func(), err error) {
	if n < longText {
		return func() {}, nil
	}
	turn, err := acquireWithin(ctx, by, deadline, s.reading, readWait,
		"This pod has more long texts to read than it can. Retry after a moment, or send less.")
	if err != nil {
		return nil, outOfTime(err)
	}
	return turn.Release, nil
}

// acquire waits at most until the deadline; zero is none. It does not ask ctx unless it has to wait: work that needs no
// waiting ends by its own measure. It fails with CodeBusy if too many wait already.
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
		return nil, busy("Too many wait for this pod to read or validate what they sent. Retry after a moment.")
	}
	if err != nil {
		return nil, ctx.Err()
	}
	return g, nil
}

// acquireWithin acquires a turn. After the wait, if the deadline does not come first, it fails with CodeBusy.
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

// A unit of work takes some ten nanoseconds: looking at one value by one subschema takes two.
const (
	// maxWork bounds the work of one validation. It is about a second.
	maxWork = 30_000_000

	// heavyWork is from where on a validation counts as heavy: few of them run at a time.
	heavyWork = 200_000

	// lookEvery is after how much work a validation looks whether it should go on.
	lookEvery = 1 << 14

	// maxTime bounds the time of the heavy part of one validation, however its work was counted.
	maxTime = time.Second
)

// ErrTooExpensive ends a validation that would take more work than any is allowed.
var ErrTooExpensive = errors.New("the validation takes too much work")

// meter counts the work of one validation, and ends it.
type meter struct {
	ctx      context.Context
	deadline time.Time    // zero: none
	heavy    func() error // waits until a heavy validation may run; nil: it may

	left    int // work until the next look
	used    int // work before the last look
	heavyBy time.Time
	err     error // why the validation has ended
}

// spend reports whether n units of work may be done. Once it returned false it always does.
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
	case m.used < heavyWork:
		return nil
	case m.heavyBy.IsZero():
		if m.heavy != nil {
			if err := m.heavy(); err != nil {
				return err
			}
		}
		m.heavyBy = time.Now().Add(maxTime)
	case now.After(m.heavyBy):
		return ErrTooExpensive
	}
	return nil
}

// stop ends the validation.
func (m *meter) stop(err error) {
	if m.err == nil {
		m.err = err
	}
	m.left = -1
}

func (m *meter) stopped() bool { return m.err != nil }
