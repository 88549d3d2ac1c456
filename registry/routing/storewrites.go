package routing

import (
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
)

// storeWait is how long a change waits for the store. A registering device should get its reply once its tools are
// visible on all pods. But the socket's reader also reads the answers to calls, and must not stall because the store
// does.
const storeWait = 250 * time.Millisecond

// stored makes a change of the session, queues its write to the store and waits for the write, at most storeWait. The
// change and the queueing are one step under the lock, so that a goroutine that sees the change can await its write
// (awaitWrites). It fails only if this pod has lost the session: other failures do not matter to the device.
func (l *LocalSession) stored(
	ctx context.Context, change func(), write func(context.Context) error,
) error {
	written, done := make(chan error, 1), make(chan struct{})
	l.mu.Lock()
	change()
	before := l.lastWrite
	queued := l.hub.tasks.start(l.payer, func(ctx context.Context) {
		defer l.endWrite(done)
		if before != nil {
			<-before // changes are written in the order they were made
		}
		written <- l.writeNow(ctx, write)
	})
	if queued {
		l.lastWrite = done
	}
	l.mu.Unlock()
	if !queued {
		return nil // left to the next refresh
	}
	select {
	case err := <-written:
		return err
	case <-time.After(storeWait):
	case <-ctx.Done():
	}
	return nil
}

// awaitWrites waits for the queued writes to the store, at most for staleWait.
func (l *LocalSession) awaitWrites() {
	l.mu.Lock()
	last := l.lastWrite
	l.mu.Unlock()
	if last == nil {
		return
	}
	select {
	case <-last:
	case <-time.After(staleWait):
	}
}

// beginWrite waits until all earlier queued writes to the store have ended, and returns a function that ends its own.
// So two writes of one session never overtake each other. The wait is limited, because each write is.
func (l *LocalSession) beginWrite() (end func()) {
	done := make(chan struct{})
	l.mu.Lock()
	before := l.lastWrite
	l.lastWrite = done
	l.mu.Unlock()
	if before != nil {
		<-before
	}
	return func() { l.endWrite(done) }
}

// endWrite closes done, so that the next write begins. An idle session keeps no channel.
func (l *LocalSession) endWrite(done chan struct{}) {
	close(done)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lastWrite == done {
		l.lastWrite = nil
	}
}

// writeNow writes a change, or the whole session if an earlier write failed. The caller must be the only writer (see
// beginWrite).
func (l *LocalSession) writeNow(ctx context.Context, write func(context.Context) error) error {
	if l.stale {
		write = l.restoreNow
	}
	switch err := write(ctx); {
	case err == nil:
		l.stale = false
		return nil
	case errors.Is(err, registry.ErrNotOwner):
		l.replaced()
		return registry.ErrNotOwner
	default:
		l.stale = true
		l.hub.log.Warn("store write put off until the next announcement", "session", l.key.Session, "error", err)
		return nil
	}
}

// restore writes the session to the store again after the store lost it.
func (l *LocalSession) restore(ctx context.Context) error {
	defer l.beginWrite()()
	return l.restoreNow(ctx)
}

// restoreNow is restore for a caller that is the only writer.
func (l *LocalSession) restoreNow(ctx context.Context) error {
	l.mu.Lock()
	closed := l.closed
	l.mu.Unlock()
	if closed {
		return nil
	}
	s, err := l.hub.store.Restore(ctx, l.entry())
	if err != nil {
		return err
	}
	l.mu.Lock()
	l.session.Generation = s.Generation
	l.mu.Unlock()
	l.stale = false
	return nil
}

const (
	maxTasks    = 8192            // tasks that run at once on one pod
	maxLate     = 512             // late answers that wait at once, for their records or the store
	maxChecks   = 512             // concurrent checks of answers; further answers are not checked
	taskTimeout = 3 * time.Second // of one task, or one try of it
)

// payerOf returns the owner of the tasks of a session: as accountsOf, because a user can have any number of sessions,
// and so can a device. No session id has a slash.
func payerOf(s *registry.Session) share.Owner {
	switch {
	case s.UserID != "":
		return share.Owner{Tenant: s.Tenant, Identity: "user/" + s.UserID}
	case s.Bound:
		return share.Owner{Tenant: s.Tenant, Identity: "device/" + s.DeviceID}
	}
	return ofSession(s.Key)
}

// ofSession returns the owner of tasks about a session of which this pod knows only the key.
func ofSession(key registry.Key) share.Owner {
	return share.Owner{Tenant: key.Tenant, Identity: key.Session}
}

// payer returns the owner of the tasks of a session, which may be on this pod.
func (p *Hub) payer(key registry.Key) share.Owner {
	if l := p.Get(key); l != nil {
		return l.payer
	}
	return ofSession(key)
}

// tasks runs short exchanges with the store that must not block a socket's reader or the bus. Each has a time limit. A
// closing pod waits for all of them.
type tasks struct {
	slots *share.Pool
	log   *slog.Logger

	mu     sync.Mutex
	closed bool
	wg     sync.WaitGroup
}

func newTasks(limit int64, log *slog.Logger) *tasks {
	return &tasks{slots: share.New(share.Bounds{Pod: limit}), log: log}
}

// start runs f for an owner in a goroutine. It returns false if too many tasks are running: in total, of its tenant, or
// of the owner. It also returns false after wait.
func (t *tasks) start(of share.Owner, f func(ctx context.Context)) bool {
	slot, err := t.slots.Try(of, 1)
	if err != nil {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		slot.Release()
		return false
	}
	t.wg.Go(func() {
		defer func() {
			slot.Release()
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

// closing reports whether wait was called. A task that tries again and again ends then.
func (t *tasks) closing() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.closed
}

// wait rejects new tasks, and waits for the running ones.
func (t *tasks) wait() {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	t.wg.Wait()
}
