package routing

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/farhand/farhand/registry"
)

const (
	recorderQueue = 1 << 15  // lines waiting to be written; more are dropped and counted
	recorderBytes = 32 << 20 // approximate memory of lines that wait or are being written
	recorderBatch = 512      // approximate lines per write
	recorderSpare = 4        // empty batches that are kept for reuse
	recorderPause = 50 * time.Millisecond

	recorderRetry = time.Second // pause before failed records are retried
	recorderKept  = 1 << 12     // records to retry; beyond it the oldest are dropped and counted
)

// recorder writes feed lines, call logs and call records to the store, in batches and off every critical path. It drops
// and counts lines of the feed and of logs that it cannot write: they are for people, and no call depends on them. It
// retries records, because otherwise the store would show a finished call as running. A tenant gets at most half of its
// room.
type recorder struct {
	cfg     PodConfig
	calls   *callBudget
	dropped atomic.Int64

	mu        sync.Mutex
	queue     []*recorded   // batches to write, in order; the last one still grows
	spare     []*recorded   // empty batches for reuse
	waiting   int           // lines in queue
	held      int           // bytes of the lines that wait or are being written
	of        holdings      // waiting and held, by tenant
	wake      chan struct{} // capacity 1: a line waits
	flushSoon chan struct{} // capacity 1: a goroutine waits for a line to be written
	taken     int64         // lines ever accepted
	done      int64         // lines ever written, or lost
	flushed   chan struct{} // closed and replaced when done grows

	// unwritten are records that could not be written, so the store may be wrong about their calls. Only writeUntil
	// uses them.
	unwritten   []registry.Record
	unwrittenOf holdings
}

// holding is a use of the recorder's room.
type holding struct{ lines, bytes int }

// holdings are the holdings of tenants.
type holdings map[string]holding

func (h holdings) add(tenant string, n holding) {
	sum := holding{h[tenant].lines + n.lines, h[tenant].bytes + n.bytes}
	if h[tenant] = sum; sum == (holding{}) {
		delete(h, tenant)
	}
}

// recorded is a batch of lines.
type recorded struct {
	activities []registry.Activity
	records    []registry.Record
	events     []registry.CallEvent
	size       int // approximate bytes of memory
	of         holdings
}

func (r *recorded) len() int { return len(r.activities) + len(r.records) + len(r.events) }

func newRecorder(cfg PodConfig, calls *callBudget) *recorder {
	return &recorder{
		cfg: cfg, calls: calls, of: make(holdings),
		wake: make(chan struct{}, 1), flushSoon: make(chan struct{}, 1), flushed: make(chan struct{}),
	}
}

// fitsLocked reports whether there is room for more lines of a tenant: at least as much as it then holds must stay
// free.
func (r *recorder) fitsLocked(tenant string, more holding) bool {
	free := holding{recorderQueue - r.waiting - more.lines, recorderBytes - r.held - more.bytes}
	own := r.of[tenant]
	return min(free.lines, free.bytes) >= 0 && (own == holding{} ||
		own.lines+more.lines <= free.lines && own.bytes+more.bytes <= free.bytes)
}

// reserveLocked returns the batch for a tenant's line of about size bytes, and wakes the writer. It returns nil if the
// queue is full; the line is then dropped.
func (r *recorder) reserveLocked(tenant string, size int) *recorded {
	line := holding{1, size}
	if !r.fitsLocked(tenant, line) {
		r.dropped.Add(1)
		return nil
	}
	if last := len(r.queue) - 1; last < 0 || r.queue[last].len() >= recorderBatch {
		r.queue = append(r.queue, r.emptyLocked())
	}
	batch := r.queue[len(r.queue)-1]
	r.waiting++
	r.taken++
	r.held += size
	r.of.add(tenant, line)
	batch.size += size
	batch.of.add(tenant, line)
	r.wakeLocked()
	return batch
}

func (r *recorder) wakeLocked() {
	select {
	case r.wake <- struct{}{}:
	default: // it is awake
	}
}

func (r *recorder) emptyLocked() *recorded {
	last := len(r.spare) - 1
	if last < 0 {
		return &recorded{of: make(holdings)}
	}
	batch := r.spare[last]
	r.spare = r.spare[:last]
	return batch
}

// activity adds a line to the feed of its tenant. The caller must not use a.Call afterwards.
func (r *recorder) activity(a registry.Activity) {
	a.Pod, a.At = r.cfg.ID, time.Now().UTC()
	a.Call.DigestLongArgs()
	r.mu.Lock()
	defer r.mu.Unlock()
	if batch := r.reserveLocked(a.Tenant, a.MemorySize()); batch != nil {
		batch.activities = append(batch.activities, a)
	}
}

// keep stores the record of a call that has none in the store. It returns the line's number for waitFor.
func (r *recorder) keep(rec registry.Record) (line int64) {
	rec.DigestLongArgs()
	r.mu.Lock()
	defer r.mu.Unlock()
	if batch := r.reserveLocked(rec.Tenant, rec.MemorySize()); batch != nil {
		batch.records = append(batch.records, rec)
	}
	return r.taken
}

// keepRunning stores a copy of the record of a call that has none in the store. From now on every pod can look the call
// up. The caller must store the end of the call. It returns the line's number for waitFor.
func (r *recorder) keepRunning(rec *registry.Record) (line int64) {
	rec.Stored = true
	now := *rec
	now.Timeline = slices.Clone(now.Timeline)
	return r.keep(now)
}

// event adds an event to the log of a call. It returns the line's number for waitFor.
func (r *recorder) event(e registry.CallEvent) (line int64) {
	e.At = time.Now().UTC()
	r.mu.Lock()
	defer r.mu.Unlock()
	if batch := r.reserveLocked(e.Tenant, e.MemorySize()); batch != nil {
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
		default: // already requested
		}
		select {
		case <-flushed:
		case <-ctx.Done():
			return
		}
	}
}

// writeUntil writes until ctx ends, and then writes the rest.
func (r *recorder) writeUntil(ctx context.Context) {
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
			r.cfg.gather()
		case <-again:
		}
		for more := true; more && ctx.Err() == nil; more = r.hasWhole() {
			_, _ = r.flush() // failures are logged there
		}
		// Lines in quick succession are written together. Lines that came during the write also wait: otherwise a busy
		// pod would write to the store without a pause, a few lines at a time.
		select {
		case <-ctx.Done():
		case <-time.After(recorderPause):
		case <-r.flushSoon:
		}
	}
}

// flush retries the records that could not be written before, and then writes one batch. It reports whether there was a
// batch, and the last failure.
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
		r.cfg.Log.Warn("records not written; retrying", "records", len(r.unwritten), "error", err)
		failure = err
	}
	for _, part := range []struct {
		what  string
		lines int
		err   error
	}{
		{"events", len(batch.events), r.calls.AppendCallEvents(ctx, batch.events)},
		{"activity", len(batch.activities), r.cfg.Store.AppendActivity(ctx, batch.activities)},
	} {
		if part.err != nil {
			r.dropped.Add(int64(part.lines))
			r.cfg.Log.Warn("not recorded", "what", part.what, "lines", part.lines, "error", part.err)
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
	if len(r.queue) > 0 { // the writer may write one batch per wake-up, and no further line may come to wake it
		r.wakeLocked()
	}
	return batch
}

// hasWhole reports whether a full batch waits.
func (r *recorder) hasWhole() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.queue) > 0 && r.queue[0].len() >= recorderBatch
}

// release frees the memory of a written batch, and keeps the empty batch for reuse.
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

// searchLimit is how many lines of the feed are searched for calls. searchPage is how many are read at once.
const (
	searchLimit = 10_000
	searchPage  = 500
)

// Events returns at most EventPage events of a call's log after the one with the id after, and the call's record
// without the tool's result.
func (c *Calls) Events(
	ctx context.Context, tenant, callID, after string,
) ([]registry.CallEvent, registry.Record, error) {
	events, err := c.calls.CallEvents(ctx, tenant, callID, after, registry.EventPage)
	if err != nil {
		return nil, registry.Record{}, err
	}
	rec, err := c.Get(ctx, tenant, callID)
	return events, rec.Summary(), err
}

// List returns the finished calls that the feed still has, newest first and without their results, and the cursor of
// the next page, empty on the last. It scans a bounded part of the feed, so a query with few matches may return short
// or empty pages that have a next one.
func (c *Calls) List(ctx context.Context, q registry.CallQuery) ([]registry.Record, string, error) {
	var page []registry.Record
	before, empty := searchStart(q)
	if empty {
		return nil, "", nil
	}
	for seen := 0; seen < searchLimit; {
		lines, err := c.store.LastActivity(ctx, q.Tenant, before, searchPage)
		if err != nil || len(lines) == 0 {
			return page, "", err
		}
		for _, a := range lines {
			if id, _ := registry.ParseFeedID(a.ID); !q.From.IsZero() && id.Milli < q.From.UnixMilli() {
				return page, "", nil
			}
			if a.Type != registry.ActivityCall || a.Call == nil || !q.Matches(a.Call) {
				continue
			}
			if page = append(page, *a.Call); len(page) == q.Limit {
				return page, a.ID, nil
			}
		}
		seen += len(lines)
		before = lines[len(lines)-1].ID
	}
	return page, before, nil
}

// searchStart returns the id before which a search of the feed begins: the cursor, or the first id of the time To. The
// ids are times.
func searchStart(q registry.CallQuery) (before string, empty bool) {
	if q.To.IsZero() {
		return q.Before, false
	}
	end := registry.FeedID{Milli: q.To.UnixMilli()}
	if q.Before != "" && registry.CompareFeedIDs(q.Before, end.String()) < 0 {
		return q.Before, false
	}
	return end.String(), end.Milli <= 0
}

// Note adds a line to the tenant's feed, asynchronously. It sets the time and the pod.
func (c *Calls) Note(a registry.Activity) { c.rec.activity(a) }

// Feed returns the entries of the tenant's feed after the one with the id after. If there are none, it waits.
func (c *Calls) Feed(
	ctx context.Context, tenant, after string, limit int, wait time.Duration,
) ([]registry.Activity, error) {
	return c.store.ReadActivity(ctx, tenant, after, limit, wait)
}

// FeedEnd returns the id of the newest entry of the tenant's feed, to continue from in Feed. Empty for an empty feed.
func (c *Calls) FeedEnd(ctx context.Context, tenant string) (string, error) {
	last, err := c.store.LastActivity(ctx, tenant, "", 1)
	if err != nil || len(last) == 0 {
		return "", err
	}
	return last[0].ID, nil
}
