package routing

import (
	"context"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

const (
	maxTasks    = 4096            // tasks that run at once on one pod
	maxLate     = 256             // late answers that wait for their records at once
	maxChecks   = 256             // answers that are checked at once; others are not
	taskTimeout = 3 * time.Second // of one task
)

// tasks runs short exchanges with the store that must not hold up a socket's reader or the bus. Each is bounded in
// time, and the pod waits for all of them when it closes.
type tasks struct {
	slots chan struct{}
	wg    sync.WaitGroup

	refused atomic.Int64
	log     *slog.Logger
}

func newTasks(limit int, log *slog.Logger) *tasks {
	return &tasks{slots: make(chan struct{}, limit), log: log}
}

// start runs f in a goroutine, or reports false if too many tasks are running.
func (t *tasks) start(f func(ctx context.Context)) bool {
	select {
	case t.slots <- struct{}{}:
	default:
		t.refused.Add(1)
		return false
	}
	t.wg.Go(func() {
		defer func() {
			<-t.slots
			if p := recover(); p != nil {
				t.log.Error("panic in a task", "panic", p, "stack", string(debug.Stack()))
			}
		}()
		ctx, cancel := context.WithTimeout(context.Background(), taskTimeout)
		defer cancel()
		f(ctx)
	})
	return true
}

func (t *tasks) wait() { t.wg.Wait() }
