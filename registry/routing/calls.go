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

	// watchPause is how long a request that waits for a record relies on being woken before it reads the record anyway.
	watchPause = time.Second

	// lastLook bounds the last read of a record after its caller's time is up.
	lastLook = 100 * time.Millisecond

	// endPause is the pause before the end of a call that could not be stored is stored again, endTries how often.
	endPause = time.Second
	endTries = 60

	// searchLimit bounds how many lines of the feed are searched for calls.
	searchLimit = 10_000
	searchPage  = 500
)

// canceller is the part of a Router that Calls need. It cancels calls that wait on this pod or are in flight to its
// devices.
type canceller interface {
	cancelPending(tenant, callID string) *pendingCall
	handleCancel(e registry.Envelope)
}

// Calls reads, awaits and cancels calls, and runs those that must outlive their requests. It is safe for concurrent
// use.
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
	stop    context.CancelCauseFunc // abandons the running calls
	ctx     context.Context         // of the running calls
}

func newCalls(cfg PodConfig, r canceller, rec *recorder, n *counters) *Calls {
	ctx, stop := context.WithCancelCause(context.Background())
	return &Calls{
		pod: cfg.ID, store: cfg.calls, feed: cfg.Store, router: r, counts: n, bus: cfg.Bus, rec: rec,
		log: cfg.Log, unstored: newUnstoredOutcomes(), slots: make(chan struct{}, maxRunning), ctx: ctx, stop: stop,
	}
}

// Finish records how a call ended that has no record in the store. It returns at once. rec is not copied: the caller
// must not use it afterwards.
func (c *Calls) Finish(rec *registry.Record, res registry.Result, err error) {
	change := registry.Change{Err: errorOrNil(err)}
	event := rec.EndEvent(res, err)
	rec.Pod = c.pod
	var line int64
	if err == nil {
		// As in a summary: nobody stores the rest.
		text := registry.CutText(res.Error, registry.MaxErrorText)
		change.Result = &registry.Result{Success: res.Success, Error: text}
		if rec.Stored {
			*change.Result = res
		}
	}
	rec.Apply(event, change, time.Now().UTC())
	if rec.Stored || err != nil && rec.State != registry.StateRejected {
		line = c.rec.keep(*rec) // its answer may still come, or somebody has seen it running
		summary := rec.Summary()
		rec = &summary
	}
	c.endings.tell(rec.CallID, ending{record: *rec, line: line})
	c.rec.activity(registry.Activity{
		Tenant: rec.Tenant, Type: registry.ActivityCall, SessionID: rec.SessionID, DeviceID: rec.DeviceID, Call: rec,
	})
}

func errorOrNil(err error) *registry.Error {
	if err == nil {
		return nil
	}
	return registry.AsError(err)
}

// Start stores the record of a durable call and starts run, which carries the call out whether or not anybody waits. If
// the record's idempotency key belongs to another call, Start returns that call's record and created is false; run is
// not started.
func (c *Calls) Start(
	ctx context.Context, rec registry.Record, run func(context.Context) (registry.Result, error),
) (stored registry.Record, created bool, err error) {
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
			return // the next reader of the record ends it
		}
		c.complete(stored, res, err)
	})
	return stored, true, nil
}

// complete ends a durable call in the store. An answer of a device is there already: the pod that delivered the call
// stored it before it replied. If the store is away, the end is stored later; callers that wait on this pod learn it at
// once.
func (c *Calls) complete(rec registry.Record, res registry.Result, runErr error) {
	change := registry.Change{Err: errorOrNil(runErr), Here: rec.Source == registry.SourceBuiltin}
	if runErr == nil {
		change.Result, change.Session = &res, registry.Key{Tenant: rec.Tenant, Session: rec.SessionID}
	}
	event := rec.EndEvent(res, runErr)
	final, err := c.storeEnd(rec, event, change)
	if err != nil {
		c.log.Warn("end of a call not stored; it is tried again", "call", rec.CallID, "error", err)
		ended := rec
		ended.Timeline = slices.Clone(rec.Timeline)
		ended.Apply(event, change, time.Now().UTC())
		c.unstored.put(ended)
		c.watchers.notify(rec.CallID)
		change.Told = true
		if final, err = c.retryStoreEnd(rec, event, change); err != nil {
			c.log.Warn("end of a call not stored", "call", rec.CallID, "error", err)
			return
		}
	}
	c.watchers.notify(rec.CallID)
	final = final.Summary()
	c.rec.activity(registry.Activity{
		Tenant: rec.Tenant, Type: registry.ActivityCall, SessionID: final.SessionID, DeviceID: final.DeviceID,
		Call: &final,
	})
}

// storeEnd applies the end of a call to its record. If nothing ran, it frees the idempotency key.
func (c *Calls) storeEnd(
	rec registry.Record, event registry.Event, change registry.Change,
) (registry.Record, error) {
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

// rejectClaimed ends a call whose record says that it was delivered, although the device certainly has not seen it.
// That happens when the pod that holds the device claimed the call, got no confirmation of the claim, and refused the
// call. No other pod can have claimed it.
func (c *Calls) rejectClaimed(
	ctx context.Context, rec registry.Record, change registry.Change,
) (registry.Moved, error) {
	moved, err := c.store.MoveCall(ctx, rec.Tenant, rec.CallID, registry.EventReturn, registry.Change{})
	if err != nil {
		return moved, err
	}
	return c.store.MoveCall(ctx, rec.Tenant, rec.CallID, registry.EventReject, change)
}

// retryStoreEnd repeats storeEnd until it succeeds, at most endTries times. It gives up on a record that is gone.
func (c *Calls) retryStoreEnd(
	rec registry.Record, event registry.Event, change registry.Change,
) (registry.Record, error) {
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

// ByKey returns the record of the call that an idempotency key belongs to.
func (c *Calls) ByKey(ctx context.Context, tenant, key string) (registry.Record, error) {
	ctx, cancel := inTime(ctx)
	defer cancel()
	return c.store.CallByKey(ctx, tenant, key)
}

// Get returns the record of a call. A call without a record in the store is found as long as the feed has it.
func (c *Calls) Get(ctx context.Context, tenant, callID string) (registry.Record, error) {
	rec, err := c.store.ReadCall(ctx, tenant, callID)
	if !registry.IsCallNotFound(err) {
		return rec, err
	}
	return c.feed.FindCall(ctx, tenant, callID)
}

// Wait returns the record as soon as it is final, or as it is after wait has passed.
func (c *Calls) Wait(ctx context.Context, tenant, callID string, wait time.Duration) (registry.Record, error) {
	return c.waitFor(ctx, tenant, callID, wait, false)
}

// Outcome is Wait for the caller of a call. It also knows an end that could not be stored yet: the record will agree as
// soon as the store has it. For others the store is away until then.
func (c *Calls) Outcome(ctx context.Context, tenant, callID string, wait time.Duration) (registry.Record, error) {
	return c.waitFor(ctx, tenant, callID, wait, true)
}

func (c *Calls) waitFor(
	ctx context.Context, tenant, callID string, wait time.Duration, caller bool,
) (registry.Record, error) {
	deadline := time.NewTimer(wait)
	defer deadline.Stop()
	for {
		woken, stop := c.watchers.watch(callID) // before the read, or a notification in between would be missed
		rec, err := c.store.WatchCall(ctx, tenant, callID, c.pod)
		known, ok := c.unstored.get(tenant, callID)
		if ok && err != nil && (caller || known.State.Answered() || registry.IsCallNotFound(err)) {
			rec, err = known, nil
		}
		if _, ours := c.active.Load(callID); ours && err != nil && wait > 0 {
			// The store lost the record, or is away, but the call runs here.
			rec, err = registry.Record{
				CallID: callID, Tenant: tenant, State: registry.StateAccepted, Dispatched: registry.DispatchedUnknown,
			}, nil
		}
		if err != nil || rec.State.Final() || wait <= 0 {
			stop()
			if registry.IsCallNotFound(err) {
				rec, err = c.Get(ctx, tenant, callID)
				if err == nil && caller && rec.State.Answered() { // the feed does not have the tool's result
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
			wait = 0 // read a last time
		case <-ctx.Done():
			wait = 0 // read a last time
		}
		if wait == 0 && endsWithin(ctx, lastLook) { // the caller waits for this read
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

// Cancel cancels a call, wherever it runs, and returns its record. Cancelling a call that has ended changes nothing.
func (c *Calls) Cancel(ctx context.Context, tenant, callID string) (registry.Record, error) {
	ended, stop := c.endings.wait(callID) // before its caller can end it
	defer stop()
	w := c.router.cancelPending(tenant, callID)
	if w != nil && w.record.Mode == registry.ModeSync && w.record.IdempotencyKey == "" {
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

// awaitCancelled returns the record of a light call that was just cancelled here. It waits for the caller to say how
// the call ended, because only the caller knows whether the device had seen it, or even answered. A later Get returns
// the same record.
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
	case end := <-ended: // both were ready, and select chose the limit
		return c.asStored(ctx, end), nil
	default:
	}
	rec := w.publicRecord()
	rec.Pod = c.pod
	rec.Apply(registry.EventCancel, registry.Change{Err: callCancelled("")}, time.Now().UTC())
	return rec, nil
}

// asStored waits until the store has the record of a call that ended, and returns it as others find it.
func (c *Calls) asStored(ctx context.Context, end ending) registry.Record {
	ctx, cancel := context.WithTimeout(ctx, watchPause)
	defer cancel()
	c.rec.waitFor(ctx, end.line)
	if rec, err := c.store.ReadCall(ctx, end.record.Tenant, end.record.CallID); err == nil && rec.State.Final() {
		return rec
	}
	return end.record
}

// broadcastCancel tells the two pods involved in a cancelled call: the one that waits for it and the one whose socket
// it was written to.
func (c *Calls) broadcastCancel(ctx context.Context, rec registry.Record) {
	e := registry.Envelope{
		V: registry.EnvelopeVersion, Kind: registry.EnvelopeCancel, Tenant: rec.Tenant, Session: rec.SessionID,
		CallID: rec.CallID, Reason: "cancelled",
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

// Events returns the events of a call's log after the one with the id after, at most EventPage, and the call's record
// without the tool's result.
func (c *Calls) Events(
	ctx context.Context, tenant, callID, after string,
) ([]registry.CallEvent, registry.Record, error) {
	events, err := c.store.CallEvents(ctx, tenant, callID, after, registry.EventPage)
	if err != nil {
		return nil, registry.Record{}, err
	}
	rec, err := c.Get(ctx, tenant, callID)
	return events, rec.Summary(), err
}

// List returns the finished calls that the feed still has, newest first and without their results, and the cursor of
// the next page. The cursor is empty if there is no next page.
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

// search calls visit for the calls of the feed, newest first, until visit returns false or limit lines have been read.
func (c *Calls) search(
	ctx context.Context, tenant, before string, limit int, visit func(id string, r registry.Record) bool,
) error {
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

// Note adds a line to the tenant's feed, soon. It fills in the time and the pod.
func (c *Calls) Note(a registry.Activity) { c.rec.activity(a) }

// Feed returns the entries of the tenant's feed after the one with the id after. If there are none it waits for them.
func (c *Calls) Feed(
	ctx context.Context, tenant, after string, limit int, wait time.Duration,
) ([]registry.Activity, error) {
	return c.feed.ReadActivity(ctx, tenant, after, limit, wait)
}

// FeedEnd returns the id of the newest entry of the tenant's feed, for Feed to go on after. It is empty if the feed is.
func (c *Calls) FeedEnd(ctx context.Context, tenant string) (string, error) {
	last, err := c.feed.LastActivity(ctx, tenant, "", 1)
	if err != nil || len(last) == 0 {
		return "", err
	}
	return last[0].ID, nil
}

// close waits for the running calls, and abandons them when ctx ends: the devices go on, and their answers are stored.
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
