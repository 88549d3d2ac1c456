package registry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/google/uuid"
)

// Defaults of PodConfig.
const (
	DefaultSessionTTL  = 60 * time.Second
	DefaultPodLease    = 10 * time.Second
	DefaultMaxInFlight = 64
)

// PodConfig configures a Pod. Store and Bus are required.
type PodConfig struct {
	ID          string        // new at every start, never reused; default NewPodID()
	Store       Store         // shared by the fleet
	Bus         Bus           // shared by the fleet; the Pod listens on it but does not close it
	SessionTTL  time.Duration // life of a session's keys between refreshes; default 60 s
	PodLease    time.Duration // how soon a dead pod is noticed; default 10 s
	MaxInFlight int           // calls in flight per session; default 64
	Log         *slog.Logger  // default: discard
}

// NewPodID returns the host name and a random part: a process that restarts is another pod.
func NewPodID() string {
	host, err := os.Hostname()
	if err != nil || !sessionIDPattern.MatchString(host) {
		host = "pod"
	}
	return fmt.Sprintf("%.40s-%s", host, uuid.NewString()[:8])
}

// Pod is one running process of the fleet: the sessions whose sockets it holds, the calls it routes, and the
// background work that keeps both true in the store.
type Pod struct {
	Presence *Presence
	Router   *Router

	cfg     PodConfig
	refresh chan struct{} // capacity 1: refresh now
	cancel  context.CancelFunc
	done    sync.WaitGroup
}

// NewPod returns a pod that has not started.
func NewPod(cfg PodConfig) (*Pod, error) {
	if cfg.Store == nil || cfg.Bus == nil {
		return nil, errors.New("registry: a pod needs a store and a bus")
	}
	if cfg.ID == "" {
		cfg.ID = NewPodID()
	}
	if cfg.SessionTTL <= 0 {
		cfg.SessionTTL = DefaultSessionTTL
	}
	if cfg.PodLease <= 0 {
		cfg.PodLease = DefaultPodLease
	}
	if cfg.MaxInFlight <= 0 {
		cfg.MaxInFlight = DefaultMaxInFlight
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	p := &Pod{cfg: cfg, refresh: make(chan struct{}, 1)}
	p.Presence = newPresence(cfg)
	p.Router = newRouter(cfg, p.Presence)
	return p, nil
}

// ID returns the pod's id.
func (p *Pod) ID() string { return p.cfg.ID }

// Start takes the lease, begins to receive, and starts the background work. When it returns nil, sessions may be
// opened and calls routed. ctx bounds the starting only.
func (p *Pod) Start(ctx context.Context) error {
	if _, err := p.cfg.Store.Beat(ctx, p.cfg.ID); err != nil {
		return fmt.Errorf("take the pod's lease: %w", err)
	}
	if err := p.cfg.Bus.Listen(ctx, p.cfg.ID, p); err != nil {
		return fmt.Errorf("listen on the bus: %w", err)
	}
	run, cancel := context.WithCancel(context.Background())
	p.cancel = cancel
	p.done.Go(func() { p.beatLoop(run) })
	p.done.Go(func() { p.refreshLoop(run) })
	return nil
}

// Close stops the background work, releases what sessions are left and gives up the lease. Sockets should be closed
// before. ctx bounds it.
func (p *Pod) Close(ctx context.Context) error {
	if p.cancel == nil {
		return nil
	}
	p.cancel()
	p.done.Wait()
	for _, l := range p.Presence.All() {
		l.Close(ctx)
	}
	return p.cfg.Store.Leave(ctx, p.cfg.ID)
}

// Ready returns nil while this pod can serve calls for the whole fleet, and the reason otherwise.
func (p *Pod) Ready(ctx context.Context) error {
	return errors.Join(p.cfg.Store.Ping(ctx), p.cfg.Bus.Healthy())
}

// HandleEnvelope implements BusHandler.
func (p *Pod) HandleEnvelope(e Envelope) {
	switch e.Kind {
	case EnvelopeCall:
		p.Router.handleCall(e)
	case EnvelopeEvict:
		p.Presence.handleEvict(e)
	default:
		p.cfg.Log.Warn("message of unknown kind ignored", "kind", e.Kind, "version", e.V)
	}
}

// HandleReply implements BusHandler.
func (p *Pod) HandleReply(r Reply) { p.Router.handleReply(r) }
