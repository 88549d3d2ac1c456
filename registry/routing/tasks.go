package routing

import (
	"context"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
)

const (
	maxTasks    = 8192            // tasks that run at once on one pod
	maxLate     = 512             // late answers that wait for their records at once
	maxChecks   = 512             // answers that are checked at once; others are not
	taskTimeout = 3 * time.Second // of one task
)

// tasks runs short exchanges with the store that must not hold up a socket's reader or the bus. Each is bounded in
// time, and the pod waits for all of them when it closes.
type tasks struct {
	places *share.Pool
	log    *slog.Logger

	mu     sync.Mutex
	closed bool
	wg     sync.WaitGroup
}

func newTasks(limit int64, log *slog.Logger) *tasks {
	return &tasks{places: share.New(share.Bounds{Pod: limit}), log: log}
}

// start runs f for a session in a goroutine, or reports false if too many tasks are running: of all, of its tenant, or
// of the session. It also does after wait.
func (t *tasks) start(of registry.Key, f func(ctx context.Context)) bool {
	place, err := t.places.Try(share.Owner{Tenant: of.Tenant, Identity: of.Session}, 1)
	if err != nil {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		place.Release()
		return false
	}
	t.wg.Go(func() {
		defer func() {
			place.Release()
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

// wait lets no more tasks start, and waits for those that run.
func (t *tasks) wait() {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	t.wg.Wait()
}
