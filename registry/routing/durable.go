package routing

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
)

// endPause is the pause before the end of a call that could not be stored is stored again, endTries how often.
const (
	endPause = time.Second
	endTries = 60
)

// Start stores the record of a durable call and starts run, which carries the call out whether or not anybody waits,
// and returns the result as it may be read. If the record's idempotency key belongs to another call, Start returns that
// call's record and created is false; run is not started.
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

// enter counts a call that runs on this pod. The error is CodeBusy.
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

// complete ends a durable call in the store. An answer of a device is there already: the pod that delivered the call
// stored it before it replied. If the store is away, the end is stored later; callers that wait on this pod learn it at
// once.
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
