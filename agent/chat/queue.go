package chat

import (
	"context"
	"sync"

	"github.com/farhand/farhand/registry"
)

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
