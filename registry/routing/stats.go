package routing

import (
	"context"
	"slices"
	"sync"

	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
)

// counters are Counts that grow. The zero value is ready to use, and safe for concurrent use.
type counters struct {
	mu sync.Mutex
	Counts
}

func (c *counters) add(count *int64, n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*count += n
}

// Counts count a pod's events since it was created.
type Counts struct {
	SessionsOpened, SessionsResumed  int64 // resumed sessions are also opened
	SessionsReplaced                 int64 // another connection took them over
	SessionsRestored, RestoresFailed int64 // the store had lost them
	DeviceBusy, PodBusy              int64 // calls beyond a limit
	ReceivedTwice                    int64 // calls that came twice and were delivered once
	Heartbeats, HeartbeatsMissed     int64
	PodsDied                         int64 // dead pods that this pod cleaned up after

	// Waits of calls for devices that were expected back: the device came, or the wait ended without it. Missed waits
	// include the refused ones.
	ReturnsCame, ReturnsMissed int64

	PlacesTaken                     int64 // whose previous owner was gone, with its state
	PlacesLost                      int64 // formerly of this pod: now another pod's, or erased
	PlaceCallsHere, PlaceCallsThere int64 // calls of this pod for a place: run here, or sent to its owner
	ErrandsRefused                  int64 // calls of other pods beyond a limit

	CallsQueued, QueuedDelivered int64 // into queues; begun from queues
	QueuedExpired, QueuedAgain   int64 // not taken in time; returned to their queues
}

// Stats is a snapshot of what a pod holds, and counters since it was created.
type Stats struct {
	Counts

	Sessions int64 // sessions whose sockets are here
	Pending  int64 // calls that wait here for their answers
	InFlight int64 // calls that devices on this pod have not answered yet
	Returns  int64 // calls that wait here for devices that are expected back
	Detached int64 // calls whose devices have disconnected and may reconnect
	Running  int64 // calls that outlive their requests

	QueueCalls  int64 // calls of the fleet that wait for sleeping devices
	QueueOldest int64 // seconds since the call that expires next was queued, of the tenant where it is oldest
	Tasks       int64 // short exchanges with the store that are running
	Places      int64 // owned by this pod
	Errands     int64 // calls of other pods that run here
	PodsLive    int64 // as of the last heartbeat

	RecorderLines, RecorderBytes int64 // waiting to be written
	RecorderUnwritten            int64 // records that could not be written and will be retried
	RecorderDropped              int64 // lines lost: the queue was full, or the store rejected them

	RoutesRemembered, RoutesRead int64 // sessions of other pods that calls named by id: from the cache, from the store
	TasksRefused                 int64 // beyond a limit
	ReturnsRefused               int64 // waits for devices beyond a limit
}

// Stats reads every session. Call it every few seconds at most.
func (p *Pod) Stats() Stats {
	tasks, late, returns := p.tasks.slots.Stats(), p.Hub.late.slots.Stats(), p.Router.returns.slots.Stats()
	s := Stats{
		Pending: int64(p.Router.pending.len()), Returns: returns.Held, ReturnsRefused: returns.AllRefused(),
		Detached: int64(p.Hub.detached.len()), Running: p.Calls.slots.Stats().Held,
		Tasks: tasks.Held + late.Held, TasksRefused: tasks.AllRefused() + late.AllRefused(),
		RoutesRemembered: p.Router.routes.remembered.Load(), RoutesRead: p.Router.routes.read.Load(),
		PodsLive: p.podsLive.Load(),
	}
	for _, l := range p.Hub.All() {
		s.Sessions++
		s.InFlight += int64(l.InFlight())
	}
	p.counts.mu.Lock()
	s.Counts = p.counts.Counts
	p.counts.mu.Unlock()
	s.QueueCalls, s.QueueOldest = p.Queue.waiting.Load(), p.Queue.oldest.Load()
	p.Places.mu.Lock()
	s.Places, s.Errands = int64(len(p.Places.held)), int64(len(p.Places.errands))
	p.Places.mu.Unlock()
	p.rec.mu.Lock()
	defer p.rec.mu.Unlock()
	s.RecorderLines, s.RecorderBytes = int64(p.rec.waiting), int64(p.rec.held)
	s.RecorderUnwritten, s.RecorderDropped = int64(len(p.rec.unwritten)), p.rec.dropped.Load()
	return s
}

// Pools returns the usage of the pod's pools, by name.
func (p *Pod) Pools() map[string]share.Stats {
	return map[string]share.Stats{
		"running_calls": p.Calls.slots.Stats(), "returning_calls": p.Router.returns.slots.Stats(),
		"errands": p.Places.admitted.Stats(), "deliveries": p.Queue.slots.Stats(), "tasks": p.tasks.slots.Stats(),
		"late_answers": p.Hub.late.slots.Stats(), "checked_answers": p.Hub.checks.slots.Stats(),
		"offered_bytes": p.Hub.offered.bytes.Stats(),
	}
}

// Turns aborts conversation turns, and other work with a key, on any pod. It is safe for concurrent use.
type Turns struct {
	core

	mu     sync.Mutex
	aborts []func(registry.Key) bool // replaced when one is added
}

// Serve adds a function that aborts a turn on this pod. Later functions are called first. abort reports whether there
// was a turn, and must not block.
func (t *Turns) Serve(abort func(registry.Key) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.aborts = slices.Insert(slices.Clone(t.aborts), 0, abort)
}

// Abort aborts the turn of a conversation. If the turn does not run here, Abort tells all pods, because the turn's pod
// is unknown. Abort does not wait for the end of the turn. It is best effort: a message can be lost.
func (t *Turns) Abort(ctx context.Context, key registry.Key) error {
	if t.abortHere(key) {
		return nil
	}
	e := registry.Envelope{Kind: registry.EnvelopeAbort, Tenant: key.Tenant, Session: key.Session}
	return t.trySendAll(ctx, e)
}

func (t *Turns) abortHere(key registry.Key) bool {
	t.mu.Lock()
	aborts := t.aborts
	t.mu.Unlock()
	return slices.ContainsFunc(aborts, func(abort func(registry.Key) bool) bool { return abort(key) })
}
