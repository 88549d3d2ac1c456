package schema

import (
	"context"
	"errors"
	"time"
)

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
