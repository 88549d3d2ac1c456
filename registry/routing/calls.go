package routing

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/farhand/farhand/internal/cache"
	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
)

const (
	// maxRunning limits the durable calls that one pod runs at once.
	maxRunning = 10_000

	// watchPause is how long a request that waits for a record relies on a wake-up before it reads the record anyway.
	watchPause = time.Second

	// lastLook limits the last read of a record after the caller's time is up.
	lastLook = 100 * time.Millisecond

	// unstoredLimit is how many unstored call ends are remembered at least.
	unstoredLimit = 512
)

// recordStore is the store of the records of Calls.
type recordStore interface {
	registry.CallStore

	// amendWith makes the store amend results before it stores them.
	amendWith(amend registry.Amend, amends func(tool string) bool)
}

// callRecorder is the part of a recorder that Calls needs.
type callRecorder interface {
	activity(a registry.Activity)
	keep(rec registry.Record) (line int64)
	keepRunning(rec *registry.Record) (line int64)
	waitFor(ctx context.Context, line int64)
}

// Calls reads, awaits and cancels calls, and runs those that must outlive their requests. It is safe for concurrent
// use.
type Calls struct {
	pod    string
	store  recordStore
	feed   registry.ActivityStore
	router canceller
	counts *counters
	bus    registry.Bus
	rec    callRecorder
	log    *slog.Logger
	active sync.Map // ids of the durable calls that run on this pod

	watchers listeners[struct{}] // requests that wait for a record to become final
	endings  listeners[ending]   // requests that wait for the caller of a light call to report its end

	// unstored has, by call id, the ends of durable calls that could not be stored because the store was unavailable or
	// had been emptied.
	unstored *cache.Cache[string, registry.Record]

	places  *share.Pool // semaphore of running calls
	running sync.WaitGroup
	stop    context.CancelCauseFunc // abandons the running calls
	ctx     context.Context         // of the running calls
}

func newCalls(cfg PodConfig, store recordStore, r canceller, rec callRecorder, n *counters) *Calls {
	ctx, stop := context.WithCancelCause(context.Background())
	return &Calls{
		pod: cfg.ID, store: store, feed: cfg.Store, router: r, counts: n, bus: cfg.Bus, rec: rec, log: cfg.Log,
		unstored: cache.New[string, registry.Record](unstoredLimit, 0),
		places:   share.New(share.Bounds{Pod: maxRunning}), ctx: ctx, stop: stop,
	}
}

// Finish records the end of a call that has no record in the store. It does not block. rec is not copied: the caller
// must not use it afterwards.
func (c *Calls) Finish(rec *registry.Record, res registry.Result, err error) {
	change := registry.Change{Err: errorOrNil(err)}
	event := rec.EndEvent(res, err)
	rec.Pod = c.pod
	var line int64
	if err == nil {
		// As in a summary: the rest is not stored.
		text := registry.TruncateText(res.Error, registry.MaxErrorText)
		change.Result = &registry.Result{Success: res.Success, Error: text}
		if rec.Stored {
			*change.Result = res
		}
		rec.Brief = !rec.Stored
	}
	rec.Apply(event, change, time.Now().UTC())
	if rec.Stored || err != nil && rec.State != registry.StateRejected {
		line = c.rec.keep(*rec) // its answer may still come, or a reader has seen it running
		summary := rec.Summary()
		rec = &summary
	}
	c.endings.notify(rec.CallID, ending{record: *rec, line: line})
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

// ByKey returns the record of the call that an idempotency key belongs to.
func (c *Calls) ByKey(ctx context.Context, tenant, key string) (registry.Record, error) {
	ctx, cancel := inTime(ctx)
	defer cancel()
	return c.store.CallByKey(ctx, tenant, key)
}

// Get returns the record of a call. A call without a stored record is found as long as the feed has it.
func (c *Calls) Get(ctx context.Context, tenant, callID string) (registry.Record, error) {
	rec, err := c.store.ReadCall(ctx, tenant, callID)
	if !registry.IsCallNotFound(err) {
		return rec, err
	}
	rec, err = c.feed.FindCall(ctx, tenant, callID)
	return rec.Summary(), err
}

// Wait returns the record once it is final, or its current state after wait.
func (c *Calls) Wait(ctx context.Context, tenant, callID string, wait time.Duration) (registry.Record, error) {
	return c.waitFor(ctx, tenant, callID, wait, false)
}

// WaitOutcome is Wait for the caller of a call. It also returns an end that could not be stored yet; the record will
// agree once the store has it. Until then, other readers get the store's error.
func (c *Calls) WaitOutcome(ctx context.Context, tenant, callID string, wait time.Duration) (registry.Record, error) {
	return c.waitFor(ctx, tenant, callID, wait, true)
}

// waitFor reads a record until it is final, or the time is over. caller means the caller of the call.
//
//	look ◀──── a notification, or watchPause ────┐
//	 ├── final, or an error ──▶ return           │
//	 └── not final ──▶ pause ────────────────────┤
//	                                             └── time is over ──▶ last look ──▶ return
func (c *Calls) waitFor(
	ctx context.Context, tenant, callID string, wait time.Duration, caller bool,
) (registry.Record, error) {
	if wait <= 0 {
		return c.look(ctx, tenant, callID, caller, false)
	}
	for deadline := time.Now().Add(wait); ; {
		woken, stop := c.watchers.listen(callID, 1) // before the look, or a notification in between would be missed
		rec, err := c.look(ctx, tenant, callID, caller, true)
		if err != nil || rec.State.Final() {
			stop()
			return rec, err
		}
		pause := time.NewTimer(min(watchPause, time.Until(deadline)))
		select {
		case <-woken:
		case <-pause.C:
		case <-ctx.Done():
		}
		pause.Stop()
		stop()
		if ctx.Err() != nil || !time.Now().Before(deadline) {
			break
		}
	}
	if endsWithin(ctx, lastLook) { // the caller waits for this look
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastLook)
		defer cancel()
		ctx = last
	}
	return c.look(ctx, tenant, callID, caller, false)
}

// look reads a record, or finds in another place what is known of the call. goesOn means that its reader will look
// again.
func (c *Calls) look(ctx context.Context, tenant, callID string, caller, goesOn bool) (registry.Record, error) {
	rec, err := c.store.WatchCall(ctx, tenant, callID, c.pod)
	if err == nil {
		return rec, nil
	}
	lost := registry.IsCallNotFound(err)
	known, ok := c.unstored.Get(callID)
	if ok && known.Tenant == tenant && (caller || known.State.Answered() || lost) {
		return known, nil
	}
	if _, ours := c.active.Load(callID); ours && goesOn {
		// The store lost the record, or is unavailable, but the call runs here.
		return registry.Record{
			CallID: callID, Tenant: tenant, State: registry.StateAccepted, Dispatched: registry.DispatchedUnknown,
		}, nil
	}
	if !lost {
		return rec, err
	}
	rec, err = c.Get(ctx, tenant, callID)
	if err == nil && caller && rec.State.Answered() { // the feed does not have the tool's result
		return registry.Record{}, registry.ErrNoCall
	}
	return rec, err
}

// isOver reports whether ctx has ended, or is about to. A store connection gives up at the deadline of ctx, and the
// context may notice a moment later.
func isOver(ctx context.Context) bool { return endsWithin(ctx, time.Nanosecond) }

// endsWithin reports whether ctx ends within d, or has ended.
func endsWithin(ctx context.Context, d time.Duration) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && time.Until(deadline) < d
}

// endPause is the pause before a failed store of a call's end is retried. endTries is the limit of retries.
const (
	endPause = time.Second
	endTries = 60
)

// Start stores the record of a durable call and starts run, which runs the call even if the caller disconnects, and
// returns the amended result. If the record's idempotency key belongs to another call, Start returns that call's record
// with created false, and does not start run.
func (c *Calls) Start(
	ctx context.Context, rec registry.Record, run func(context.Context) (registry.Result, error),
) (stored registry.Record, created bool, err error) {
	place, err := c.enter(share.Owner{Tenant: rec.Tenant, Identity: cmp.Or(rec.UserID, rec.Caller)})
	if err != nil {
		return registry.Record{}, false, err
	}
	rec.Pod = c.pod
	rec.DigestArgs()
	ctx, cancel := inTime(ctx)
	defer cancel()
	stored, created, err = c.store.CreateCall(ctx, rec)
	if err != nil || !created {
		place.Release()
		return stored, created, err
	}
	c.active.Store(stored.CallID, nil)
	c.running.Go(func() {
		defer place.Release()
		defer c.active.Delete(stored.CallID)
		res, err := run(c.ctx)
		if errors.Is(context.Cause(c.ctx), registry.ErrAbandoned) {
			return // the next reader of the record ends it
		}
		c.complete(stored, res, err)
	})
	return stored, true, nil
}

// enter takes a slot for a call on this pod. It fails with CodeBusy if none is free.
func (c *Calls) enter(by share.Owner) (*share.Grant, error) {
	place, err := c.places.Try(by, 1)
	if err != nil {
		c.counts.podBusy.Add(1)
		e := registry.Errorf(registry.CodeBusy,
			"This pod, or its share for this tenant, runs as many calls as it can. Retry after a moment.")
		e.RetryAfter = time.Second
		return nil, e.With(registry.DispatchedNo)
	}
	return place, nil
}

// complete ends a durable call in the store. A device's answer is already there: the pod that delivered the call stored
// it before it replied. If the store is unavailable, the end is stored later; callers that wait on this pod get it
// immediately.
func (c *Calls) complete(rec registry.Record, res registry.Result, runErr error) {
	change := registry.Change{Err: errorOrNil(runErr), Here: rec.Local()}
	if runErr == nil {
		change.Result, change.Amended = &res, true
		change.Session = registry.Key{Tenant: rec.Tenant, Session: rec.SessionID}
	}
	event := rec.EndEvent(res, runErr)
	final, err := c.storeEnd(rec, event, change)
	if err != nil {
		c.log.Warn("end of a call not stored; it is tried again", "call", rec.CallID, "error", err)
		ended := rec
		ended.Timeline = slices.Clone(rec.Timeline)
		ended.Apply(event, change, time.Now().UTC())
		c.unstored.Put(ended.CallID, ended, 1)
		c.watchers.notify(rec.CallID, struct{}{})
		change.Told = true
		if final, err = c.retryStoreEnd(rec, event, change); err != nil {
			c.log.Warn("end of a call not stored", "call", rec.CallID, "error", err)
			return
		}
	}
	c.watchers.notify(rec.CallID, struct{}{})
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

// rejectClaimed ends a call whose record says that it was delivered, although the device certainly has not received it.
// That happens if the device's pod claimed the call, got no confirmation of the claim, and rejected the call. No other
// pod can have claimed it.
func (c *Calls) rejectClaimed(
	ctx context.Context, rec registry.Record, change registry.Change,
) (registry.Moved, error) {
	moved, err := c.store.MoveCall(ctx, rec.Tenant, rec.CallID, registry.EventReturn, registry.Change{})
	if err != nil {
		return moved, err
	}
	return c.store.MoveCall(ctx, rec.Tenant, rec.CallID, registry.EventReject, change)
}

// retryStoreEnd retries storeEnd until it succeeds, at most endTries times. It gives up if the record is gone.
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

// close waits for the running calls. When ctx ends it abandons them: the devices continue, and their answers are
// stored.
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
