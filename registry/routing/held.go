package routing

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
)

// Hold stores the record of a durable call that waits for a person. No pod holds the call itself: Begin starts it, on
// any pod, or Refuse ends it. The results are those of Start.
func (c *Calls) Hold(ctx context.Context, rec registry.Record) (stored registry.Record, created bool, err error) {
	rec.Pod = c.pod
	rec.DigestArgs()
	ctx, cancel := inTime(ctx)
	defer cancel()
	return c.store.CreateCall(ctx, rec)
}

// Attend runs wait, on the calling goroutine, for a light call that waits for a person or a device. Meanwhile every pod
// can look the call up and cancel it, which ends wait's context. The call must be ended with Finish, as any other; it
// may run before. rec is written to before wait begins only.
func (c *Calls) Attend(ctx context.Context, rec *registry.Record, wait func(context.Context) error) error {
	p, leave := c.router.await(rec)
	defer leave()
	rec.Pod = c.pod
	line := c.rec.keepRunning(rec)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		for {
			select {
			case <-done:
				return
			case <-p.ready:
				if p.progress().cancelled {
					cancel(callCancelled(registry.DispatchedNo))
				}
			}
		}
	})
	defer func() {
		close(done)
		watching.Wait()
	}()
	stored, stop := context.WithTimeout(ctx, lastLook)
	c.rec.waitFor(stored, line) // so that whoever is asked finds the call
	stop()
	err := wait(ctx)
	if p.progress().cancelled && !errors.Is(err, registry.CodeCancelled) { // whoever cancelled it was told so
		return callCancelled(registry.DispatchedNo)
	}
	return err
}

// Begin starts a held call on this pod, where it counts for whoever asked for it. It reports false, and does not start
// run, if the call was begun before or has ended.
func (c *Calls) Begin(
	ctx context.Context, of share.Owner, callID string, timeout time.Duration,
	run func(context.Context, registry.Record) (registry.Result, error),
) (begun bool, err error) {
	place, err := c.enter(of)
	if err != nil {
		return false, err
	}
	ctx, cancel := inTime(ctx)
	defer cancel()
	rec, begun, err := c.store.BeginCall(ctx, of.Tenant, callID, c.pod, timeout)
	if err != nil || !begun {
		place.Release()
		return begun, err
	}
	c.active.Store(callID, nil)
	c.running.Go(func() {
		defer place.Release()
		defer c.active.Delete(callID)
		res, err := run(c.ctx, rec)
		if errors.Is(context.Cause(c.ctx), registry.ErrAbandoned) {
			return // the next reader of the record ends it
		}
		c.complete(rec, res, err)
	})
	return true, nil
}

// Refuse ends a held call that must not run, and reports whether it was still waiting.
func (c *Calls) Refuse(ctx context.Context, tenant, callID string, why *registry.Error) (bool, error) {
	ctx, cancel := inTime(ctx)
	defer cancel()
	moved, err := c.store.MoveCall(ctx, tenant, callID, registry.EventReject,
		registry.Change{Err: why.With(registry.DispatchedNo)})
	if err != nil || !moved.Applied {
		return false, err
	}
	rec := moved.Record
	notifyWatchers(c.bus, c.log, moved)
	c.watchers.notify(callID, struct{}{})
	if rec.IdempotencyKey != "" {
		if err := c.store.FreeKey(ctx, tenant, rec.IdempotencyKey, callID); err != nil {
			c.log.Warn("idempotency key not freed", "call", callID, "error", err)
		}
	}
	final := rec.Summary()
	c.rec.activity(registry.Activity{
		Tenant: tenant, Type: registry.ActivityCall, SessionID: rec.SessionID, DeviceID: rec.DeviceID, Call: &final,
	})
	return true, nil
}
