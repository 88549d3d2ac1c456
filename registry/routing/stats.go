package routing

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
)

// counters count a pod's events since it was created. The zero value is ready to use, and safe for concurrent use.
type counters struct {
	opened, resumed, replaced    atomic.Int64 // sessions
	restored, restoreFailed      atomic.Int64 // sessions
	deviceBusy, podBusy          atomic.Int64 // calls rejected
	receivedTwice                atomic.Int64 // calls
	heartbeats, heartbeatsMissed atomic.Int64
	podsLive, podsDied           atomic.Int64

	returnsCame, returnsMissed      atomic.Int64 // waits of calls for devices
	placeCallsHere, placeCallsThere atomic.Int64
	errandsRefused                  atomic.Int64
	placesTaken, placesLost         atomic.Int64
}

// Stats is a snapshot of what a pod holds, and counters since it was created.
type Stats struct {
	Sessions int64 // sessions whose sockets are here
	Pending  int64 // calls that wait here for their answers
	InFlight int64 // calls that devices on this pod have not answered yet
	Returns  int64 // calls that wait here for devices that are expected back
	Detached int64 // calls whose devices have disconnected and may reconnect
	Running  int64 // calls that outlive their requests
	Tasks    int64 // short exchanges with the store that are running

	RecorderLines, RecorderBytes int64 // waiting to be written
	RecorderUnwritten            int64 // records that could not be written and will be retried
	RecorderDropped              int64 // lines lost: the queue was full, or the store rejected them

	RoutesRemembered, RoutesRead int64 // sessions of other pods that calls named by id: from the cache, from the store

	SessionsOpened, SessionsResumed   int64 // resumed sessions are also opened
	SessionsReplaced                  int64 // another connection took them over
	SessionsRestored, RestoresFailed  int64 // the store had lost them
	DeviceBusy, PodBusy, TasksRefused int64 // calls and tasks beyond a limit
	ReceivedTwice                     int64 // calls that came twice and were delivered once
	Heartbeats, HeartbeatsMissed      int64
	PodsLive                          int64 // as of the last heartbeat
	PodsDied                          int64 // dead pods that this pod cleaned up after

	// Waits of calls for devices that were expected back: the device came, or the wait ended without it. Missed waits
	// include the refused ones, which did not wait because of a limit.
	ReturnsCame, ReturnsMissed, ReturnsRefused int64

	Places                          int64 // owned by this pod
	PlacesTaken                     int64 // whose previous owner was gone, with its state
	PlacesLost                      int64 // formerly of this pod: now another pod's, or erased
	PlaceCallsHere, PlaceCallsThere int64 // calls of this pod for a place: run here, or sent to its owner
	Errands                         int64 // calls of other pods that run here
	ErrandsRefused                  int64 // calls of other pods beyond a limit
}

// Stats reads every session. Call it every few seconds at most.
func (p *Pod) Stats() Stats {
	n := &p.Hub.counts
	tasks, late := p.tasks.places.Stats(), p.Hub.late.places.Stats()
	s := Stats{
		Pending: int64(p.Router.pending.len()), Returns: int64(p.Router.returns.len()),
		Detached: int64(p.Hub.detached.len()), Running: p.Calls.places.Stats().Held,
		Tasks:            tasks.Held + late.Held,
		TasksRefused:     tasks.AllRefused() + late.AllRefused(),
		RoutesRemembered: p.Router.routes.remembered.Load(), RoutesRead: p.Router.routes.read.Load(),
		SessionsOpened: n.opened.Load(), SessionsResumed: n.resumed.Load(), SessionsReplaced: n.replaced.Load(),
		SessionsRestored: n.restored.Load(), RestoresFailed: n.restoreFailed.Load(),
		DeviceBusy: n.deviceBusy.Load(), PodBusy: n.podBusy.Load(), ReceivedTwice: n.receivedTwice.Load(),
		Heartbeats: n.heartbeats.Load(), HeartbeatsMissed: n.heartbeatsMissed.Load(),
		PodsLive: n.podsLive.Load(), PodsDied: n.podsDied.Load(),
		ReturnsCame: n.returnsCame.Load(), ReturnsMissed: n.returnsMissed.Load(),
		ReturnsRefused: p.Router.returns.refused.Load(),
	}
	p.Places.stats(&s)
	for _, l := range p.Hub.All() {
		s.Sessions++
		s.InFlight += int64(l.InFlight())
	}
	p.rec.stats(&s)
	return s
}

// Pools returns the usage of the pod's pools, by name.
func (p *Pod) Pools() map[string]share.Stats {
	return map[string]share.Stats{
		"running_calls": p.Calls.places.Stats(), "returning_calls": p.Router.returns.places.Stats(),
		"errands": p.Places.admitted.Stats(), "tasks": p.tasks.places.Stats(),
		"late_answers": p.Hub.late.places.Stats(), "checked_answers": p.Hub.checks.places.Stats(),
		"offered_bytes": p.Hub.offered.bytes.Stats(),
	}
}

func (p *Places) stats(s *Stats) {
	n := p.router.counts
	s.PlaceCallsHere, s.PlaceCallsThere = n.placeCallsHere.Load(), n.placeCallsThere.Load()
	s.PlacesTaken, s.PlacesLost, s.ErrandsRefused = n.placesTaken.Load(), n.placesLost.Load(), n.errandsRefused.Load()
	p.mu.Lock()
	defer p.mu.Unlock()
	s.Places, s.Errands = int64(len(p.held)), int64(len(p.errands))
}

func (r *recorder) stats(s *Stats) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s.RecorderLines, s.RecorderBytes, s.RecorderUnwritten = int64(r.waiting), int64(r.held), int64(len(r.unwritten))
	s.RecorderDropped = r.dropped.Load()
}

// Turns aborts conversation turns, and other work with a key, on any pod. It is safe for concurrent use.
type Turns struct {
	pod  string
	pods registry.PodStore
	bus  registry.Bus
	log  *slog.Logger

	mu     sync.Mutex
	aborts []func(registry.Key) bool // replaced when one is added
}

func newTurns(cfg PodConfig) *Turns {
	return &Turns{pod: cfg.ID, pods: cfg.Store, bus: cfg.Bus, log: cfg.Log}
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
	pods, err := t.pods.Live(ctx)
	if err != nil {
		return err
	}
	for _, pod := range pods {
		if pod == t.pod {
			continue
		}
		err := t.bus.Send(ctx, pod, registry.Envelope{
			V: registry.EnvelopeVersion, Kind: registry.EnvelopeAbort, Tenant: key.Tenant, Session: key.Session,
		})
		if err != nil { // the pod may be dead, and its turns with it
			t.log.Debug("abort not delivered", "session", key.Session, "pod", pod, "error", err)
		}
	}
	return nil
}

func (t *Turns) abortHere(key registry.Key) bool {
	t.mu.Lock()
	aborts := t.aborts
	t.mu.Unlock()
	return slices.ContainsFunc(aborts, func(abort func(registry.Key) bool) bool { return abort(key) })
}

func (t *Turns) handleAbort(e registry.Envelope) { t.abortHere(e.Key()) }
