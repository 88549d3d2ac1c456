package registry

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	recorderQueue = 1 << 14  // lines waiting to be written; more are dropped and counted
	recorderBytes = 32 << 20 // about what those take that wait or are being written
	recorderBatch = 512      // lines written at once
	recorderPause = 50 * time.Millisecond

	// promptDigest is how long arguments must be for their digest to be made before they wait, so that they need not.
	promptDigest = 4 << 10
)

// recorder writes what happened to the store, in batches and off every critical path. What it cannot write is
// dropped and counted: the feed is for people, no call depends on it.
type recorder struct {
	pod        string
	calls      CallStore
	activities ActivityStore
	log        *slog.Logger
	now        func() time.Time
	dropped    atomic.Int64

	mu    sync.Mutex
	queue recorded
	held  int           // bytes of what waits or is being written
	wake  chan struct{} // capacity 1: something is waiting
}

// recorded is a batch.
type recorded struct {
	activities []Activity
	records    []Record
	events     []CallEvent
}

func (r recorded) len() int { return len(r.activities) + len(r.records) + len(r.events) }

func newRecorder(cfg PodConfig) *recorder {
	return &recorder{
		pod: cfg.ID, calls: cfg.Store, activities: cfg.Store, log: cfg.Log, now: time.Now, wake: make(chan struct{}, 1),
	}
}

// add changes the queue and wakes the writer. n is how many lines of together size bytes are added.
func (r *recorder) add(n, size int, change func(*recorded)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.queue.len()+n > recorderQueue || r.held+size > recorderBytes {
		r.dropped.Add(int64(n))
		return
	}
	r.held += size
	change(&r.queue)
	select {
	case r.wake <- struct{}{}:
	default: // it is awake
	}
}

// activity adds a line to the feed of its tenant.
func (r *recorder) activity(a Activity) {
	a.Pod, a.At = r.pod, r.now().UTC()
	a.Call.digestLarge()
	r.add(1, a.weight(), func(q *recorded) { q.activities = append(q.activities, a) })
}

// keep stores the record of a call that has none of its own.
func (r *recorder) keep(rec Record) {
	rec.digestLarge()
	event := stateEvent(rec)
	r.add(2, rec.weight()+event.weight(), func(q *recorded) {
		q.records = append(q.records, rec)
		q.events = append(q.events, event)
	})
}

// event adds to the log of a call.
func (r *recorder) event(e CallEvent) {
	e.At = r.now().UTC()
	r.add(1, e.weight(), func(q *recorded) { q.events = append(q.events, e) })
}

func stateEvent(rec Record) CallEvent {
	e := CallEvent{Tenant: rec.Tenant, CallID: rec.CallID, Type: CallEventState, State: rec.State}
	if n := len(rec.Timeline); n > 0 {
		e.At = rec.Timeline[n-1].At
	}
	return e
}

// run writes until ctx ends, and then what is left.
func (r *recorder) run(ctx context.Context) {
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
			for { // what is left, unless the store does not take it
				if more, err := r.flush(); !more || err != nil {
					return
				}
			}
		case <-r.wake:
		}
		for more := true; more && ctx.Err() == nil; {
			more, _ = r.flush() // failures are logged there
		}
		// Lines that come soon after one another leave together.
		pause.Reset(recorderPause)
		select {
		case <-ctx.Done():
		case <-pause.C:
		}
	}
}

// flush writes one batch. It reports whether there was one, and what kept it from being written.
func (r *recorder) flush() (more bool, failure error) {
	batch := r.take()
	if batch.len() == 0 {
		return false, nil
	}
	defer r.release(batch.weight())
	ctx, cancel := context.WithTimeout(context.Background(), taskTimeout)
	defer cancel()
	for i := range batch.activities {
		batch.activities[i].Call.digest()
	}
	for i := range batch.records {
		batch.records[i].digest()
	}
	for what, err := range map[string]error{
		"records": r.calls.KeepCalls(ctx, batch.records), "events": r.calls.AppendCallEvents(ctx, batch.events),
		"activity": r.activities.AppendActivity(ctx, batch.activities),
	} {
		if err != nil {
			r.dropped.Add(1)
			r.log.Warn("not recorded", "what", what, "error", err)
			failure = err
		}
	}
	return true, failure
}

func (r *recorder) take() recorded {
	r.mu.Lock()
	defer r.mu.Unlock()
	var b recorded
	b.activities, r.queue.activities = cut(r.queue.activities)
	b.records, r.queue.records = cut(r.queue.records)
	b.events, r.queue.events = cut(r.queue.events)
	return b
}

// release makes room for others after a batch was written.
func (r *recorder) release(size int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held -= size
}

// cut takes a batch off the front. What it takes is not reachable from the rest any more.
func cut[T any](all []T) (batch, rest []T) {
	if len(all) <= recorderBatch {
		return all, nil
	}
	batch = slices.Clone(all[:recorderBatch])
	clear(all[:recorderBatch])
	return batch, all[recorderBatch:]
}
