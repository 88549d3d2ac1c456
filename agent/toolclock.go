package agent

import (
	"context"
	"sync"
	"time"
)

// toolClock is the context of a local tool that runs. It ends when the tool has had its time. While a person is asked
// about a call of a device that the tool makes, the clock stands still.
type toolClock struct {
	context.Context // ends with the call, whatever the clock says
	end             context.CancelFunc

	mu     sync.Mutex
	timer  *time.Timer
	until  time.Time     // when the time is up, while the clock runs
	left   time.Duration // of the time, while it stands
	stops  int           // the questions for which it stands
	since  time.Time     // when it was stopped
	spare  time.Duration // how long it may still stand, without what passes since then
	isOver bool
}

// newToolClock returns a clock that runs for a time, and may stand still for spare in all. stop must be called.
func newToolClock(ctx context.Context, runs, spare time.Duration) (c *toolClock, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	c = &toolClock{Context: ctx, end: cancel, until: time.Now().Add(runs), spare: spare}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.timer = time.AfterFunc(runs, c.over)
	return c, func() {
		c.timer.Stop()
		cancel()
	}
}

// over ends the context because the time is up, unless the clock was stopped in this instant.
func (c *toolClock) over() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stops == 0 && c.Context.Err() == nil {
		c.isOver = true
		c.end()
	}
}

// stop has the clock stand still until resume is called. Several may stop it at a time.
func (c *toolClock) stop() (resume func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stops++; c.stops == 1 {
		c.timer.Stop()
		c.since = time.Now()
		c.left = max(c.until.Sub(c.since), 0)
	}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.stops--; c.stops == 0 {
			now := time.Now()
			c.spare -= now.Sub(c.since)
			c.until = now.Add(c.left)
			c.timer.Reset(c.left)
		}
	}
}

// mayStand returns how long the clock may still stand.
func (c *toolClock) mayStand() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stops > 0 {
		return max(c.spare-time.Since(c.since), 0)
	}
	return max(c.spare, 0)
}

// Deadline implements context.Context. It moves on while the clock stands.
func (c *toolClock) Deadline() (time.Time, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	until := c.until
	if c.stops > 0 {
		until = time.Now().Add(c.left)
	}
	if outer, ok := c.Context.Deadline(); ok && outer.Before(until) {
		until = outer
	}
	return until, true
}

// Err implements context.Context.
func (c *toolClock) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isOver {
		return context.DeadlineExceeded
	}
	return c.Context.Err()
}
