// Package audit writes the audit log: decisions about calls, and actions of admins. Lines are written in batches,
// asynchronously to the requests they record.
package audit

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/farhand/farhand/registry"
)

const (
	maxLines = 1 << 16  // waiting lines; more are dropped and counted
	maxBytes = 32 << 20 // approximate memory of lines in queue and in flight; half of it per tenant
	batch    = 512      // lines per write
	gather   = 100 * time.Millisecond

	writeTimeout = 5 * time.Second
	retryPause   = time.Second // after a failure
)

// Store stores the lines. registry.AuditStore implements it.
type Store interface {
	AppendAudit(ctx context.Context, entries []registry.AuditEntry) error
}

// Log queues lines and writes them soon. While the store fails, lines wait within bounds. Beyond these, new lines are
// dropped and counted. Log implements auth.Auditor and is safe for concurrent use.
type Log struct {
	store Store
	pod   string
	log   *slog.Logger

	dropped atomic.Int64
	written atomic.Int64

	mu            sync.Mutex
	queue         [][]registry.AuditEntry // batches to write, in order; the last one may still grow
	waiting       int                     // lines in queue
	queuedBytes   int                     // bytes of lines in queue and in flight
	bytesByTenant map[string]int          // queued bytes by tenant
	wake          chan struct{}           // capacity 1: a line waits

	closing context.Context // ends when no more lines are accepted
	refuse  context.CancelFunc
	stop    context.CancelFunc
	writer  sync.WaitGroup
}

// New returns a Log that writes to store until Close. log gets write failures.
func New(store Store, pod string, log *slog.Logger) *Log {
	ctx, stop := context.WithCancel(context.Background())
	l := &Log{
		store: store, pod: pod, log: log, wake: make(chan struct{}, 1), bytesByTenant: make(map[string]int), stop: stop,
	}
	l.closing, l.refuse = context.WithCancel(context.Background())
	l.writer.Go(func() {
		for l.await(ctx) {
			l.pause(ctx, l.writeBatch(ctx))
		}
	})
	return l
}

// Note implements auth.Auditor.
func (l *Log) Note(e registry.AuditEntry) {
	if e.At.IsZero() {
		e.At = time.Now().UTC()
	}
	e.Pod = l.pod
	e.Trim()
	size := e.MemorySize()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closing.Err() != nil || l.waiting >= maxLines || !l.hasRoomLocked(e.Tenant, size) {
		l.dropped.Add(1)
		return
	}
	if last := len(l.queue) - 1; last < 0 || len(l.queue[last]) == batch {
		l.queue = append(l.queue, nil)
	}
	last := &l.queue[len(l.queue)-1]
	*last = append(*last, e)
	l.waiting++
	l.countLocked(e.Tenant, size)
	select {
	case l.wake <- struct{}{}:
	default: // the writer is awake
	}
}

// hasRoomLocked reports whether a tenant may add size bytes. Afterwards, the free space must be at least what it uses.
func (l *Log) hasRoomLocked(tenant string, size int) bool {
	free := maxBytes - l.queuedBytes - size
	own := l.bytesByTenant[tenant]
	return free >= 0 && (own == 0 || own+size <= free)
}

func (l *Log) countLocked(tenant string, size int) {
	l.queuedBytes += size
	if l.bytesByTenant[tenant] += size; l.bytesByTenant[tenant] == 0 {
		delete(l.bytesByTenant, tenant)
	}
}

// Stats are the counts of a Log.
type Stats struct {
	Waiting, Bytes   int64 // lines in queue, and the approximate bytes of lines in queue and in flight
	Written, Dropped int64 // lines since the start
}

// Stats returns the counts.
func (l *Log) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	return Stats{int64(l.waiting), int64(l.queuedBytes), l.written.Load(), l.dropped.Load()}
}

// Close writes the waiting lines, until ctx ends. Later lines are dropped. Call it once.
func (l *Log) Close(ctx context.Context) error {
	l.mu.Lock()
	l.refuse()
	l.mu.Unlock()
	defer context.AfterFunc(ctx, l.stop)()
	l.writer.Wait() // soon after ctx has ended: that ends the write
	l.stop()
	if left := l.Stats().Waiting; left > 0 {
		l.dropped.Add(left)
		return fmt.Errorf("%d lines of the audit log were lost", left)
	}
	return nil
}

// await waits for lines to write. It returns false if ctx has ended, or if the log is closed and empty.
func (l *Log) await(ctx context.Context) bool {
	for ctx.Err() == nil {
		closing := l.closing.Err() != nil // later lines are dropped, so the queue is complete
		if l.Stats().Waiting > 0 {
			return true
		}
		if closing {
			return false
		}
		select {
		case <-l.wake:
		case <-l.closing.Done():
		case <-ctx.Done():
		}
	}
	return false
}

// pause waits after a batch, so that lines in quick succession are written together.
func (l *Log) pause(ctx context.Context, failure error) {
	length, closing := gather, l.closing.Done()
	switch isClosing := l.closing.Err() != nil; {
	case failure != nil && isClosing: // retry until Close gives up
		length, closing = retryPause/10, nil
	case failure != nil:
		length = retryPause
	case isClosing || l.hasWhole():
		return
	}
	timer := time.NewTimer(length)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-closing:
	case <-ctx.Done():
	}
}

func (l *Log) hasWhole() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.queue) > 0 && len(l.queue[0]) == batch
}

// writeBatch writes the first batch. If that fails, the batch is queued first again. Its lines may then be stored
// twice, but are not lost.
func (l *Log) writeBatch(ctx context.Context) error {
	l.mu.Lock()
	lines := l.queue[0]
	l.queue = l.queue[1:]
	l.waiting -= len(lines)
	l.mu.Unlock()
	sizes := make([]int, len(lines))
	for i := range lines {
		sizes[i] = lines[i].MemorySize()
		lines[i].DigestArgs()
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	err := l.store.AppendAudit(ctx, lines)
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range lines {
		left := 0
		if err != nil { // without its arguments, which are now a digest
			left = lines[i].MemorySize()
		}
		l.countLocked(lines[i].Tenant, left-sizes[i])
	}
	if err == nil {
		l.written.Add(int64(len(lines)))
		return nil
	}
	l.queue = slices.Insert(l.queue, 0, lines)
	l.waiting += len(lines)
	l.log.Warn("audit lines not written; the pod retries", "lines", l.waiting, "error", err)
	return err
}
