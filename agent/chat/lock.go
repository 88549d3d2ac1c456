package chat

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/farhand/farhand/registry"
)

const (
	// leaseTime is how long a pod that dies keeps its conversations from others. With maxPause it is a pod's lease.
	leaseTime  = 9 * time.Second
	renewEvery = 3 * time.Second
	renewAgain = time.Second // after the store failed

	// A turn that waits for its conversation, or for a store that failed, pauses between two attempts: first for
	// firstPause, then for twice as long each time, up to maxPause.
	firstPause = 50 * time.Millisecond
	maxPause   = 500 * time.Millisecond

	// storeTime bounds each write to the store, with its repetitions. What was said is stored also when the turn was
	// ended from outside, so writes do not end with the turn's context.
	storeTime = 5 * time.Second
)

// storing returns the context of one write.
func storing(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), storeTime)
}

// lock is a conversation that only this turn may change.
type lock struct {
	registry.Turn
	ticket *ticket
	since  time.Time // not after the lease began
}

// acquire waits for the conversation. It fails with an *Error or with the cause of ctx, and then holds nothing.
func (e *Engine) acquire(ctx context.Context, key registry.Key) (*lock, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, e.cfg.Limits.Wait, errWaited)
	defer cancel()
	place, err := e.turnQueues.enter(ctx, key, e.closing)
	if err != nil {
		return nil, failure(ctx, e.cfg.Limits, err)
	}
	l, err := e.begin(ctx, place)
	if err != nil {
		place.leave()
		return nil, failure(ctx, e.cfg.Limits, err)
	}
	place.waited()
	return l, nil
}

// begin takes the turn in the store. It repeats the attempt while another pod has the turn, because the end of a turn
// is not announced.
func (e *Engine) begin(ctx context.Context, place *ticket) (*lock, error) {
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		since := time.Now()
		turn, err := e.tryBegin(ctx, place.key)
		if err == nil {
			return &lock{Turn: turn, ticket: place, since: since}, nil
		}
		if !errors.Is(err, registry.CodeBusy) {
			return nil, err
		}
		if err := place.wait(); err != nil {
			return nil, err
		}
		if wait := registry.AsError(err).RetryAfter; wait > 0 {
			pause = min(pause, wait)
		}
		if err := sleep(ctx, pause, e.closing); err != nil {
			return nil, err
		}
	}
}

// sleep waits for d. It fails when ctx ends or when closing, which may be nil, is closed before.
func sleep(ctx context.Context, d time.Duration, closing <-chan struct{}) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-closing:
		return draining()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// tryBegin makes one attempt. It is not interrupted: a turn that the store began and nobody runs would block the
// conversation for the time of its lease.
func (e *Engine) tryBegin(ctx context.Context, key registry.Key) (registry.Turn, error) {
	if ctx.Err() != nil {
		return registry.Turn{}, context.Cause(ctx)
	}
	once, cancel := storing(ctx)
	defer cancel()
	turn, err := e.cfg.Store.BeginTurn(once, key, leaseTime)
	if err == nil && ctx.Err() != nil {
		e.end(ctx, turn)
		return registry.Turn{}, context.Cause(ctx)
	}
	return turn, err
}

// end gives the turn back. If that fails, its lease lapses.
func (e *Engine) end(ctx context.Context, turn registry.Turn) {
	ctx, cancel := storing(ctx)
	defer cancel()
	if err := e.cfg.Store.EndTurn(ctx, turn); err != nil && !errors.Is(err, registry.ErrTurnLost) {
		e.cfg.Log.Warn("turn not given back", "tenant", turn.Key.Tenant, "session", turn.Key.Session, "error", err)
	}
}

// renew renews the turn until stop is called, which waits for it. If the turn is lost, or could not be renewed before
// its lease lapsed, it calls lost with the reason.
func (e *Engine) renew(l *lock, lost context.CancelCauseFunc) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		if err := e.keepRenewing(ctx, l); err != nil {
			lost(err)
		}
	})
	return func() {
		cancel()
		done.Wait()
	}
}

// keepRenewing returns nil when ctx has ended, and otherwise why the turn was lost.
func (e *Engine) keepRenewing(ctx context.Context, l *lock) error {
	lapses := l.since.Add(leaseTime)
	timer := time.NewTimer(renewEvery)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		asked := time.Now()
		err := e.renewOnce(ctx, l.Turn, lapses)
		switch {
		case err == nil:
			lapses = asked.Add(leaseTime)
			timer.Reset(renewEvery)
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, registry.ErrTurnLost):
			return registry.ErrTurnLost
		case !time.Now().Before(lapses):
			return errLapsed
		default:
			e.cfg.Log.Warn("turn not renewed", "tenant", l.Key.Tenant, "session", l.Key.Session, "error", err)
			timer.Reset(min(renewAgain, time.Until(lapses)))
		}
	}
}

func (e *Engine) renewOnce(ctx context.Context, turn registry.Turn, lapses time.Time) error {
	ctx, cancel := context.WithDeadline(ctx, lapses)
	defer cancel()
	return e.cfg.Store.RenewTurn(ctx, turn, leaseTime)
}

// turnQueues has a queue for each conversation. The turns of one conversation on this pod run one by one, in order of
// arrival. Only the first of them asks the store, so a queue costs the store no more than one waiting turn. All events
// of a turn are sent before the first one of the next turn of the same socket.
type turnQueues struct {
	waiting int // how many may wait in one queue

	mu    sync.Mutex
	byKey map[registry.Key]*turnQueue
}

// turnQueue is the queue of one conversation. slot holds one token while a turn runs.
type turnQueue struct {
	slot    chan struct{}
	users   int
	waiting int
}

// ticket is the place of one turn in its queue.
type ticket struct {
	all   *turnQueues
	queue *turnQueue
	key   registry.Key

	running, waits bool
}

// enter returns when the turns before it have left. It fails when too many wait, when ctx ends or when closing is
// closed. Then the caller must not call leave.
func (q *turnQueues) enter(ctx context.Context, key registry.Key, closing <-chan struct{}) (*ticket, error) {
	t := q.ticketFor(key)
	select {
	case t.queue.slot <- struct{}{}:
		t.running = true
		return t, nil
	default:
	}
	if err := t.wait(); err != nil {
		t.leave()
		return nil, err
	}
	select {
	case t.queue.slot <- struct{}{}:
		t.running = true
		return t, nil
	case <-closing:
		t.leave()
		return nil, draining()
	case <-ctx.Done():
		t.leave()
		return nil, context.Cause(ctx)
	}
}

func (q *turnQueues) ticketFor(key registry.Key) *ticket {
	q.mu.Lock()
	defer q.mu.Unlock()
	queue := q.byKey[key]
	if queue == nil {
		if q.byKey == nil {
			q.byKey = make(map[registry.Key]*turnQueue)
		}
		queue = &turnQueue{slot: make(chan struct{}, 1)}
		q.byKey[key] = queue
	}
	queue.users++
	return &ticket{all: q, queue: queue, key: key}
}

// wait counts the turn as waiting, once. It fails when too many wait.
func (t *ticket) wait() error {
	t.all.mu.Lock()
	defer t.all.mu.Unlock()
	if t.waits {
		return nil
	}
	if t.queue.waiting >= t.all.waiting {
		return busy(nil)
	}
	t.waits = true
	t.queue.waiting++
	return nil
}

// waited counts the turn as waiting no longer.
func (t *ticket) waited() {
	t.all.mu.Lock()
	defer t.all.mu.Unlock()
	if t.waits {
		t.waits = false
		t.queue.waiting--
	}
}

// leave lets the next turn run. It is called once.
func (t *ticket) leave() {
	t.waited()
	if t.running {
		<-t.queue.slot
	}
	t.all.mu.Lock()
	defer t.all.mu.Unlock()
	if t.queue.users--; t.queue.users == 0 {
		delete(t.all.byKey, t.key)
	}
}
