package routing

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/farhand/farhand/registry"
)

const (
	recorderQueue = 1 << 14  // lines waiting to be written; more are dropped and counted
	recorderBytes = 32 << 20 // about what those take that wait or are being written
	recorderBatch = 512      // lines written at once, about
	recorderSpare = 4        // written batches that are kept for lines to come
	recorderPause = 50 * time.Millisecond

	recorderRetry = time.Second // after which records that could not be written are tried again
	recorderKept  = 1 << 12     // records that are tried again; of more, the oldest are dropped and counted
)

// recorder writes what happened to the store, in batches and off every critical path. Lines of the feed and of logs
// that it cannot write are dropped and counted: they are for people, no call depends on them. Records are tried again
// for a while: one that is not brought to its end lies.
type recorder struct {
	pod        string
	calls      registry.CallStore
	activities registry.ActivityStore
	log        *slog.Logger
	now        func() time.Time
	gather     func() // called before lines are taken that woke the writer; it does nothing but in tests
	dropped    atomic.Int64

	mu        sync.Mutex
	queue     []*recorded   // to be written, in order; the last one still grows
	spare     []*recorded   // empty
	waiting   int           // lines in queue
	held      int           // bytes of what waits or is being written
	wake      chan struct{} // capacity 1: something is waiting
	flushSoon chan struct{} // capacity 1: somebody waits for what is waiting
	taken     int64         // lines ever accepted
	done      int64         // lines ever written, or lost
	flushed   chan struct{} // closed, and replaced, when done has grown

	unwritten     []registry.Record // that could not be written, of run only; what the store has of these calls may be wrong without them
	unwrittenSize int
}

// recorded is a batch.
type recorded struct {
	activities []registry.Activity
	records    []registry.Record
	events     []registry.CallEvent
	size       int // bytes of memory, about
}

func (r *recorded) len() int { return len(r.activities) + len(r.records) + len(r.events) }

func newRecorder(cfg PodConfig) *recorder {
	return &recorder{
		pod: cfg.ID, calls: cfg.calls, activities: cfg.Store, log: cfg.Log, now: time.Now, gather: cfg.gather,
		wake: make(chan struct{}, 1), flushSoon: make(chan struct{}, 1), flushed: make(chan struct{}),
	}
}

// roomLocked returns the batch to add n lines of together size bytes to, and wakes the writer; nil if they are dropped.
func (r *recorder) roomLocked(n, size int) *recorded {
	if r.waiting+n > recorderQueue || r.held+size > recorderBytes {
		r.dropped.Add(int64(n))
		return nil
	}
	if last := len(r.queue) - 1; last < 0 || r.queue[last].len() >= recorderBatch {
		r.queue = append(r.queue, r.emptyLocked())
	}
	batch := r.queue[len(r.queue)-1]
	r.waiting += n
	r.taken += int64(n)
	r.held += size
	batch.size += size
	select {
	case r.wake <- struct{}{}:
	default: // it is awake
	}
	return batch
}

func (r *recorder) emptyLocked() *recorded {
	last := len(r.spare) - 1
	if last < 0 {
		return new(recorded)
	}
	batch := r.spare[last]
	r.spare = r.spare[:last]
	return batch
}

// activity adds a line to the feed of its tenant. A call in it is the recorder's from then on.
func (r *recorder) activity(a registry.Activity) {
	a.Pod, a.At = r.pod, r.now().UTC()
	a.Call.DigestLongArgs()
	r.mu.Lock()
	defer r.mu.Unlock()
	if batch := r.roomLocked(1, a.MemorySize()); batch != nil {
		batch.activities = append(batch.activities, a)
	}
}

// keep stores the record of a call that has none of its own. It returns the number of the line, for waitFor.
func (r *recorder) keep(rec registry.Record) (line int64) {
	rec.DigestLongArgs()
	r.mu.Lock()
	defer r.mu.Unlock()
	if batch := r.roomLocked(1, rec.MemorySize()); batch != nil {
		batch.records = append(batch.records, rec)
	}
	return r.taken
}

// keepRunning stores the record of a call that has none of its own, as it is now: from here on others may look it up.
// Who runs the call must say how it ended.
func (r *recorder) keepRunning(rec *registry.Record) {
	rec.Stored = true
	now := *rec
	now.Timeline = slices.Clone(now.Timeline)
	r.keep(now)
}

// event adds to the log of a call. It returns the number of the line, for waitFor.
func (r *recorder) event(e registry.CallEvent) (line int64) {
	e.At = r.now().UTC()
	r.mu.Lock()
	defer r.mu.Unlock()
	if batch := r.roomLocked(1, e.MemorySize()); batch != nil {
		batch.events = append(batch.events, e)
	}
	return r.taken
}

// wrote reports whether a line has been written, or lost.
func (r *recorder) wrote(line int64) bool {
	if line == 0 {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.done >= line
}

// waitFor waits until a line has been written, or lost, or ctx ends.
func (r *recorder) waitFor(ctx context.Context, line int64) {
	for {
		r.mu.Lock()
		done, flushed := r.done >= line, r.flushed
		r.mu.Unlock()
		if done {
			return
		}
		select {
		case r.flushSoon <- struct{}{}:
		default: // it does
		}
		select {
		case <-flushed:
		case <-ctx.Done():
			return
		}
	}
}

// run writes until ctx ends, and then what is left.
func (r *recorder) run(ctx context.Context) {
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		var again <-chan time.Time
		if len(r.unwritten) > 0 {
			again = time.After(recorderRetry)
		}
		select {
		case <-ctx.Done():
			for { // what is left, unless the store does not take it
				if more, err := r.flush(); !more || err != nil {
					return
				}
			}
		case <-r.wake:
			r.gather()
		case <-again:
		}
		for more := true; more && ctx.Err() == nil; {
			more, _ = r.flush() // failures are logged there
		}
		// Lines that come soon after one another leave together.
		pause.Reset(recorderPause)
		select {
		case <-ctx.Done():
		case <-pause.C:
		case <-r.flushSoon:
		}
	}
}

// flush writes one batch, and before it the records that could not be written. It reports whether there was a batch,
// and what kept any of it from being written.
func (r *recorder) flush() (more bool, failure error) {
	batch := r.take()
	if batch == nil && len(r.unwritten) == 0 {
		return false, nil
	}
	if more = batch != nil; !more {
		batch = new(recorded)
	} else {
		defer r.release(batch)
	}
	ctx, cancel := context.WithTimeout(context.Background(), taskTimeout)
	defer cancel()
	for i := range batch.activities {
		batch.activities[i].Call.DigestArgs()
	}
	for i := range batch.records {
		batch.records[i].DigestArgs()
	}
	if err := r.keepCalls(ctx, batch.records); err != nil {
		r.log.Warn("records not written; they are tried again", "records", len(r.unwritten), "error", err)
		failure = err
	}
	for _, part := range []struct {
		what  string
		lines int
		err   error
	}{
		{"events", len(batch.events), r.calls.AppendCallEvents(ctx, batch.events)},
		{"activity", len(batch.activities), r.activities.AppendActivity(ctx, batch.activities)},
	} {
		if part.err != nil {
			r.dropped.Add(int64(part.lines))
			r.log.Warn("not recorded", "what", part.what, "lines", part.lines, "error", part.err)
			failure = part.err
		}
	}
	return more, failure
}

// keepCalls stores records, those first that could not be written before. If that fails again, the newest of each call
// waits for the next time, as far as there is room.
func (r *recorder) keepCalls(ctx context.Context, records []registry.Record) error {
	if len(r.unwritten) > 0 {
		records = slices.Concat(r.unwritten, records)
	}
	err := r.calls.KeepCalls(ctx, records)
	var again []registry.Record
	size := 0
	if err != nil {
		known := make(map[[2]string]bool)
		for _, rec := range slices.Backward(records) {
			if id := [2]string{rec.Tenant, rec.CallID}; !known[id] {
				known[id] = true
				if weight := rec.MemorySize(); len(again) >= recorderKept || !r.hold(weight-r.unwrittenSize, size) {
					r.dropped.Add(1)
				} else {
					again, size = append(again, rec), size+weight
				}
			}
		}
		slices.Reverse(again)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held += size - r.unwrittenSize
	r.unwritten, r.unwrittenSize = again, size
	return err
}

// hold reports whether there is room for so many bytes more, beside those that are about to be held.
func (r *recorder) hold(more, beside int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.held+beside+more <= recorderBytes
}

// take removes the first batch, nil if nothing waits.
func (r *recorder) take() *recorded {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.queue) == 0 {
		return nil
	}
	batch := r.queue[0]
	r.queue = slices.Delete(r.queue, 0, 1)
	r.waiting -= batch.len()
	return batch
}

// release makes room for others after a batch was written, and lets go of what was in it.
func (r *recorder) release(batch *recorded) {
	size, lines := batch.size, batch.len()
	clear(batch.activities)
	clear(batch.records)
	clear(batch.events)
	*batch = recorded{activities: batch.activities[:0], records: batch.records[:0], events: batch.events[:0]}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held -= size
	r.done += int64(lines)
	close(r.flushed)
	r.flushed = make(chan struct{})
	if len(r.spare) < recorderSpare {
		r.spare = append(r.spare, batch)
	}
}
