package registry

import (
	"context"
	"time"
)

// Window is a limit that slides: at most Limit charges in any time of the length Period.
type Window struct {
	Name   string        // whose charges are counted, of any length; the stores keep a digest of it
	Limit  int           // from 1 to MaxWindowLimit
	Period time.Duration // from 1 ms to MaxWindowPeriod; windows of other periods have counts of their own
}

// Bounds of windows. A window takes memory for each charge in it.
const (
	MaxWindowLimit  = 10_000
	MaxWindowPeriod = 24 * time.Hour
	MaxWindows      = 32 // that are charged together
)

// Validate returns an error for a window that no store counts.
func (w Window) Validate() error {
	if w.Limit < 1 || w.Limit > MaxWindowLimit || w.Period < time.Millisecond || w.Period > MaxWindowPeriod {
		return Errorf(CodeInvalidRequest, "A limit is from 1 to %d in a time from 1 ms to %v.", MaxWindowLimit,
			MaxWindowPeriod)
	}
	return nil
}

// LimitStore counts for the whole fleet, by one clock. It is safe for concurrent use.
type LimitStore interface {
	// Take charges windows of a tenant, all of them or none: none unless each has room. wait is zero if they were
	// charged. Otherwise it is how long it takes until the window full, an index of windows, has room, and that of no
	// other one takes longer. The limit of a window may change from call to call. Of windows with the same name and
	// period, which must not be charged together, the limits of all calls hold.
	Take(ctx context.Context, tenant string, windows []Window) (wait time.Duration, full int, err error)
}

// CheckWindows returns an error for windows that cannot be charged together.
func CheckWindows(windows []Window) error {
	if len(windows) > MaxWindows {
		return Errorf(CodeInvalidRequest, "At most %d limits hold for one call.", MaxWindows)
	}
	for i, w := range windows {
		if err := w.Validate(); err != nil {
			return err
		}
		for _, other := range windows[:i] {
			if other.Name == w.Name && other.Period.Milliseconds() == w.Period.Milliseconds() {
				return Errorf(CodeInvalidRequest, "A limit is named twice.")
			}
		}
	}
	return nil
}
