package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/auth"
	"github.com/farhand/farhand/agent/builtin"
	"github.com/farhand/farhand/agent/chat"
	"github.com/farhand/farhand/agent/loopguard"
	"github.com/farhand/farhand/agent/schema"
	"github.com/farhand/farhand/api"
	"github.com/farhand/farhand/redisstore"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
	"github.com/farhand/farhand/registry/routing"
	"github.com/farhand/farhand/ws"
)

// Limits of the HTTP server. There is no write timeout: calls and streams set their own deadlines.
const (
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 15 * time.Second
	idleTimeout       = 60 * time.Second
	maxHeaderBytes    = 16 << 10
	startTimeout      = 10 * time.Second
)

// Gateway is one pod: the store and bus it shares, the doors it opens, and the order in which all of it stops.
type Gateway struct {
	cfg      Config
	log      *slog.Logger
	pod      *routing.Pod
	talk     *chat.Engine // nil without a model
	bus      registry.Bus
	redis    *redisstore.Conn // nil without Redis
	devices  *ws.Server
	server   *http.Server
	listener net.Listener
	clients  clientCount

	draining   context.Context    // ends when the gateway begins to stop
	beginDrain context.CancelFunc // ends it

	endRequests context.CancelCauseFunc // tells the requests that are left when stopping must come to an end
	serveErr    chan error
}

// NewGateway connects to the store, starts the pod and listens. Devices and callers are served once it returns.
func NewGateway(ctx context.Context, cfg Config, log *slog.Logger) (*Gateway, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	g := &Gateway{cfg: cfg, log: log, serveErr: make(chan error, 1)}
	g.draining, g.beginDrain = context.WithCancel(context.Background())
	if err := g.start(ctx); err != nil {
		closeCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), startTimeout)
		defer cancel()
		return nil, errors.Join(err, g.Close(closeCtx))
	}
	return g, nil
}

func (g *Gateway) start(ctx context.Context) error {
	// Listening comes first: an address in use is the most likely thing to be wrong.
	listen := net.ListenConfig{
		// Sockets are probed by WebSocket pings. TCP keep-alive on top of them would probe thousands of sockets that
		// were accepted together in one burst.
		KeepAlive: -1,
	}
	var err error
	if g.listener, err = listen.Listen(ctx, "tcp", g.cfg.Addr); err != nil {
		return fmt.Errorf("listen on %s: %w", g.cfg.Addr, err)
	}
	store, err := g.openStore(ctx)
	if err != nil {
		return err
	}
	g.pod, err = routing.NewPod(routing.PodConfig{
		ID: g.cfg.PodID, Store: store, Bus: g.bus, SessionTTL: g.cfg.SessionTTL, PodLease: g.cfg.PodLease,
		MaxInFlight: g.cfg.MaxCalls, Retention: g.cfg.Retention, CallBytes: int64(g.cfg.CallBytes), CallLog: int64(g.cfg.CallLog),
		NewToolBytes: int64(g.cfg.NewToolBytes), Log: g.log,
	})
	if err != nil {
		return err
	}
	g.log = g.log.With("pod", g.pod.ID())
	if err := g.pod.Start(ctx); err != nil {
		return err
	}
	handler, err := g.openDoors(store)
	if err != nil {
		return err
	}
	var base context.Context
	base, g.endRequests = context.WithCancelCause(context.Background())
	g.server = &http.Server{
		BaseContext: func(net.Listener) context.Context { return base },
		ConnState:   g.clients.note,
		Handler:     handler, ReadHeaderTimeout: readHeaderTimeout, ReadTimeout: readTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: maxHeaderBytes, ErrorLog: slog.NewLogLogger(g.log.Handler(), slog.LevelDebug),
	}
	go func() { g.serveErr <- g.server.Serve(g.listener) }()
	return nil
}

func (g *Gateway) openStore(ctx context.Context) (registry.Store, error) {
	if g.cfg.RedisURL == "" {
		memory := memory.New(memory.Options{
			SessionTTL: g.cfg.SessionTTL, PodLease: g.cfg.PodLease, Retention: g.cfg.Retention,
			IdempotencyTTL: g.cfg.IdempotencyTTL, ActivityCap: g.cfg.ActivityCap, ActivityBytes: int(g.cfg.ActivityBytes),
			HistoryTTL: g.cfg.HistoryTTL, HistoryCap: g.cfg.HistoryCap,
		})
		g.bus = memory.NewBus()
		return memory, nil
	}
	conn, err := redisstore.Dial(ctx, redisstore.Options{
		URL: string(g.cfg.RedisURL), CAFile: g.cfg.RedisCA, SessionTTL: g.cfg.SessionTTL, PodLease: g.cfg.PodLease,
		Retention: g.cfg.Retention, IdempotencyTTL: g.cfg.IdempotencyTTL, ActivityTTL: g.cfg.ActivityTTL,
		ActivityCap: g.cfg.ActivityCap, ActivityBytes: int(g.cfg.ActivityBytes), HistoryTTL: g.cfg.HistoryTTL, HistoryCap: g.cfg.HistoryCap, Log: g.log,
	})
	if err != nil {
		if network := net.Error(nil); errors.As(err, &network) {
			return nil, fmt.Errorf("FARHAND_REDIS_URL: no Redis answers there: %w\n"+
				"  start one: redis-server, or docker run -p 6379:6379 redis:7\n"+
				"  or unset FARHAND_REDIS_URL: one process alone needs none", err)
		}
		return nil, fmt.Errorf("FARHAND_REDIS_URL: %w", err)
	}
	for _, warning := range conn.Warnings() {
		g.log.Warn("redis is configured unsafely", "warning", warning)
	}
	g.redis, g.bus = conn, conn.Bus()
	return conn.Store(), nil
}

// openDoors builds the operation and the two doors in front of it.
func (g *Gateway) openDoors(store registry.Store) (http.Handler, error) {
	policy, err := agent.NewPolicy(g.cfg.policyRules())
	if err != nil {
		return nil, err
	}
	origins, err := auth.NewOrigins(g.cfg.AllowedOrigins, g.cfg.Token == "")
	if err != nil {
		return nil, err
	}
	var authenticator auth.Authenticator = auth.Anonymous{}
	if g.cfg.Token != "" {
		authenticator = auth.NewStaticToken(string(g.cfg.Token))
	}
	sources, err := auth.NewSources(g.cfg.TrustedProxies)
	if err != nil {
		return nil, err
	}
	refusals := auth.NewRefusals(sources, g.log)
	localTools, err := g.localTools(store, policy)
	if err != nil {
		return nil, err
	}
	schemas := schema.NewValidator()
	invoker := agent.NewInvoker(agent.Config{
		Router: g.pod.Router, CallLog: g.pod.Calls, Policy: policy, Schemas: schemas, Builtins: localTools,
		Guards:  []agent.Hook{loopguard.New(loopguard.Config{Store: store, Warn: g.cfg.LoopWarn, Block: g.cfg.LoopBlock, Log: g.log})},
		Timeout: g.cfg.CallTimeout, MaxTimeout: g.cfg.MaxCallTimeout, Log: g.log,
	})
	talk, err := g.openAgent(store, invoker, policy, localTools)
	if err != nil {
		return nil, err
	}
	g.devices, err = ws.NewServer(ws.Config{
		Pod: g.pod, Admission: agent.NewAdmission(policy, schemas, g.cfg.admissionLimits(), localTools.Names()...), Auth: authenticator, Origins: origins,
		Agent: talk, Conversations: store, MaxFramesPerSecond: g.cfg.FrameRate, FrameBurst: g.cfg.FrameBurst,
		MessageTimeout: g.cfg.MessageTimeout, MaxUnfinished: int64(g.cfg.MaxUnfinished),
		MaxOpensPerSecond: g.cfg.OpenRate, OpensBurst: g.cfg.OpenBurst, Sources: sources, Refusals: refusals,
		MaxFrame: int64(g.cfg.MaxFrame), MaxOutput: int64(g.cfg.MaxOutput), MaxOutbound: int(g.cfg.MaxOutbound),
		PingInterval: g.cfg.PingInterval, PongTimeout: g.cfg.PongTimeout, DenyQueryToken: !g.cfg.AllowQuery,
		IgnoreDebug: !g.cfg.AllowDebug, Log: g.log,
	})
	if err != nil {
		return nil, err
	}
	return api.NewHandler(api.Config{
		Pod: g.pod.ID(), Invoker: invoker, Calls: g.pod.Calls, Directory: store, Kicker: g.pod.Hub, Ready: g.ready, Auth: authenticator,
		Origins: origins, Refusals: refusals, Policy: policy, MaxBody: int64(g.cfg.MaxBody), MaxCallTimeout: g.cfg.MaxCallTimeout,
		Agent: talk, Conversations: store, Turns: g.pod.Turns, Builtins: localTools, MaxTurn: g.cfg.TurnTimeout, TurnWait: g.cfg.TurnWait, IgnoreDebug: !g.cfg.AllowDebug,
		MaxResponseBytes: int64(g.cfg.MaxResponses), MaxRequestBytes: int64(g.cfg.MaxRequests), MaxStreams: g.cfg.MaxStreams, MaxCallerStreams: g.cfg.CallerStreams, Sources: sources,
		Draining: g.draining, Device: g.devices, Version: version(), Log: g.log,
	})
}

// localTools returns the tools of the gateway itself. They are there for its agent: without a model there are none.
func (g *Gateway) localTools(store registry.Store, policy *agent.Policy) (*agent.LocalTools, error) {
	all, err := agent.NewLocalTools(builtin.Registrations(builtin.Deps{Directory: store, Policy: policy})...)
	if err != nil || len(g.cfg.Models) == 0 {
		return &agent.LocalTools{}, err
	}
	enabled, err := all.Select(g.cfg.builtins()...)
	if err != nil {
		return nil, fmt.Errorf("FARHAND_BUILTIN_TOOLS: %w", err)
	}
	return enabled, nil
}

// openAgent returns what holds conversations, nil without a model.
func (g *Gateway) openAgent(store registry.Store, invoker *agent.Invoker, policy *agent.Policy, localTools *agent.LocalTools) (chat.Agent, error) {
	if len(g.cfg.Models) == 0 {
		return nil, nil
	}
	views := agent.NewToolSets(agent.ToolSetsConfig{
		Invoker: invoker, Directory: store, Policy: policy, LocalTools: localTools, OtherSessions: g.cfg.OtherSessions,
		Unconfirmed: g.cfg.Unconfirmed, Log: g.log,
	})
	var err error
	g.talk, err = chat.NewEngine(chat.Config{
		Models: g.cfg.models(g.log), Store: store, OpenTools: chat.ToolsOf(views), Activity: turnNotes{g.pod.Calls},
		System: g.cfg.SystemPrompt, Limits: g.cfg.limits(), Log: g.log,
	})
	if err != nil {
		return nil, err
	}
	g.pod.Turns.Serve(g.talk.Abort)
	return g.talk, nil
}

func (g *Gateway) ready(ctx context.Context) error { return g.pod.Ready(ctx) }

// Addr returns the address the gateway listens on.
func (g *Gateway) Addr() net.Addr { return g.listener.Addr() }

// URL returns the address as callers on this machine would write it.
func (g *Gateway) URL() string { return "http://" + g.listener.Addr().String() }

// Pod returns the id of the pod.
func (g *Gateway) Pod() string { return g.pod.ID() }

// Run serves until ctx ends or serving fails. It does not close the gateway.
func (g *Gateway) Run(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-g.serveErr:
		return fmt.Errorf("serve: %w", err)
	}
}

// releaseReserve is the part of the drain limit that is kept for what comes after the devices: releasing sessions,
// delivering what is queued, leaving the fleet.
const releaseReserve = 0.2

// Close stops in this order, all of it within ctx: readiness turns red and new devices are refused; devices are told
// to go elsewhere, each once its calls in flight and its turn have ended; requests in flight end and nothing new is accepted, those that do not are ended and say so to their callers;
// sessions are released and the lease is given up; the bus delivers what is queued; Redis last. It is safe on a gateway
// that did not start completely. The errors tell what had to be cut short.
func (g *Gateway) Close(ctx context.Context) error {
	g.beginDrain()
	var errs []error
	gentle, cancel := context.WithDeadline(ctx, reserved(ctx))
	defer cancel()
	if g.devices != nil {
		errs = append(errs, g.devices.Close(gentle))
	}
	if g.server != nil {
		g.turnAway(gentle)
		last := time.AfterFunc(time.Until(reserved(gentle)), func() { g.endRequests(registry.ErrDraining) })
		errs = append(errs, g.server.Shutdown(gentle))
		last.Stop()
		g.endRequests(registry.ErrDraining)
	} else if g.listener != nil {
		errs = append(errs, g.listener.Close())
	}
	if g.talk != nil { // its callers are gone, so what still runs ends soon
		errs = append(errs, g.talk.Close(gentle))
	}
	if g.server != nil { // those that had to be ended still tell their callers why
		errs = append(errs, g.server.Shutdown(ctx))
	}
	if g.pod != nil {
		g.pod.Drain(gentle)
		errs = append(errs, g.pod.Close(ctx))
	}
	if g.bus != nil {
		errs = append(errs, g.bus.Close(ctx))
	}
	if g.redis != nil {
		errs = append(errs, g.redis.Close())
	}
	return errors.Join(errs...)
}

// turnAwayTime is how long callers have to learn, from the answer to their next request, that they should connect anew.
const turnAwayTime = 500 * time.Millisecond

// turnAway gives callers that keep their connection open time to leave it. Closing it under a request that is just
// being sent would leave its caller without an answer.
func (g *Gateway) turnAway(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, turnAwayTime)
	defer cancel()
	select {
	case <-g.clients.none():
	case <-ctx.Done():
	}
}

// reserved returns when the gentle part of stopping must be over.
func reserved(ctx context.Context) time.Time {
	deadline, ok := ctx.Deadline()
	if !ok {
		return time.Now().Add(startTimeout)
	}
	left := time.Until(deadline)
	return deadline.Add(-time.Duration(float64(left) * releaseReserve))
}
