package routing

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/farhand/farhand/registry"
)

const (
	// maxRunning bounds the durable calls one pod runs at once.
	maxRunning = 10_000

	// watchPause is how long a request that waits for a record relies on being woken before it looks by itself.
	watchPause = time.Second

	// lastLook bounds the look at a record when nobody has time any more.
	lastLook = 150 * time.Millisecond

	// endPause is how long after the store could not be told of the end of a call it is told again, endTries how often.
	endPause = time.Second
	endTries = 60

	// searchLimit bounds how many lines of the feed are searched for calls.
	searchLimit = 10_000
	searchPage  = 500
)

// canceller is the part of a Router that Calls need: it gives up what this pod waits for, or has handed to a device.
type canceller interface {
	cancelPending(tenant, callID string) *pendingCall
	handleCancel(e registry.Envelope)
}

// Calls is what can be asked of calls beside making them: records, waiting, cancelling, and running those that must
// outlive their request. It is safe for concurrent use.
type Calls struct {
	pod      string
	store    *callBudget
	feed     registry.ActivityStore
	router   canceller
	counts   *counters
	bus      registry.Bus
	rec      *recorder
	log      *slog.Logger
	watchers watchers
	unstored unstoredOutcomes
	endings  endings
	active   sync.Map // ids of the durable calls that run on this pod

	slots   chan struct{}
	running sync.WaitGroup
	stop    context.CancelCauseFunc // abandons what runs
	ctx     context.Context         // of what runs
}

func newCalls(cfg PodConfig, r canceller, rec *recorder, n *counters) *Calls {
	ctx, stop := context.WithCancelCause(context.Background())
	return &Calls{
		pod: cfg.ID, store: cfg.calls, feed: cfg.Store, router: r, counts: n, bus: cfg.Bus, rec: rec,
		log: cfg.Log, unstored: newUnstoredOutcomes(), slots: make(chan struct{}, maxRunning), ctx: ctx, stop: stop,
	}
}

// Finish records how a call without a record of its own ended. It returns at once, and the record, of which nothing is
// copied, belongs to it from then on.
func (c *Calls) Finish(rec *registry.Record, res registry.Result, err error) {
	change := registry.Change{Err: errorOrNil(err)}
	event := rec.EndEvent(res, err)
	rec.Pod = c.pod
	var line int64
	if err == nil {
		change.Result = &registry.Result{Success: res.Success, Error: registry.CutText(res.Error, registry.MaxErrorText)} // as in a summary: nobody keeps the rest
		if rec.Stored {
			*change.Result = res
		}
	}
	rec.Apply(event, change, time.Now().UTC())
	if rec.Stored || err != nil && rec.State != registry.StateRejected {
		line = c.rec.keep(*rec) // its answer may still come, or somebody has seen it running
		told := rec.Summary()
		rec = &told
	}
	c.endings.tell(rec.CallID, ending{record: *rec, line: line})
	c.rec.activity(registry.Activity{Tenant: rec.Tenant, Type: registry.ActivityCall, SessionID: rec.SessionID, DeviceID: rec.DeviceID, Call: rec})
}

func errorOrNil(err error) *registry.Error {
	if err == nil {
		return nil
	}
	return registry.AsError(err)
}

// Start stores the record of a durable call and has run carry it out, whether or not anybody waits. If the record's
// idempotency key belongs to another call, that call's record is returned, created is false, and nothing is run.
func (c *Calls) Start(ctx context.Context, rec registry.Record, run func(context.Context) (registry.Result, error)) (stored registry.Record, created bool, err error) {
	select {
	case c.slots <- struct{}{}:
	default:
		c.counts.podBusy.Add(1)
		e := registry.Errorf(registry.CodeBusy, "This pod runs as many calls as it can. Retry after a moment.")
		e.RetryAfter = time.Second
		return registry.Record{}, false, e.With(registry.DispatchedNo)
	}
	rec.Pod = c.pod
	rec.DigestArgs()
	ctx, cancel := inTime(ctx)
	defer cancel()
	stored, created, err = c.store.CreateCall(ctx, rec)
	if err != nil || !created {
		<-c.slots
		return stored, created, err
	}
	c.active.Store(stored.CallID, nil)
	c.running.Go(func() {
		defer func() { <-c.slots }()
		defer c.active.Delete(stored.CallID)
		res, err := run(c.ctx)
		if errors.Is(context.Cause(c.ctx), registry.ErrAbandoned) {
			return // whoever reads the record brings it to its end
		}
		c.complete(stored, res, err)
	})
	return stored, true, nil
}

// complete brings a durable call to its end in the store. Answers are there already: the pod that delivered the call
// stored them before it replied. A store that is away is told later; who waits at this pod hears it at once.
func (c *Calls) complete(rec registry.Record, res registry.Result, runErr error) {
	change := registry.Change{Err: errorOrNil(runErr), Here: rec.Source == registry.SourceBuiltin}
	if runErr == nil {
		change.Result, change.Session = &res, registry.Key{Tenant: rec.Tenant, Session: rec.SessionID}
	}
	event := rec.EndEvent(res, runErr)
	final, err := c.storeEnd(rec, event, change)
	if err != nil {
		c.log.Warn("end of a call not stored; it is tried again", "call", rec.CallID, "error", err)
		told := rec
		told.Timeline = slices.Clone(rec.Timeline)
		told.Apply(event, change, time.Now().UTC())
		c.unstored.put(told)
		c.watchers.notify(rec.CallID)
		change.Told = true
		if final, err = c.retryStoreEnd(rec, event, change); err != nil {
			c.log.Warn("end of a call not stored", "call", rec.CallID, "error", err)
			return
		}
	}
	c.watchers.notify(rec.CallID)
	final = final.Summary()
	c.rec.activity(registry.Activity{Tenant: rec.Tenant, Type: registry.ActivityCall, SessionID: final.SessionID, DeviceID: final.DeviceID, Call: &final})
}

// storeEnd applies the end of a call to its record, and gives its idempotency key up if nothing ran.
func (c *Calls) storeEnd(rec registry.Record, event registry.Event, change registry.Change) (registry.Record, error) {
	ctx, cancel := context.WithTimeout(context.Background(), taskTimeout)
	defer cancel()
	moved, err := c.store.MoveCall(ctx, rec.Tenant, rec.CallID, event, change)
	if err == nil && !moved.Applied && event == registry.EventReject && !moved.Record.State.Final() {
		moved, err = c.rejectClaimed(ctx, rec, change)
	}
	if err != nil {
		return registry.Record{}, err
	}
	if moved.Applied {
		notifyWatchers(c.bus, c.log, moved)
	}
	if moved.Record.Dispatched == registry.DispatchedNo && rec.IdempotencyKey != "" {
		if err := c.store.FreeKey(ctx, rec.Tenant, rec.IdempotencyKey, rec.CallID); err != nil {
			c.log.Warn("idempotency key not freed", "call", rec.CallID, "error", err)
		}
	}
	return moved.Record, nil
}

// rejectClaimed ends a call whose device certainly has not seen it, though its record says so: the pod that holds the
// device claimed the call, did not hear that it had, and refused it. Nobody else can have claimed it.
func (c *Calls) rejectClaimed(ctx context.Context, rec registry.Record, change registry.Change) (registry.Moved, error) {
	if moved, err := c.store.MoveCall(ctx, rec.Tenant, rec.CallID, registry.EventReturn, registry.Change{}); err != nil {
		return moved, err
	}
	return c.store.MoveCall(ctx, rec.Tenant, rec.CallID, registry.EventReject, change)
}

// retryStoreEnd is end, again and again until the store has heard, for about as long as it may be away without anybody
// noticing more than that. A record that is gone is not waited for.
func (c *Calls) retryStoreEnd(rec registry.Record, event registry.Event, change registry.Change) (registry.Record, error) {
	pause := time.NewTimer(endPause)
	defer pause.Stop()
	for tries := 1; ; tries++ {
		select {
		case <-pause.C:
		case <-c.ctx.Done():
			return registry.Record{}, c.ctx.Err()
		}
		final, err := c.storeEnd(rec, event, change)
		if err == nil || registry.IsCallNotFound(err) || tries == endTries {
			return final, err
		}
		pause.Reset(endPause)
	}
}

// ByKey returns the record of the call an idempotency key belongs to.
func (c *Calls) ByKey(ctx context.Context, tenant, key string) (registry.Record, error) {
	ctx, cancel := inTime(ctx)
	defer cancel()
	return c.store.CallByKey(ctx, tenant, key)
}

// Get returns the record of a call, also of one that ended without a record of its own, as long as the feed has it.
func (c *Calls) Get(ctx context.Context, tenant, callID string) (registry.Record, error) {
	rec, err := c.store.ReadCall(ctx, tenant, callID)
	if !registry.IsCallNotFound(err) {
		return rec, err
	}
	return c.feed.FindCall(ctx, tenant, callID)
}

// Wait returns the record as soon as it is final, or as it is when wait has passed.
func (c *Calls) Wait(ctx context.Context, tenant, callID string, wait time.Duration) (registry.Record, error) {
	return c.waitFor(ctx, tenant, callID, wait, false)
}

// Outcome is Wait for the caller of a call. If the store could not be told how the call ended, it says so all the same:
// the record will agree, as soon as there is one. Others hear that the store is away.
func (c *Calls) Outcome(ctx context.Context, tenant, callID string, wait time.Duration) (registry.Record, error) {
	return c.waitFor(ctx, tenant, callID, wait, true)
}

func (c *Calls) waitFor(ctx context.Context, tenant, callID string, wait time.Duration, caller bool) (registry.Record, error) {
	deadline := time.NewTimer(wait)
	defer deadline.Stop()
	for {
		woken, stop := c.watchers.watch(callID) // before looking, or the wake-up could fall in between
		rec, err := c.store.WatchCall(ctx, tenant, callID, c.pod)
		if known, ok := c.unstored.get(tenant, callID); ok && err != nil && (caller || known.State.Answered() || registry.IsCallNotFound(err)) {
			rec, err = known, nil
		}
		if _, ours := c.active.Load(callID); ours && err != nil && wait > 0 {
			// The store lost it, or is away, but it runs here.
			rec, err = registry.Record{CallID: callID, Tenant: tenant, State: registry.StateAccepted, Dispatched: registry.DispatchedUnknown}, nil
		}
		if err != nil || rec.State.Final() || wait <= 0 {
			stop()
			if registry.IsCallNotFound(err) {
				rec, err = c.Get(ctx, tenant, callID)
				if err == nil && caller && rec.State.Answered() { // the feed does not tell what the tool returned
					return registry.Record{}, registry.ErrNoCall
				}
			}
			return rec, err
		}
		pause := time.NewTimer(watchPause)
		select {
		case <-woken:
		case <-pause.C:
		case <-deadline.C:
			wait = 0 // look a last time
		case <-ctx.Done():
			wait = 0 // as above
		}
		if wait == 0 && endsWithin(ctx, lastLook) { // whoever asked is waiting for this now
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastLook)
			defer cancel()
			ctx = last
		}
		pause.Stop()
		stop()
	}
}

// endsWithin reports whether ctx ends within d, or has ended.
func endsWithin(ctx context.Context, d time.Duration) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && time.Until(deadline) < d
}

// Cancel gives a call up, wherever it runs, and returns its record. Cancelling what is final changes nothing.
func (c *Calls) Cancel(ctx context.Context, tenant, callID string) (registry.Record, error) {
	ended, stop := c.endings.wait(callID) // before its caller can end it
	defer stop()
	if w := c.router.cancelPending(tenant, callID); w != nil && w.record.Mode == registry.ModeSync && w.record.IdempotencyKey == "" {
		return c.awaitCancelled(ctx, w, ended)
	}
	rec, err := c.store.ReadCall(ctx, tenant, callID)
	if err != nil {
		if registry.IsCallNotFound(err) {
			return c.Get(ctx, tenant, callID)
		}
		return registry.Record{}, err
	}
	if rec.State.Final() {
		return rec, nil
	}
	moved, err := c.store.MoveCall(ctx, tenant, callID, registry.EventCancel, registry.Change{
		Err: registry.Errorf(registry.CodeCancelled, "The call was cancelled.").With(rec.Dispatched),
	})
	if err != nil {
		return registry.Record{}, err
	}
	if moved.Applied {
		notifyWatchers(c.bus, c.log, moved)
	}
	c.broadcastCancel(ctx, moved.Record)
	return moved.Record, nil
}

// awaitCancelled returns the record of a light call that was just cancelled here, once its caller has said how it
// ended: whether the device had seen it, or even answered, is not known before. Whoever looks the call up next finds
// the same.
func (c *Calls) awaitCancelled(ctx context.Context, w *pendingCall, ended <-chan ending) (registry.Record, error) {
	limit := time.NewTimer(cancelWait + watchPause)
	defer limit.Stop()
	select {
	case end := <-ended:
		return c.asStored(ctx, end), nil
	case <-limit.C:
	case <-ctx.Done():
		return registry.Record{}, ctx.Err()
	}
	select {
	case end := <-ended: // it came together with the limit
		return c.asStored(ctx, end), nil
	default:
	}
	rec := w.publicRecord()
	rec.Pod = c.pod
	rec.Apply(registry.EventCancel, registry.Change{Err: callCancelled("")}, time.Now().UTC())
	return rec, nil
}

// asStored returns the record of a call that has ended as others find it, once the store has it.
func (c *Calls) asStored(ctx context.Context, end ending) registry.Record {
	ctx, cancel := context.WithTimeout(ctx, watchPause)
	defer cancel()
	c.rec.waitFor(ctx, end.line)
	if rec, err := c.store.ReadCall(ctx, end.record.Tenant, end.record.CallID); err == nil && rec.State.Final() {
		return rec
	}
	return end.record
}

// broadcastCancel tells the pods that have to do with a cancelled call: the one that waits for it and the one whose
// socket it was written to.
func (c *Calls) broadcastCancel(ctx context.Context, rec registry.Record) {
	e := registry.Envelope{
		V: registry.EnvelopeVersion, Kind: registry.EnvelopeCancel, Tenant: rec.Tenant, Session: rec.SessionID, CallID: rec.CallID,
		Reason: "cancelled",
	}
	for _, pod := range slices.Compact([]string{rec.Pod, rec.Owner}) {
		switch pod {
		case "":
		case c.pod:
			c.router.handleCancel(e)
		default:
			if err := c.bus.Send(ctx, pod, e); err != nil {
				c.log.Debug("cancellation not delivered", "call", rec.CallID, "pod", pod, "error", err)
			}
		}
	}
}

// Events returns what a call's log holds behind the event with id after, EventPage at most, and the call's record
// without what its tool returned.
func (c *Calls) Events(ctx context.Context, tenant, callID, after string) ([]registry.CallEvent, registry.Record, error) {
	events, err := c.store.CallEvents(ctx, tenant, callID, after, registry.EventPage)
	if err != nil {
		return nil, registry.Record{}, err
	}
	rec, err := c.Get(ctx, tenant, callID)
	return events, rec.Summary(), err
}

// List returns finished calls, newest first, from what the feed still holds, and the cursor of the next page, empty
// when there is none. Results are not part of them.
func (c *Calls) List(ctx context.Context, q registry.CallQuery) ([]registry.Record, string, error) {
	var page []registry.Record
	next := ""
	err := c.search(ctx, q.Tenant, q.Before, searchLimit, func(id string, r registry.Record) bool {
		if q.Tool != "" && r.Tool != q.Tool || q.SessionID != "" && r.SessionID != q.SessionID ||
			q.DeviceID != "" && r.DeviceID != q.DeviceID || q.State != "" && r.State != q.State {
			return true
		}
		page = append(page, r)
		if len(page) == q.Limit {
			next = id
		}
		return len(page) < q.Limit
	})
	return page, next, err
}

// search shows the calls of the feed, newest first, to visit until that returns false.
func (c *Calls) search(ctx context.Context, tenant, before string, limit int, visit func(id string, r registry.Record) bool) error {
	for seen := 0; seen < limit; {
		page, err := c.feed.LastActivity(ctx, tenant, before, searchPage)
		if err != nil || len(page) == 0 {
			return err
		}
		for _, a := range page {
			if a.Type == registry.ActivityCall && a.Call != nil && !visit(a.ID, *a.Call) {
				return nil
			}
		}
		seen += len(page)
		before = page[len(page)-1].ID
	}
	return nil
}

// Note adds a line to the tenant's feed, soon. Time and pod are filled in.
func (c *Calls) Note(a registry.Activity) { c.rec.activity(a) }

// Feed returns what stands in the tenant's feed behind the entry with id after; if there is nothing it waits.
func (c *Calls) Feed(ctx context.Context, tenant, after string, limit int, wait time.Duration) ([]registry.Activity, error) {
	return c.feed.ReadActivity(ctx, tenant, after, limit, wait)
}

// FeedEnd returns the id of the newest entry of the tenant's feed, which Feed goes on behind; empty if there is none.
func (c *Calls) FeedEnd(ctx context.Context, tenant string) (string, error) {
	last, err := c.feed.LastActivity(ctx, tenant, "", 1)
	if err != nil || len(last) == 0 {
		return "", err
	}
	return last[0].ID, nil
}

// close waits for what runs, and abandons it when ctx ends: the devices go on, their answers are kept.
func (c *Calls) close(ctx context.Context) {
	done := make(chan struct{})
	go func() {
		c.running.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
		c.stop(registry.ErrAbandoned)
		<-done
	}
	c.stop(registry.ErrAbandoned)
}
