package routing

import (
	"context"
	"slices"
	"time"

	"github.com/farhand/farhand/registry"
)

// writeUntil writes until ctx ends, and then writes the rest.
func (r *recorder) writeUntil(ctx context.Context) {
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		var again <-chan time.Time
		if len(r.unwritten) > 0 {
			again = time.After(recorderRetry)
		}
		select {
		case <-ctx.Done():
			for { // write the rest, unless the store fails
				if more, err := r.flush(); !more || err != nil {
					return
				}
			}
		case <-r.wake:
			r.gather()
		case <-again:
		}
		for more := true; more && ctx.Err() == nil; more = r.hasWhole() {
			_, _ = r.flush() // failures are logged there
		}
		// Lines that come soon after one another are written together. What came during the write waits, too: a busy
		// store would else be written to without a pause, a few lines at a time.
		pause.Reset(recorderPause)
		select {
		case <-ctx.Done():
		case <-pause.C:
		case <-r.flushSoon:
		}
	}
}

// flush writes the records that could not be written before, and then one batch. It reports whether there was a batch,
// and the last failure.
func (r *recorder) flush() (more bool, failure error) {
	batch := r.nextBatch()
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

// keepCalls stores the records that could not be written before, and then records. If that fails, it keeps the newest
// record of each call for the next try, within recorderBytes and recorderKept.
func (r *recorder) keepCalls(ctx context.Context, records []registry.Record) error {
	if len(r.unwritten) > 0 {
		records = slices.Concat(r.unwritten, records)
	}
	err := r.calls.KeepCalls(ctx, records)
	r.mu.Lock()
	defer r.mu.Unlock()
	for tenant, h := range r.unwrittenOf {
		r.held -= h.bytes
		r.of.add(tenant, holding{-h.lines, -h.bytes})
	}
	r.unwritten, r.unwrittenOf = nil, nil
	if err != nil {
		r.keepUnwrittenLocked(records)
	}
	return err
}

// keepUnwrittenLocked keeps records for the next try.
func (r *recorder) keepUnwrittenLocked(records []registry.Record) {
	r.unwrittenOf = make(holdings)
	known := make(map[[2]string]bool)
	for _, rec := range slices.Backward(records) {
		id := [2]string{rec.Tenant, rec.CallID}
		if known[id] {
			continue
		}
		known[id] = true
		one, left := holding{1, rec.MemorySize()}, recorderKept-len(r.unwritten)
		if own := r.unwrittenOf[rec.Tenant].lines; left == 0 || own >= left || !r.fitsLocked(rec.Tenant, one) {
			r.dropped.Add(1)
			continue
		}
		r.unwritten = append(r.unwritten, rec)
		r.unwrittenOf.add(rec.Tenant, one)
		r.held += one.bytes
		r.of.add(rec.Tenant, one)
	}
	slices.Reverse(r.unwritten)
}

// nextBatch removes and returns the first batch, nil if no line waits.
func (r *recorder) nextBatch() *recorded {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.queue) == 0 {
		return nil
	}
	batch := r.queue[0]
	r.queue = slices.Delete(r.queue, 0, 1)
	r.waiting -= batch.len()
	if len(r.queue) > 0 { // the writer may write one batch each time it wakes, and no line may come after these
		r.wakeLocked()
	}
	return batch
}

// hasWhole reports whether a batch waits that grows no more.
func (r *recorder) hasWhole() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.queue) > 0 && r.queue[0].len() >= recorderBatch
}

// release gives up the memory of a batch that was written, and keeps the empty batch for reuse.
func (r *recorder) release(batch *recorded) {
	size, lines := batch.size, batch.len()
	clear(batch.activities)
	clear(batch.records)
	clear(batch.events)
	of := batch.of
	*batch = recorded{
		activities: batch.activities[:0], records: batch.records[:0], events: batch.events[:0], of: of,
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held -= size
	for tenant, h := range of {
		r.of.add(tenant, holding{-h.lines, -h.bytes})
	}
	clear(of)
	r.done += int64(lines)
	close(r.flushed)
	r.flushed = make(chan struct{})
	if len(r.spare) < recorderSpare {
		r.spare = append(r.spare, batch)
	}
}
