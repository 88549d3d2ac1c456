package routing

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/farhand/farhand/internal/cache"
	"github.com/farhand/farhand/internal/pause"
	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
)

const (
	maxRunning = 10_000                 // durable calls that one pod runs at once
	watchPause = time.Second            // after it, a request that waits for a record reads it without a wake-up
	lastLook   = 100 * time.Millisecond // of the last read or write of a record after the caller's time is up

	unstoredLimit = 512         // unstored ends of calls that are remembered at least
	endPause      = time.Second // before a failed store of an end is retried
	endTries      = 60
)

// Calls reads, awaits and cancels calls, and runs those that must outlive their requests. It is safe for concurrent
// use.
type Calls struct {
	core
	router *Router
	active sync.Map // the durable calls that run on this pod: id → chan struct{}, closed when the call has ended

	watchers listeners[struct{}] // requests that wait for a record to become final
	endings  listeners[ending]   // requests that wait for the caller of a light call to report its end

	// unstored has, by call id, the ends of durable calls that could not be stored because the store was unavailable or
	// had been emptied.
	unstored *cache.Cache[string, registry.Record]

	slots   *share.Pool // semaphore of running calls
	running sync.WaitGroup
	stop    context.CancelCauseFunc // abandons the running calls
	ctx     context.Context         // of the running calls
}

func newCalls(c core, r *Router) *Calls {
	ctx, stop := context.WithCancelCause(context.Background())
	return &Calls{
		core: c, router: r, unstored: cache.New[string, registry.Record](unstoredLimit, 0),
		slots: share.New(share.Bounds{Pod: maxRunning}), ctx: ctx, stop: stop,
	}
}

// AmendWith makes this pod amend results before it stores them, for the tools that amends selects. It amends results
// from every source, so that an unamended result cannot be read. A device's progress reports of such a call are not
// amended: their text is dropped.
func (c *Calls) AmendWith(amend registry.Amend, amends func(tool string) bool) {
	c.calls.amending.Store(&amending{amend, amends})
}

// Attend runs wait, on the calling goroutine, for a light call that waits for a person or a device. Meanwhile every pod
// can look the call up and cancel it, which ends wait's context. The caller must end the call with Finish, and may run
// it before. Attend writes to rec only before wait begins.
func (c *Calls) Attend(ctx context.Context, rec *registry.Record, wait func(context.Context) error) error {
	p := c.router.pending.add(&registry.Call{ID: rec.CallID, Record: rec}, "")
	defer c.router.pending.remove(p)
	rec.Pod = c.pod
	line := c.rec.keepRunning(rec)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer p.onCancel(func() { cancel(callCancelled(registry.DispatchedNo)) })()
	stored, stop := context.WithTimeout(ctx, lastLook)
	c.rec.waitFor(stored, line) // so that every pod finds the call
	stop()
	err := wait(ctx)
	if p.progress().cancelled && !errors.Is(err, registry.CodeCancelled) { // the canceller already got this outcome
		return callCancelled(registry.DispatchedNo)
	}
	return err
}

// Finish records the end of a call that has no record in the store. It does not block but for a call that is lost
// before its time is up: there it waits until the store has the record, at most lastLook. Once the caller knows that
// the call is lost, its late answer has a place, even if this pod is killed. rec is not copied: the caller must not use
// it afterwards.
func (c *Calls) Finish(rec *registry.Record, res registry.Result, err error) {
	change := registry.Change{Err: errorOrNil(err)}
	event, left := rec.EndEvent(res, err), rec.TimeLeft()
	rec.Pod = c.pod
	var line int64
	if err == nil {
		rec.Group = rec.Group.With(&res)
		// As in a summary: the rest is not stored.
		text := registry.TruncateText(res.Error, registry.MaxErrorText)
		change.Result = &registry.Result{Success: res.Success, Error: text}
		if rec.Stored {
			*change.Result = res
		}
		rec.Brief = !rec.Stored
	}
	rec.Apply(event, change, time.Now().UTC())
	mayAnswer := err != nil && rec.State != registry.StateRejected && change.Err.Dispatched != registry.DispatchedNo
	if rec.Stored || mayAnswer { // stored: a reader may have seen it running
		line = c.rec.keep(*rec)
		summary := rec.Summary()
		rec = &summary
	}
	c.endings.notify(rec.CallID, ending{record: *rec, line: line})
	c.noteEnd(rec)
	if mayAnswer && event == registry.EventLose {
		stored, stop := context.WithTimeout(context.Background(), min(lastLook, left))
		defer stop()
		c.rec.waitFor(stored, line)
	}
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
	return c.calls.CallByKey(ctx, tenant, key)
}

// Get returns the record of a call. A call without a stored record is found as long as the feed has it.
func (c *Calls) Get(ctx context.Context, tenant, callID string) (registry.Record, error) {
	rec, err := c.calls.ReadCall(ctx, tenant, callID)
	if !registry.IsCallNotFound(err) {
		return rec, err
	}
	rec, err = c.store.FindCall(ctx, tenant, callID)
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
		select {
		case <-woken:
		case <-time.After(min(watchPause, time.Until(deadline))):
		case <-ctx.Done():
		}
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
	rec, err := c.calls.WatchCall(ctx, tenant, callID, c.pod)
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

// Start stores the record of a durable call and starts run, which runs the call even if the caller disconnects, and
// returns the amended result. If the record's idempotency key belongs to another call, Start returns that call's record
// with created false, and does not start run.
func (c *Calls) Start(
	ctx context.Context, rec registry.Record, run func(context.Context) (registry.Result, error),
) (stored registry.Record, created bool, err error) {
	slot, err := c.enter(share.Owner{Tenant: rec.Tenant, Identity: cmp.Or(rec.UserID, rec.Caller)})
	if err != nil {
		return registry.Record{}, false, err
	}
	stored, created, err = c.Hold(ctx, rec)
	if err != nil || !created {
		slot.Release()
		return stored, created, err
	}
	c.launch(slot, stored, func(ctx context.Context, _ registry.Record) (registry.Result, error) { return run(ctx) })
	return stored, true, nil
}

// Hold stores the record of a durable call that waits for a person. No pod holds the call itself: Begin starts it, on
// any pod, or Refuse ends it. The results are those of Start.
func (c *Calls) Hold(ctx context.Context, rec registry.Record) (stored registry.Record, created bool, err error) {
	rec.Pod = c.pod
	rec.DigestArgs()
	ctx, cancel := inTime(ctx)
	defer cancel()
	stored, created, err = c.calls.CreateCall(ctx, rec)
	if created && stored.State == registry.StateQueued {
		c.noteQueued(&stored)
	}
	return stored, created, err
}

// Begin starts a waiting call on this pod, and charges its slot to the requester. It returns false, and does not start
// run, if the call was begun before or has ended.
func (c *Calls) Begin(
	ctx context.Context, of share.Owner, callID string, timeout time.Duration,
	run func(context.Context, registry.Record) (registry.Result, error),
) (begun bool, err error) {
	slot, err := c.enter(of)
	if err != nil {
		return false, err
	}
	ctx, cancel := inTime(ctx)
	defer cancel()
	rec, begun, err := c.calls.BeginCall(ctx, of.Tenant, callID, c.pod, timeout)
	if err != nil || !begun {
		slot.Release()
		return begun, err
	}
	c.launch(slot, rec, run)
	return true, nil
}

// launch runs a durable call whose record is stored, in a goroutine that has a slot.
func (c *Calls) launch(
	slot *share.Grant, rec registry.Record, run func(context.Context, registry.Record) (registry.Result, error),
) {
	done := make(chan struct{})
	c.active.Store(rec.CallID, done)
	c.running.Go(func() {
		defer slot.Release()
		defer close(done)
		defer c.active.Delete(rec.CallID)
		res, err := run(c.ctx, rec)
		if again := (*registry.QueuedAgain)(nil); errors.As(err, &again) {
			c.holdAgain(rec, again.Until)
			return
		}
		if !errors.Is(context.Cause(c.ctx), registry.ErrAbandoned) { // else the next reader of the record ends it
			c.complete(rec, res, err)
		}
	})
}

// holdAgain returns a call that has not reached its device to the queue. If the store is unavailable, the pod that next
// looks at the queue does it.
func (c *Calls) holdAgain(rec registry.Record, until time.Time) {
	ctx, cancel := context.WithTimeout(context.Background(), taskTimeout)
	defer cancel()
	back := registry.Change{Until: until}
	moved, err := c.calls.MoveCall(ctx, rec.Tenant, rec.CallID, registry.EventQueue, back)
	switch {
	case err == nil && moved.Applied:
		c.noteQueued(&moved.Record)
	case err != nil || !moved.Record.State.Final():
		c.log.Debug("call not returned to its queue; the pod retries", "call", rec.CallID, "error", err)
	}
}

// runningHere returns a channel that is closed when the call has ended here; nil: it does not run here.
func (c *Calls) runningHere(callID string) <-chan struct{} {
	if done, ok := c.active.Load(callID); ok {
		return done.(chan struct{})
	}
	return nil
}

// Refuse ends a waiting call that must not run, and reports whether it still waited.
func (c *Calls) Refuse(ctx context.Context, tenant, callID string, why *registry.Error) (bool, error) {
	ctx, cancel := inTime(ctx)
	defer cancel()
	moved, err := c.calls.MoveCall(ctx, tenant, callID, registry.EventReject,
		registry.Change{Err: why.With(registry.DispatchedNo)})
	if err != nil || !moved.Applied {
		return false, err
	}
	c.ended(ctx, moved)
	c.leaveQueue(ctx, &moved.Record)
	c.watchers.notify(callID, struct{}{})
	final := moved.Record.Summary()
	c.noteEnd(&final)
	return true, nil
}

// enter takes a slot for a call on this pod. It fails with CodeBusy if none is free.
func (c *Calls) enter(by share.Owner) (*share.Grant, error) {
	slot, err := c.slots.Try(by, 1)
	if err != nil {
		c.counts.add(&c.counts.PodBusy, 1)
		return nil, registry.Errorf(registry.CodeBusy,
			"This pod, or this tenant on it, has reached its limit of running calls. Retry after a moment.").
			RetryIn(time.Second).With(registry.DispatchedNo)
	}
	return slot, nil
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
		c.log.Warn("end of a call not stored; retrying", "call", rec.CallID, "error", err)
		ended := rec
		ended.Timeline = slices.Clone(rec.Timeline)
		ended.Apply(event, change, time.Now().UTC())
		c.unstored.Put(ended.CallID, ended, 1)
		c.watchers.notify(rec.CallID, struct{}{})
		change.Reported = true
		if final, err = c.retryStoreEnd(rec, event, change); err != nil {
			c.log.Warn("end of a call not stored", "call", rec.CallID, "error", err)
			return
		}
	}
	c.watchers.notify(rec.CallID, struct{}{})
	final = final.Summary()
	c.noteEnd(&final)
}

// storeEnd applies the end of a call to its record. If nothing ran, it frees the idempotency key.
func (c *Calls) storeEnd(
	rec registry.Record, event registry.Event, change registry.Change,
) (registry.Record, error) {
	ctx, cancel := context.WithTimeout(context.Background(), taskTimeout)
	defer cancel()
	moved, err := c.calls.MoveCall(ctx, rec.Tenant, rec.CallID, event, change)
	if err == nil && !moved.Applied && event == registry.EventReject && !moved.Record.State.Final() &&
		moved.Record.Pod == c.pod {
		// The device certainly has not received the call, but its pod claimed it, got no confirmation of the claim, and
		// rejected it. No other pod can have claimed it.
		moved, err = c.calls.MoveCall(ctx, rec.Tenant, rec.CallID, registry.EventReturn, registry.Change{})
		if err == nil {
			moved, err = c.calls.MoveCall(ctx, rec.Tenant, rec.CallID, event, change)
		}
	}
	if err != nil {
		return registry.Record{}, err
	}
	c.ended(ctx, moved)
	return moved.Record, nil
}

// ended notifies the watchers of a call that was just ended. If nothing ran, it frees the idempotency key.
func (c *Calls) ended(ctx context.Context, moved registry.Moved) {
	if moved.Applied {
		c.notifyWatchers(moved)
	}
	rec := &moved.Record
	if rec.Dispatched == registry.DispatchedNo && rec.IdempotencyKey != "" {
		if err := c.calls.FreeKey(ctx, rec.Tenant, rec.IdempotencyKey, rec.CallID); err != nil {
			c.log.Warn("idempotency key not freed", "call", rec.CallID, "error", err)
		}
	}
}

// retryStoreEnd retries storeEnd until it succeeds, at most endTries times. It gives up if the record is gone.
func (c *Calls) retryStoreEnd(
	rec registry.Record, event registry.Event, change registry.Change,
) (registry.Record, error) {
	for tries := 1; ; tries++ {
		if err := pause.For(c.ctx, endPause); err != nil {
			return registry.Record{}, err
		}
		final, err := c.storeEnd(rec, event, change)
		if err == nil || registry.IsCallNotFound(err) || tries == endTries {
			return final, err
		}
	}
}

// close waits for the running calls. When ctx ends it abandons them: the devices continue, and their answers are
// stored.
func (c *Calls) close(ctx context.Context) {
	done := allEnded(&c.running)
	select {
	case <-done:
	case <-ctx.Done():
		c.stop(registry.ErrAbandoned)
		<-done
	}
	c.stop(registry.ErrAbandoned)
}

// allEnded returns a channel that is closed when all goroutines of a group have ended.
func allEnded(group *sync.WaitGroup) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		group.Wait()
	}()
	return done
}
