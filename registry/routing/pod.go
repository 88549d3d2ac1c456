package routing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/farhand/farhand/internal/trace"
	"github.com/farhand/farhand/registry"
)

// DefaultMaxInFlight is the default limit of calls in flight per session.
const DefaultMaxInFlight = 64

// PodConfig configures a Pod. Store and Bus are required.
type PodConfig struct {
	registry.Limits // those of the store

	ID          string         // new at every start, never reused; default NewPodID()
	Store       registry.Store // shared by the fleet
	Bus         registry.Bus   // shared by the fleet; the Pod listens on it, and closes it
	MaxInFlight int            // calls in flight per session; default 64
	SendTimeout time.Duration  // time limit of the bus to send a call; default DefaultSendTimeout
	Log         *slog.Logger   // default: discard
	Tracer      trace.Tracer   // continues the traces of other pods' calls; default: off

	Queue   QueueConfig  // calls that wait for their devices
	Devices MemoryConfig // which devices are remembered, and for how long

	CallBytes    int64 // stored for all calls of a tenant, by all pods; default DefaultCallBytes
	CallLog      int64 // stored of a device's reports of one call; default DefaultCallLog
	NewToolBytes int64 // of a tenant's new tool definitions; default DefaultNewToolBytes
	OfferedBytes int64 // of tool definitions that the pod's sessions offer; default DefaultOfferedBytes
	HistoryBytes int64 // growth of a tenant's conversations, by all pods; default DefaultHistoryBytes

	// CheckOutput returns an answer's violations of an output schema. Nil: answers are not checked. Answers wait for
	// it, so it must return soon, and when ctx ends. It is called concurrently.
	CheckOutput func(ctx context.Context, tenant string, schema []byte, r registry.Result) []registry.Violation

	jitter func(time.Duration) time.Duration // a random duration below the one given; default rand.N
	gather func()                            // of the recorder, for tests; default: does nothing
}

// NewPodID returns the host name and a random part, because a restarted process is another pod.
func NewPodID() string {
	host, err := os.Hostname()
	if err != nil || !registry.IsName(host, 128, "._-") {
		host = "pod"
	}
	return fmt.Sprintf("%.40s-%s", host, uuid.NewString()[:8])
}

// Pod is one running process of the fleet. It holds the sessions whose sockets are here and routes calls. Its
// background work keeps the store up to date.
type Pod struct {
	Hub    *Hub
	Router *Router
	Calls  *Calls
	Queue  *Queue
	Turns  *Turns

	Approvals *Approvals
	Places    *Places
	Fleet     *Fleet
	History   *ByteBudget // of conversations
	Asked     *ByteBudget // of approvals

	core
	cfg      PodConfig
	devices  *deviceMemory
	refresh  chan struct{} // capacity 1: refresh now
	sweeps   chan struct{} // capacity 1: the lease is fresh, clean up after other pods
	podsLive atomic.Int64  // as of the last heartbeat
	cancel   context.CancelFunc
	done     sync.WaitGroup
}

// NewPod returns a pod that has not started.
func NewPod(cfg PodConfig) (*Pod, error) {
	if cfg.Store == nil || cfg.Bus == nil {
		return nil, errors.New("registry: a pod needs a store and a bus")
	}
	cfg.setDefaults()
	reserved := newReservations(cfg.Store, cfg.Log)
	calls := newCallBudget(cfg, reserved)
	c := core{
		pod: cfg.ID, store: cfg.Store, bus: cfg.Bus, calls: calls, rec: newRecorder(cfg, calls),
		tasks: newTasks(maxTasks, cfg.Log), counts: new(counters), logBytes: cfg.CallLog, log: cfg.Log,
		tracer: cfg.Tracer,
	}
	p := &Pod{core: c, cfg: cfg, refresh: make(chan struct{}, 1), sweeps: make(chan struct{}, 1)}
	p.Hub = newHub(c, cfg, newToolBudget(cfg, reserved))
	calls.sessions = p.Hub.Get
	p.Router = newRouter(c, p.Hub, cfg.SendTimeout)
	p.Calls = newCalls(c, p.Router)
	p.Queue = newQueue(c, cfg, p.Hub, p.Calls)
	p.Hub.registered = p.Queue.check
	p.devices = newDeviceMemory(c, cfg.Devices)
	p.Hub.seen = p.devices.note
	p.Turns = &Turns{core: c}
	p.History, p.Asked = newHistoryBudget(cfg, reserved), newApprovalBudget(reserved)
	p.Approvals = &Approvals{core: c, hub: p.Hub}
	p.Places = newPlaces(c, p.Router, cfg.PlaceTTL)
	p.Fleet = &Fleet{core: c}
	return p, nil
}

func (cfg *PodConfig) setDefaults() {
	cfg.ID = cmp.Or(cfg.ID, NewPodID())
	cfg.Limits = cfg.WithDefaults()
	setDefault(&cfg.SendTimeout, DefaultSendTimeout)
	setDefault(&cfg.MaxInFlight, DefaultMaxInFlight)
	setDefault(&cfg.CallBytes, DefaultCallBytes)
	setDefault(&cfg.CallLog, DefaultCallLog)
	cfg.CallLog = min(cfg.CallLog, MaxCallLog)
	setDefault(&cfg.NewToolBytes, DefaultNewToolBytes)
	setDefault(&cfg.HistoryBytes, DefaultHistoryBytes)
	setDefault(&cfg.OfferedBytes, DefaultOfferedBytes)
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.jitter == nil {
		cfg.jitter = rand.N[time.Duration]
	}
	if cfg.gather == nil {
		cfg.gather = func() {}
	}
}

// setDefault replaces a value that is not positive.
func setDefault[T ~int | ~int64](value *T, otherwise T) {
	if *value <= 0 {
		*value = otherwise
	}
}

// ID returns the pod's id.
func (p *Pod) ID() string { return p.pod }

// Start takes the lease, listens on the bus, and starts the background work. Once it returns nil, sessions may be
// opened and calls routed. ctx limits only the start.
func (p *Pod) Start(ctx context.Context) error {
	if _, err := p.store.Heartbeat(ctx, p.pod); err != nil {
		return fmt.Errorf("take the pod's lease: %w", err)
	}
	if err := p.bus.Listen(ctx, p.pod, p); err != nil {
		return fmt.Errorf("listen on the bus: %w", err)
	}
	run, cancel := context.WithCancel(context.Background())
	p.cancel = cancel
	p.done.Go(func() { p.heartbeatLoop(run) })
	p.done.Go(func() { p.sweepLoop(run) })
	p.done.Go(func() { p.refreshLoop(run) })
	p.done.Go(func() { p.releaseLoop(run) })
	p.done.Go(func() { p.rec.writeUntil(run) })
	p.done.Go(func() { p.devices.writeUntil(run) })
	p.Queue.run()
	return nil
}

// Drain waits for the durable calls that run on this pod. When ctx ends it abandons the rest: their devices continue,
// and their answers are stored. Then the pod releases its places.
func (p *Pod) Drain(ctx context.Context) {
	p.Queue.close()
	p.Calls.close(ctx)
	p.Places.close(ctx)
}

// Close drains the pod, releases the remaining sessions, stops the background work, closes the bus and gives up the
// lease, in this order. Other pods treat calls that wait for a pod without a lease as lost, so this pod first answers
// all calls that were sent to it. Close the sockets before. ctx limits it.
func (p *Pod) Close(ctx context.Context) error {
	if p.cancel == nil {
		return nil
	}
	p.Drain(ctx)
	for _, l := range p.Hub.All() {
		l.Leave(ctx, registry.ReturnWait)
	}
	p.Hub.detached.fail()
	p.Router.returns.close()
	p.Hub.ordered.wait()
	p.Hub.checks.wait()
	p.tasks.wait()
	p.Hub.late.wait()
	p.cancel()
	p.done.Wait()
	if !p.releaseAll(ctx) {
		p.log.Warn("some sessions are not released: their tools are counted until readers find out")
	}
	return errors.Join(p.bus.Close(ctx), p.store.Leave(ctx, p.pod))
}

// Ready returns nil while this pod can serve calls for the whole fleet, and the reason otherwise.
func (p *Pod) Ready(ctx context.Context) error {
	if err := p.store.Ping(ctx); err != nil {
		return err
	}
	if err := p.bus.Healthy(); err != nil {
		e := registry.StoreUnavailable("receive", err)
		e.Message = "Messages from other pods do not arrive at this one."
		return e
	}
	return nil
}

// HandleEnvelope implements BusHandler.
func (p *Pod) HandleEnvelope(e registry.Envelope) {
	switch e.Kind {
	case registry.EnvelopeCall:
		p.Router.handleCall(e)
	case registry.EnvelopeCancel:
		if !p.Places.cancelErrand(e.CallID) {
			p.Router.handleCancel(e)
		}
	case registry.EnvelopeAnswer:
		p.Hub.handleAnswer(e)
	case registry.EnvelopeEvict:
		p.Hub.handleEvict(e)
	case registry.EnvelopePing:
		p.Hub.handlePing(e)
	case registry.EnvelopeApproval:
		p.Approvals.handleApproval(e)
	case registry.EnvelopeAbort:
		p.Turns.abortHere(e.Key())
	case registry.EnvelopeErrand:
		p.Places.handleErrand(e)
	case registry.EnvelopeErased:
		p.Places.handleErased(e)
	case registry.EnvelopeQueue:
		if l := p.Hub.Get(e.Key()); l != nil {
			p.Queue.check(l)
		}
	case registry.EnvelopeSummary:
		p.Fleet.handleQuestion(e)
	default:
		p.log.Warn("message of unknown kind ignored", "kind", e.Kind, "version", e.V)
		if e.CallID != "" && e.ReplyTo != "" { // from a newer release: the waiting pod gets the error immediately
			p.Router.refuse(e.ReplyTo, e.CallID, errVersions())
		}
	}
}

// HandleReply implements BusHandler.
func (p *Pod) HandleReply(r registry.Reply) {
	switch {
	case strings.HasPrefix(r.CallID, probePrefix):
		p.Hub.pings.notify(r.CallID, r.Delivered)
	case strings.HasPrefix(r.CallID, questionPrefix):
		p.Fleet.answers.notify(r.CallID, r.Answer)
	case r.Answer != "":
		p.Hub.verdicts.notify(r.CallID, r.Answer)
	case r.Wake:
		p.Calls.watchers.notify(r.CallID, struct{}{})
	default:
		p.Router.handleReply(r)
	}
}

// HandleGap implements BusHandler. It refreshes the sessions, because an eviction may be among the missed messages.
func (p *Pod) HandleGap() { p.refreshNow() }

// refreshNow makes the refresh loop compare this pod's sessions with the store immediately.
func (p *Pod) refreshNow() {
	select {
	case p.refresh <- struct{}{}:
	default: // already requested
	}
}
