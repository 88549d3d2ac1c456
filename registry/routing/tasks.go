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
	maxTasks    = 4096            // under way at once on one pod
	maxLate     = 256             // answers under way at once whose record is waited for
	taskTimeout = 3 * time.Second // for one
)

// tasks runs what must not hold up a socket's reader or the bus: short exchanges with the store, each bounded in
// time, all of them waited for when the pod closes.
type tasks struct {
	slots chan struct{}
	wg    sync.WaitGroup

	refused atomic.Int64
	log     *slog.Logger
}

func newTasks(limit int, log *slog.Logger) *tasks {
	return &tasks{slots: make(chan struct{}, limit), log: log}
}

// run starts f, or reports false when too much is under way already.
func (t *tasks) run(f func(ctx context.Context)) bool {
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
