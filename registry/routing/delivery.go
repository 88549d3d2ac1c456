package routing

import (
	"context"
	"slices"
	"time"

	"github.com/farhand/farhand/internal/pause"
	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
)

// check makes the pod look for calls that wait for a session's device: to start them or, if the session has ended, to
// wake the device. It does not block.
func (q *Queue) check(l *LocalSession) {
	if l.deviceKey() == "" || len(l.Tools()) == 0 { // it may be about to register its tools
		return
	}
	q.mu.Lock()
	if !q.closed {
		q.unchecked[l] = struct{}{}
	}
	q.mu.Unlock()
	q.wake()
}

// lookUntil looks for the queues of these sessions until the pod closes.
func (q *Queue) lookUntil() {
	for {
		select {
		case <-q.signal:
		case <-q.ctx.Done():
			return
		}
		q.mu.Lock()
		byTenant := make(map[string][]*LocalSession)
		if q.starter != nil {
			for l := range q.unchecked {
				byTenant[l.key.Tenant] = append(byTenant[l.key.Tenant], l)
			}
			clear(q.unchecked)
		}
		q.mu.Unlock()
		for tenant, sessions := range byTenant {
			for some := range slices.Chunk(sessions, queueLook) {
				q.look(tenant, some)
			}
		}
	}
}

func (q *Queue) look(tenant string, sessions []*LocalSession) {
	keys := make([]string, len(sessions))
	for i, l := range sessions {
		keys[i] = l.deviceKey()
	}
	ctx, cancel := context.WithTimeout(q.ctx, storeTimeout)
	defer cancel()
	waiting, err := q.store.Waiting(ctx, tenant, keys...)
	if err != nil {
		q.log.Debug("queues not read; the pod retries", "error", err)
		_ = pause.For(q.ctx, queueRetry)
		for _, l := range sessions {
			q.check(l)
		}
		return
	}
	for i, l := range sessions {
		if waiting[i] {
			q.start(l, keys[i])
		}
	}
}

// start starts to give a device its calls, unless that is being done.
func (q *Queue) start(l *LocalSession, device string) {
	name := l.key.Tenant + " " + device
	q.mu.Lock()
	defer q.mu.Unlock()
	if _, runs := q.drains[name]; runs || q.closed {
		q.drains[name] = l
		return
	}
	q.drains[name] = nil
	q.wg.Go(func() {
		q.drain(l, device)
		q.mu.Lock()
		next := q.drains[name]
		delete(q.drains, name)
		q.mu.Unlock()
		if next != nil {
			q.check(next)
		}
	})
}

// here reports whether the session is still the device's, on this pod.
func (q *Queue) here(l *LocalSession, device string) bool {
	return q.ctx.Err() == nil && q.hub.Get(l.key) == l && l.deviceKey() == device
}

// drain gives a device the calls that wait for it until the queue is empty, or the device has left.
func (q *Queue) drain(l *LocalSession, device string) {
	// A user, and a key without a user, can have any number of devices that do not end their calls.
	by := share.Owner{Tenant: l.key.Tenant, Identity: l.owner().UserID}
	if key := l.conn.Owner().Identity; by.Identity == "" && registry.IsStoredCredential(key) {
		by.Identity = key
	}
	slot, err := q.slots.Acquire(q.ctx, by, 1)
	if err != nil {
		return // the next refresh looks again
	}
	defer slot.Release()
	for wait := time.Duration(0); q.here(l, device); {
		if wait > 0 && pause.For(q.ctx, wait) != nil {
			return
		}
		ctx, cancel := context.WithTimeout(q.ctx, storeTimeout)
		c, ok, err := q.store.QueueHead(ctx, l.key.Tenant, device)
		cancel()
		switch {
		case err != nil:
			q.log.Debug("queue not read; the pod retries", "session", l.key.Session, "error", err)
			wait = queueRetry
		case !ok:
			return
		default:
			before := wait
			if wait = q.deliver(l, c); wait == queuePaused {
				return
			}
			if wait == queueRetry {
				wait = min(max(wait, 2*before), queueSlow)
			}
		}
	}
	q.handOver(l.key.Tenant, device)
}

// deliver runs the first call of a queue. It returns how long to wait before the next look at the queue.
func (q *Queue) deliver(l *LocalSession, c registry.QueuedCall) time.Duration {
	ctx, cancel := context.WithTimeout(q.ctx, storeTimeout)
	defer cancel()
	offers := func(tool string) bool { _, ok := l.Tool(tool); return ok }
	begun, err := q.serves().StartQueued(ctx, l.Session(), offers, c)
	if err != nil {
		q.log.Debug("queued call not started; the pod retries", "call", c.CallID, "error", err)
		return queueRetry
	}
	if done := q.ended.runningHere(c.CallID); done != nil {
		select {
		case <-done:
		case <-q.ctx.Done(): // the call goes on, and its end stays in the queue
			return 0
		}
	}
	if begun {
		q.counts.add(&q.counts.QueuedDelivered, 1)
	}
	wait := q.settle(c, begun)
	if session := l.Session(); wait == queueRetry && begun && session.InBackground() {
		return queuePaused // its tool may need the foreground
	}
	return wait
}

// settle looks at the record of the first call of a queue, and removes the call if it has ended.
func (q *Queue) settle(c registry.QueuedCall, begun bool) time.Duration {
	ctx, cancel := context.WithTimeout(q.ctx, storeTimeout+queueWait)
	defer cancel()
	rec, err := q.ended.calls.ReadCall(ctx, c.Tenant, c.CallID)
	if err == nil && !rec.State.Final() && rec.State != registry.StateQueued {
		switch left, failed := q.leftBehind(ctx, &rec); {
		case failed != nil:
			return queueRetry
		case left: // its pod cannot have given it to a device: that takes a claim of the record
			again := registry.Change{Until: c.Expires}
			_, err = q.ended.calls.MoveCall(ctx, c.Tenant, c.CallID, registry.EventQueue, again)
			if err == nil {
				return 0
			}
		default:
			rec, err = q.ended.Wait(ctx, c.Tenant, c.CallID, queueWait)
		}
	}
	switch {
	case registry.IsCallNotFound(err), err == nil && rec.State.Final():
		if q.remove(ctx, c, &rec) != nil {
			return queueRetry
		}
		return 0
	case err != nil:
		return queueRetry
	case begun: // it returned to the queue
		q.counts.add(&q.counts.QueuedAgain, 1)
		return queueRetry
	case rec.State == registry.StateQueued: // it has expired, and waits for the sweep
		return queueRetry
	}
	return 0
}

// leftBehind reports whether a call was begun and not delivered, and nothing runs it: its pod is dead, or this one
// could not return it to the queue.
func (q *Queue) leftBehind(ctx context.Context, rec *registry.Record) (bool, error) {
	if rec.State != registry.StateAccepted {
		return false, nil
	}
	if rec.Pod == q.pod {
		return q.ended.runningHere(rec.CallID) == nil, nil
	}
	live, err := q.store.Live(ctx)
	return err == nil && !slices.Contains(live, rec.Pod), err
}

// remove removes a call that has ended from its queue. Only the first that removes it tells of an expired call.
func (q *Queue) remove(ctx context.Context, c registry.QueuedCall, rec *registry.Record) error {
	removed, err := q.store.Dequeue(ctx, c.Tenant, c.Device, c.CallID)
	if err == nil && removed && rec.State == registry.StateExpired {
		q.counts.add(&q.counts.QueuedExpired, 1)
		q.ended.watchers.notify(c.CallID, struct{}{})
		final := rec.Summary()
		q.noteEnd(&final)
	}
	return err
}

// leaveQueue removes a cancelled or refused call from its queue. If that fails, the next look at the queue does it.
func (c *Calls) leaveQueue(ctx context.Context, rec *registry.Record) {
	if rec.Queue == "" {
		return
	}
	if _, err := c.store.Dequeue(ctx, rec.Tenant, rec.Queue, rec.CallID); err != nil {
		c.log.Debug("ended call not removed from its queue yet", "call", rec.CallID, "error", err)
	}
}

// handOver notifies the pod that has a device now that calls wait for it. If none has it, the device is woken.
func (q *Queue) handOver(tenant, device string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(q.ctx), storeTimeout)
	defer cancel()
	if waits, err := q.Waits(ctx, tenant, device); err != nil || !waits {
		return // a refresh finds it
	}
	if !q.notify(ctx, tenant, device) {
		q.serves().WakeDevice(ctx, tenant, device)
	}
}

// notify notifies the pods of a device's sessions that calls wait for it, and reports whether there are any.
func (q *Queue) notify(ctx context.Context, tenant, device string) (any bool) {
	found, err := q.sessionsOf(ctx, tenant, device)
	if err != nil {
		q.log.Debug("device of a queued call not looked for; a refresh finds it", "error", err)
		return false
	}
	for i := range found {
		s := &found[i].Session
		any = true
		if l := q.hub.Get(s.Key); l != nil {
			q.check(l)
			continue
		}
		q.trySend(ctx, s.Pod, registry.Envelope{
			Kind: registry.EnvelopeQueue, Tenant: tenant, Session: s.Key.Session,
		})
	}
	return any
}

// sessionsOf returns the newest sessions with a Session.DeviceKey, at most maxQueueLook. The query has all that the key
// says, and goes on while pages are short: other users may have any number of sessions with the same device id.
func (q *Queue) sessionsOf(ctx context.Context, tenant, device string) (found []registry.Entry, err error) {
	query := registry.Query{Tenant: tenant, Target: registry.TargetOfKey(device), Limit: maxQueueLook, Newest: true}
	for len(found) < maxQueueLook {
		page, next, err := q.store.List(ctx, query)
		if err != nil {
			return nil, err
		}
		for i := range page {
			if page[i].Session.DeviceKey() == device {
				found = append(found, page[i])
			}
		}
		if next == nil {
			break
		}
		query.After = *next
	}
	return found, nil
}
