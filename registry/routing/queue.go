package routing

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/farhand/farhand/internal/envconf"
	"github.com/farhand/farhand/internal/pause"
	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
)

// QueueConfig limits the calls that wait for sleeping devices. Zero fields mean the defaults.
type QueueConfig struct {
	TTL         time.Duration `env:"QUEUE_TTL" envDefault:"24h" doc:"Longest time that a call may wait for its device."`
	Device      int           `env:"QUEUE_DEVICE" envDefault:"64" doc:"Calls that may wait for one device. Further ones get 429 busy."`
	DeviceBytes int64         `env:"QUEUE_DEVICE_BYTES" envDefault:"1MiB" doc:"Bytes of the requests of these calls."`
	User        int           `env:"QUEUE_USER" envDefault:"1000" doc:"Waiting calls of one identity (user, else credential)."`
	UserBytes   int64         `env:"QUEUE_USER_BYTES" envDefault:"16MiB" doc:"Bytes of the requests of these calls."`
	Tenant      int           `env:"QUEUE_TENANT" envDefault:"100000" doc:"Waiting calls of one tenant."`
	TenantBytes int64         `env:"QUEUE_TENANT_BYTES" envDefault:"256MiB" doc:"Bytes of the requests of these calls."`
}

// bounds returns the limits, with the defaults filled in.
func (c QueueConfig) bounds() registry.QueueBounds {
	envconf.Default(&c)
	return registry.QueueBounds{
		Device:   registry.QueueBound{Calls: int64(c.Device), Bytes: c.DeviceBytes},
		Identity: registry.QueueBound{Calls: int64(c.User), Bytes: c.UserBytes},
		Tenant:   registry.QueueBound{Calls: int64(c.Tenant), Bytes: c.TenantBytes},
	}
}

const (
	maxDeliveries = 1024    // devices of a pod that are given their queued calls at a time
	maxDelayed    = 1 << 20 // devices that wait for that: not more than a pod's sessions
	maxQueueLook  = 16      // sessions of one device id that are compared with a queue
	queueLook     = 256     // devices whose queues are looked for at a time
	queueSweep    = 2 * time.Second
	queueCount    = 5
	queueSweepAt  = 200               // calls that one sweep ends
	queueAgain    = 10 * time.Second  // until a sweep looks again at a call that has begun
	queueRetry    = time.Second       // before a delivery that failed is tried again; doubles with each failure
	queueSlow     = 8 * time.Second   // at most
	queueWait     = 5 * time.Second   // between two looks at a call that another pod runs
	queuePaused   = time.Duration(-1) // until the device comes to the foreground, or the next refresh
)

// QueueStarter starts the first call of a queue on this pod, and reports whether it did: the record of the call decides
// which pod starts it, and whether it may still run. It ends a call that must not run.
type QueueStarter interface {
	StartQueued(ctx context.Context, to registry.Session, c registry.QueuedCall) (begun bool, err error)

	// WakeDevice is called when a device has left while calls wait for it. It must not block.
	WakeDevice(ctx context.Context, tenant, deviceID string)
}

// Queue gives devices of this pod the calls that wait for them, one at a time for each device, in order. It is safe for
// concurrent use.
//
//	note ──▶ look: does a queue wait? ──▶ drain: head ──▶ StartQueued ──▶ ended ──▶ Dequeue ──▶ next head
//
// A call stays in its queue until it has ended, so that the next one cannot begin on any pod. What a dead pod left is
// found by the pod that has the device next, or by the sweep of expired calls.
type Queue struct {
	core
	bounds registry.QueueBounds
	hub    *Hub
	ended  *Calls
	places *share.Pool

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	signal chan struct{} // capacity 1

	waiting, oldest atomic.Int64 // as Stats has them; read from the store with every queueCount-th sweep

	mu      sync.Mutex
	starter QueueStarter // nil until Serve
	noted   map[*LocalSession]struct{}
	drains  map[string]*LocalSession // by tenant and DeviceKey: those that run, and what to note afterwards; nil: nothing
	closed  bool
}

func newQueue(c core, cfg PodConfig, hub *Hub, calls *Calls) *Queue {
	ctx, cancel := context.WithCancel(context.Background())
	return &Queue{
		core: c, bounds: cfg.Queue.bounds(), hub: hub, ended: calls, ctx: ctx, cancel: cancel,
		places: share.New(share.Bounds{Pod: maxDeliveries, Identity: maxDeliveries, Waiting: maxDelayed}),
		signal: make(chan struct{}, 1), noted: make(map[*LocalSession]struct{}), drains: make(map[string]*LocalSession),
	}
}

// Serve sets what starts queued calls. Until then they wait.
func (q *Queue) Serve(s QueueStarter) {
	q.mu.Lock()
	q.starter = s
	q.mu.Unlock()
	q.wake()
}

// serves returns what starts queued calls; nil: nothing yet.
func (q *Queue) serves() QueueStarter {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.starter
}

func (q *Queue) run() {
	q.wg.Go(q.lookUntil)
	q.wg.Go(q.sweepUntil)
}

// close ends all deliveries. Calls that run go on.
func (q *Queue) close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.cancel()
	q.wg.Wait()
}

func (q *Queue) wake() {
	select {
	case q.signal <- struct{}{}:
	default:
	}
}

// note makes the pod look for calls that wait for a session's device: to start them or, if the session has ended, to
// wake the device. It does not block.
func (q *Queue) note(l *LocalSession) {
	if l.deviceKey() == "" || len(l.Tools()) == 0 { // it may be about to register its tools
		return
	}
	q.mu.Lock()
	if !q.closed {
		q.noted[l] = struct{}{}
	}
	q.mu.Unlock()
	q.wake()
}

// lookUntil looks for the queues of noted sessions until the pod closes.
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
			for l := range q.noted {
				byTenant[l.key.Tenant] = append(byTenant[l.key.Tenant], l)
			}
			clear(q.noted)
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
			q.note(l)
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
			q.note(next)
		}
	})
}

// here reports whether the session is still the device's, on this pod.
func (q *Queue) here(l *LocalSession, device string) bool {
	return q.ctx.Err() == nil && q.hub.Get(l.key) == l && l.deviceKey() == device
}

// drain gives a device the calls that wait for it until the queue is empty, or the device has left.
func (q *Queue) drain(l *LocalSession, device string) {
	place, err := q.places.Acquire(q.ctx, share.Owner{Tenant: l.key.Tenant}, 1)
	if err != nil {
		return // the next refresh looks again
	}
	defer place.Release()
	deviceID := l.Session().DeviceID
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
	q.hand(l.key.Tenant, device, deviceID)
}

// deliver runs the first call of a queue. It returns how long to wait before the next look at the queue.
func (q *Queue) deliver(l *LocalSession, c registry.QueuedCall) time.Duration {
	ctx, cancel := context.WithTimeout(q.ctx, storeTimeout)
	defer cancel()
	begun, err := q.serves().StartQueued(ctx, l.Session(), c)
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
			_, err = q.ended.calls.MoveCall(ctx, c.Tenant, c.CallID, registry.EventQueue, registry.Change{Until: c.Expires})
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

// hand tells the pod that has a device now that calls wait for it. If none has it, the device is woken.
func (q *Queue) hand(tenant, device, deviceID string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(q.ctx), storeTimeout)
	defer cancel()
	if waits, err := q.Waits(ctx, tenant, device); err != nil || !waits {
		return // a refresh finds it
	}
	if !q.tell(ctx, tenant, device, deviceID) {
		q.serves().WakeDevice(ctx, tenant, deviceID)
	}
}

// tell tells the pods of a device's sessions that calls wait for it, and reports whether there are any.
func (q *Queue) tell(ctx context.Context, tenant, device, deviceID string) (any bool) {
	query := registry.Query{Tenant: tenant, Target: registry.Target{DeviceID: deviceID}, Limit: maxQueueLook, Newest: true}
	found, _, err := q.store.List(ctx, query)
	if err != nil {
		q.log.Debug("device of a queued call not looked for; a refresh finds it", "error", err)
		return false
	}
	for i := range found {
		s := &found[i].Session
		if s.DeviceKey() != device {
			continue
		}
		any = true
		if l := q.hub.Get(s.Key); l != nil {
			q.note(l)
			continue
		}
		q.trySend(ctx, s.Pod, registry.Envelope{
			Kind: registry.EnvelopeQueue, Tenant: tenant, Session: s.Key.Session,
		})
	}
	return any
}

// Enqueue adds a call to the queue of a device and returns its place and when it expires. If the device has connected
// meanwhile, Enqueue notifies its pod.
func (q *Queue) Enqueue(
	ctx context.Context, c registry.QueuedCall, deviceID string, life time.Duration,
) (place int, expires time.Time, err error) {
	ctx, cancel := inTime(ctx)
	defer cancel()
	place, expires, err = q.store.Enqueue(ctx, c, life, q.bounds)
	if err != nil {
		return 0, time.Time{}, err
	}
	q.counts.add(&q.counts.CallsQueued, 1)
	q.tell(ctx, c.Tenant, c.Device, deviceID)
	return place, expires, nil
}

// Waits reports whether calls wait for a device.
func (q *Queue) Waits(ctx context.Context, tenant, device string) (bool, error) {
	ctx, cancel := inTime(ctx)
	defer cancel()
	waiting, err := q.store.Waiting(ctx, tenant, device)
	return err == nil && waiting[0], err
}

// Place returns the place of a queued call, from 1 on; zero: it is not in its queue.
func (q *Queue) Place(ctx context.Context, rec *registry.Record) (int, error) {
	if rec.Queue == "" {
		return 0, nil
	}
	return q.store.QueuePlace(ctx, rec.Tenant, rec.Queue, rec.CallID)
}

// Known returns the known device that matches a target and offers a tool. It fails with CodeSessionNotFound if none is
// known, and with CodeToolNotFound if none of them offers the tool.
func (q *Queue) Known(
	ctx context.Context, tenant, tool string, target registry.Target,
) (registry.KnownDevice, error) {
	ctx, cancel := inTime(ctx)
	defer cancel()
	query := registry.KnownQuery{Tenant: tenant, Target: target, Limit: maxOneDevice}
	known, _, err := q.store.KnownDevices(ctx, query)
	if err == nil && len(known) == 0 { // a pod may be about to write a device that has just left
		if err = pause.For(ctx, 4*memoryPause); err == nil {
			known, _, err = q.store.KnownDevices(ctx, query)
		}
	}
	if err != nil {
		return registry.KnownDevice{}, err
	}
	if len(known) == 0 {
		return registry.KnownDevice{}, registry.ErrUnknownDevice
	}
	known = slices.DeleteFunc(known, func(d registry.KnownDevice) bool {
		_, offers := toolOf(d.Tools, tool)
		return !offers
	})
	if target.DeviceID != "" && len(known) > 1 { // a credential vouches for the device
		bound := slices.DeleteFunc(slices.Clone(known), func(d registry.KnownDevice) bool { return !d.Session.Bound })
		if len(bound) == 1 {
			known = bound
		}
	}
	switch len(known) {
	case 0:
		return registry.KnownDevice{}, registry.Errorf(registry.CodeToolNotFound,
			"The device sleeps, and did not offer the tool %q when it was last connected.", tool)
	case 1:
		return known[0], nil
	}
	entries := make([]registry.Entry, len(known))
	for i := range known {
		entries[i].Session = known[i].Session
	}
	several := registry.Errorf(registry.CodeAmbiguousTarget,
		"Several sleeping devices offer %q. Name one in target, or set the user's default device.", tool)
	several.Candidates = ambiguous(tool, entries).Candidates
	return registry.KnownDevice{}, several
}

// sweepUntil ends calls that have expired until the pod closes.
func (q *Queue) sweepUntil() {
	for n := 0; pause.For(q.ctx, queueSweep) == nil; n++ {
		if q.serves() == nil {
			continue
		}
		for q.sweep() && q.ctx.Err() == nil {
		}
		if n%queueCount == 0 {
			q.countWaiting()
		}
	}
}

// countWaiting reads what waits in the fleet, for metrics.
func (q *Queue) countWaiting() {
	ctx, cancel := context.WithTimeout(q.ctx, storeTimeout)
	defer cancel()
	all, err := q.store.QueueStats(ctx)
	if err != nil {
		return // the metrics keep the last numbers
	}
	calls, oldest := int64(0), time.Duration(0)
	for _, of := range all {
		calls, oldest = calls+of.Calls, max(oldest, of.Oldest)
	}
	q.waiting.Store(calls)
	q.oldest.Store(int64(oldest.Seconds()))
}

// sweep ends some calls that have expired. It reports whether there may be more.
func (q *Queue) sweep() bool {
	ctx, cancel := context.WithTimeout(q.ctx, storeTimeout)
	defer cancel()
	due, err := q.store.DueQueued(ctx, queueSweepAt, queueAgain)
	if err != nil {
		q.log.Debug("expired calls not read; the pod retries", "error", err)
		return false
	}
	for _, c := range due {
		rec, err := q.ended.calls.ReadCall(ctx, c.Tenant, c.CallID)
		if err == nil && rec.State == registry.StateQueued {
			var moved registry.Moved
			moved, err = q.ended.calls.MoveCall(ctx, c.Tenant, c.CallID, registry.EventExpire, registry.Change{})
			if rec = moved.Record; err == nil {
				q.ended.ended(ctx, moved)
			}
		}
		if registry.IsCallNotFound(err) || err == nil && rec.State.Final() {
			err = q.remove(ctx, c, &rec)
		}
		if err != nil {
			q.log.Debug("expired call not ended; the pod retries", "call", c.CallID, "error", err)
		}
	}
	return len(due) >= queueSweepAt
}

// Queued returns the calls that wait for a device, in order, at most limit.
func (q *Queue) Queued(ctx context.Context, tenant, device string, limit int) ([]registry.Record, error) {
	ids, err := q.store.QueueOf(ctx, tenant, device, limit)
	if err != nil {
		return nil, err
	}
	records := []registry.Record{}
	for _, id := range ids {
		rec, err := q.ended.calls.ReadCall(ctx, tenant, id)
		switch {
		case err == nil && !rec.State.Final():
			records = append(records, rec)
		case err != nil && !registry.IsCallNotFound(err):
			return nil, err
		}
	}
	return records, nil
}
