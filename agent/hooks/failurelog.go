package hooks

import (
	"log/slog"
	"sync"
	"time"
)

// logPause is the least time between two lines about one hook.
const logPause = 5 * time.Second

// failureLog logs that a hook fails, without a line for every call that it fails for.
type failureLog struct {
	log *slog.Logger

	mu     sync.Mutex
	last   time.Time
	missed int // failures since the last line
}

func (f *failureLog) note(hook, phase string, q question, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	if !f.last.IsZero() && now.Sub(f.last) < logPause {
		f.missed++
		return
	}
	f.log.Error("an HTTP hook failed", "hook", hook, "phase", phase, "tool", q.Tool, "call_id", q.CallID,
		"error", err, "failures_not_logged", f.missed)
	f.last, f.missed = now, 0
}
