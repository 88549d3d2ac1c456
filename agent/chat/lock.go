package chat

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/farhand/farhand/registry"
)

const (
	// leaseTime is the lease of a turn: how long the conversations of a dead pod stay blocked for other pods. Even with
	// maxPause it is shorter than registry.DefaultPodLease.
	leaseTime  = 9 * time.Second
	renewEvery = 3 * time.Second
	renewAgain = time.Second // after a store error

	// A turn that waits for its conversation, or for a failed store, retries with backoff: first after firstPause, then
	// after twice as long each time, up to maxPause.
	firstPause = 50 * time.Millisecond
	maxPause   = 500 * time.Millisecond

	// storeTime is the timeout of each write to the store, including retries. Writes do not end with the turn's
	// context, so that text is also stored when the turn was stopped.
	storeTime = 5 * time.Second
)

// storing returns the context of one write to the store.
func storing(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), storeTime)
}

// lock is the exclusive right of this turn to change a conversation.
type lock struct {
	registry.Turn
	ticket *ticket
	since  time.Time // when the lease began, or earlier
}

// acquire waits for the conversation. On failure it holds nothing and returns an *Error or the cause of ctx.
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

// begin takes the turn in the store. It polls while another pod has it, because the end of a turn is not announced.
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
		select {
		case <-time.After(pause):
		case <-e.closing:
			return nil, draining()
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// tryBegin makes one attempt. ctx does not interrupt it: a turn that no pod runs would block the conversation.
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

// end returns the turn. If that fails, its lease expires.
func (e *Engine) end(ctx context.Context, turn registry.Turn) {
	ctx, cancel := storing(ctx)
	defer cancel()
	if err := e.cfg.Store.EndTurn(ctx, turn); err != nil && !errors.Is(err, registry.ErrTurnLost) {
		e.cfg.Log.Warn("turn not released", "tenant", turn.Key.Tenant, "session", turn.Key.Session, "error", err)
	}
}

// renew renews the turn until stop is called, which waits until renewing has ended. It calls lost with the reason if
// the turn is lost, or could not be renewed before its lease expired.
func (e *Engine) renew(l *lock, lost context.CancelCauseFunc) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		if err := e.renewUntilLost(ctx, l); err != nil {
			lost(err)
		}
	})
	return func() {
		cancel()
		done.Wait()
	}
}

// renewUntilLost returns nil when ctx ends, otherwise the reason why the turn was lost.
func (e *Engine) renewUntilLost(ctx context.Context, l *lock) error {
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
		renewing, cancel := context.WithDeadline(ctx, lapses)
		err := e.cfg.Store.RenewTurn(renewing, l.Turn, leaseTime)
		cancel()
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

// turnQueues has a queue for each conversation, whose turns run on this pod one at a time, in order of arrival. Only
// the first in a queue asks the store. A socket gets all events of one turn before the first event of the next.
type turnQueues struct {
	waiting int // maximum of waiting turns in one queue

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

// enter returns when all earlier turns have left. It fails if too many wait, or if ctx ends or closing is closed.
func (q *turnQueues) enter(ctx context.Context, key registry.Key, closing <-chan struct{}) (*ticket, error) {
	t := q.ticketFor(key)
	select {
	case t.queue.slot <- struct{}{}:
		t.running = true
		return t, nil
	default:
	}
	err := t.wait()
	if err == nil {
		select {
		case t.queue.slot <- struct{}{}:
			t.running = true
			return t, nil
		case <-closing:
			err = draining()
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	t.leave()
	return nil, err
}

func (q *turnQueues) ticketFor(key registry.Key) *ticket {
	q.mu.Lock()
	defer q.mu.Unlock()
	queue := q.byKey[key]
	if queue == nil {
		queue = &turnQueue{slot: make(chan struct{}, 1)}
		q.byKey[key] = queue
	}
	queue.users++
	return &ticket{all: q, queue: queue, key: key}
}

// wait counts the turn as waiting, once. It fails if too many wait.
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

// waited no longer counts the turn as waiting.
func (t *ticket) waited() {
	t.all.mu.Lock()
	defer t.all.mu.Unlock()
	if t.waits {
		t.waits = false
		t.queue.waiting--
	}
}

// leave lets the next turn run. It must be called once.
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
