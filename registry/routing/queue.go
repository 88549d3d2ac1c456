package routing

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/farhand/farhand/internal/envconf"
	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
)

// QueueConfig limits the calls that wait for sleeping devices. Zero fields mean the defaults.
type QueueConfig struct {
	TTL         time.Duration `env:"QUEUE_TTL" envDefault:"24h" doc:"Longest time that a call may wait for its device."`
	Device      int           `env:"QUEUE_DEVICE" envDefault:"64" doc:"Calls that may wait for one device, half of them of one user, unless the device is theirs. Further ones get 429 busy."`
	DeviceBytes int64         `env:"QUEUE_DEVICE_BYTES" envDefault:"1MiB" doc:"Bytes of the requests of these calls, shared in the same way."`
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
	// offers reports whether the device has registered a tool here, which the store may not know yet.
	StartQueued(
		ctx context.Context, to registry.Session, offers func(tool string) bool, c registry.QueuedCall,
	) (begun bool, err error)

	// WakeDevice is called when a device has left while calls wait for it. device is its registry.Session.DeviceKey. It
	// must not block.
	WakeDevice(ctx context.Context, tenant, device string)
}

// Queue gives devices of this pod the calls that wait for them, one at a time for each device, in order. It is safe for
// concurrent use.
//
//	check ──▶ look: does a queue wait? ──▶ drain: head ──▶ StartQueued ──▶ ended ──▶ Dequeue ──▶ next head
//
// A call stays in its queue until it has ended, so that the next one cannot begin on any pod. What a dead pod left is
// found by the pod that has the device next, or by the sweep of expired calls.
type Queue struct {
	core
	bounds registry.QueueBounds
	hub    *Hub
	ended  *Calls
	slots  *share.Pool

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	signal chan struct{} // capacity 1

	waiting, oldest atomic.Int64 // as Stats has them; read from the store with every queueCount-th sweep

	mu        sync.Mutex
	starter   QueueStarter // nil until Serve
	unchecked map[*LocalSession]struct{}
	drains    map[string]*LocalSession // by tenant and DeviceKey: those that run, and what to check then; nil: nothing
	closed    bool
}

func newQueue(c core, cfg PodConfig, hub *Hub, calls *Calls) *Queue {
	ctx, cancel := context.WithCancel(context.Background())
	return &Queue{
		core: c, bounds: cfg.Queue.bounds(), hub: hub, ended: calls, ctx: ctx, cancel: cancel,
		slots:  share.New(share.Bounds{Pod: maxDeliveries, Waiting: maxDelayed}),
		signal: make(chan struct{}, 1), unchecked: make(map[*LocalSession]struct{}),
		drains: make(map[string]*LocalSession),
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

// Enqueue adds a call to the queue of a device and returns its position and when it expires. If the device has
// connected meanwhile, Enqueue notifies its pod.
func (q *Queue) Enqueue(
	ctx context.Context, c registry.QueuedCall, life time.Duration,
) (position int, expires time.Time, err error) {
	ctx, cancel := inTime(ctx)
	defer cancel()
	position, expires, err = q.store.Enqueue(ctx, c, life, q.bounds)
	if err != nil {
		return 0, time.Time{}, err
	}
	q.counts.add(&q.counts.CallsQueued, 1)
	q.notify(ctx, c.Tenant, c.Device)
	return position, expires, nil
}

// Waits reports whether calls wait for a device.
func (q *Queue) Waits(ctx context.Context, tenant, device string) (bool, error) {
	ctx, cancel := inTime(ctx)
	defer cancel()
	waiting, err := q.store.Waiting(ctx, tenant, device)
	return err == nil && waiting[0], err
}

// Position returns the position of a queued call, from 1 on; zero: it is not in its queue.
func (q *Queue) Position(ctx context.Context, rec *registry.Record) (int, error) {
	if rec.Queue == "" {
		return 0, nil
	}
	return q.store.QueuePosition(ctx, rec.Tenant, rec.Queue, rec.CallID)
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
