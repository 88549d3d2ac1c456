// Package farhand is a gateway that lets AI agents call tools on devices. Programs embed it. Devices dial out over
// WebSocket and register tools. Agents call those tools over HTTP on any pod of a fleet, and a language model can use
// them in conversations.
//
//	g, err := farhand.New(ctx, farhand.Config{Token: token}, farhand.WithToolFunc("roll", "Throw a die.", roll))
//	if err != nil {
//		return err
//	}
//	return errors.Join(g.Run(ctx), g.Close(context.WithoutCancel(ctx)))
//
// Config has the settings. Options bring code: tools, hooks, models, an authenticator, stores. Only this package
// imports all others and wires them (wiring.go). cmd/farhand is its first user. docs/embedding.md is the guide.
//
// Tools and hooks are documented in package agent, models in agent/provider, authenticators in agent/access/auth, store
// and bus in registry.
package farhand

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/farhand/farhand/agent/access/approval"
	"github.com/farhand/farhand/agent/access/audit"
	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/access/budget"
	"github.com/farhand/farhand/agent/access/jwt"
	"github.com/farhand/farhand/agent/access/pairing"
	"github.com/farhand/farhand/agent/access/policy"
	"github.com/farhand/farhand/agent/access/usage"
	"github.com/farhand/farhand/agent/chat"
	"github.com/farhand/farhand/agent/group"
	"github.com/farhand/farhand/agent/hooks"
	"github.com/farhand/farhand/agent/schema"
	"github.com/farhand/farhand/agent/wake"
	"github.com/farhand/farhand/internal/certificate"
	"github.com/farhand/farhand/internal/listener"
	"github.com/farhand/farhand/internal/trace"
	"github.com/farhand/farhand/redisstore"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
	"github.com/farhand/farhand/registry/memory/statefile"
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

// Gateway is one pod: its connection to store and bus, the APIs it serves, and the order in which they stop. Its
// methods are safe for concurrent use.
type Gateway struct {
	cfg              Config
	settings         settings
	log              *slog.Logger
	tracer           trace.Tracer
	started          time.Time
	pod              *routing.Pod
	chat             *chat.Engine // nil without a model
	webhooks         []*hooks.Hook
	files            files // nil: none are kept
	bus              registry.Bus
	redis            *redisstore.Conn // nil without Redis
	memory           *memory.Store    // nil with Redis, or with a store of the program's
	stateFile        *statefile.File  // of memory; nil: it keeps none
	pairing          *pairing.Service
	revocationTarget atomic.Pointer[ws.Server] // receives changes of credentials; nil until it is there
	tokens           tokens                    // nil unless JSON Web Tokens are accepted
	provider         *jwt.Provider             // nil unless people sign in at the console with it
	keys             *auth.Keys
	live             *auth.Live
	devices          *ws.Server
	monitor          *monitoring
	schemas          *schema.Validator
	audit            *audit.Log // nil before the pod has started
	usage            *usage.Recorder

	budgets    *budget.Ledger
	prices     *budget.Prices // of models
	policyFile *policy.File   // nil without one
	rotation   *auth.Rotation // nil without FARHAND_TOKEN_PREVIOUS
	builtins   builtins
	upstreams  upstreams

	approvals *approval.Service
	wakes     *wake.Service // nil before it has started
	groups    *group.Service

	handler http.Handler
	server  *http.Server // that Run serves with

	certificate *certificate.Files // nil: plain HTTP
	listener    net.Listener       // brought by the program, else opened by Run; read once serving is set
	serving     atomic.Bool        // the server has the listener
	served      chan struct{}      // closed when the server accepts no more connections
	clients     gauge              // connections of server
	idle        *listener.Idle     // those waiting for their client
	requests    gauge              // requests through Handler

	draining   context.Context    // ends when the gateway begins to stop
	beginDrain context.CancelFunc // ends it
	drainBegan atomic.Int64       // when it ended, in ns; 0: it has not
	closing    context.Context    // ends when no new turns start
	endTurns   context.CancelFunc // ends it
	lastIdle   atomic.Int64       // when a connection was last kept open for another request, in ns

	base        context.Context         // of all requests
	endRequests context.CancelCauseFunc // ends base, and so the requests left when the gateway stops
}

// New connects to the store and joins the fleet. Zero fields of cfg mean their defaults, except AllowQuery and
// AllowDebug, which are then off: DefaultConfig and LoadConfig set them. ctx bounds the start, which takes at most ten
// seconds; it does not stop the gateway. The error lists all invalid settings of cfg. After an error nothing is left
// open, including a listener that was passed in.
//
// A gateway serves after Run is called, or through Handler with a server of the program's own. It must be closed.
func New(ctx context.Context, cfg Config, opts ...Option) (*Gateway, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	g := &Gateway{cfg: cfg.withDefaults(), started: time.Now()}
	g.draining, g.beginDrain = context.WithCancel(context.Background())
	g.closing, g.endTurns = context.WithCancel(context.Background())
	g.base, g.endRequests = context.WithCancelCause(context.Background())
	g.server, g.served = &http.Server{ConnState: g.noteClient}, make(chan struct{})
	g.idle = listener.NewIdle(g.cfg.idle(listener.OpenFiles()))
	if err := g.start(ctx, opts); err != nil {
		closeCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), startTimeout)
		defer cancel()
		return nil, errors.Join(err, g.Close(closeCtx))
	}
	return g, nil
}

func (g *Gateway) start(ctx context.Context, opts []Option) error {
	var err error
	g.settings, err = apply(opts)
	g.log, g.listener, g.tracer = g.settings.log, g.settings.listener, trace.New(g.settings.traces)
	if g.tracer.On() {
		g.log = slog.New(trace.Logs(g.log.Handler()))
	}
	if err != nil {
		return err
	}
	if err := g.cfg.check(g.settings); err != nil {
		return err
	}
	if g.monitor, err = openMonitoring(ctx, g.cfg, g.modelNames(), g.settings); err != nil {
		return err
	}
	store, err := g.openStore(ctx)
	if err != nil {
		return err
	}
	g.schemas = schema.NewValidator()
	if err := g.startPod(ctx, store); err != nil {
		return err
	}
	g.audit, g.usage = audit.New(store, g.pod.ID(), g.log), usage.New(store, g.log)
	if err := g.openBudgets(store); err != nil {
		return err
	}
	g.approvals = approval.New(approval.Config{ // before revocations are read
		Store: store, Budget: g.pod.Asked, Pods: store, Credentials: store, Approvers: g.approverWays(),
		Requested: g.approvalRequested,
		Verify:    g.ended,
		Note:      g.pod.Calls.Note, Show: g.pod.Approvals.Show, Audit: g.audit, Log: g.log,
	})
	if err := g.openWakes(store); err != nil {
		return err
	}
	if err := g.openIdentity(ctx, store); err != nil {
		return err
	}
	if err := g.openBuiltins(ctx, store); err != nil {
		return err
	}
	if err := g.openBlobs(ctx, store); err != nil {
		return err
	}
	if err := g.openCertificate(); err != nil {
		return err
	}
	if g.handler, err = g.openAPIs(store, g.schemas); err != nil {
		return err
	}
	g.openServer()
	return nil
}

// startPod builds the pod, and joins the fleet.
func (g *Gateway) startPod(ctx context.Context, store registry.Store) error {
	devices, err := g.cfg.memory()
	if err != nil {
		return err
	}
	g.pod, err = routing.NewPod(routing.PodConfig{
		ID: g.cfg.PodID, Store: store, Bus: g.bus, Limits: g.cfg.storeLimits(), SendTimeout: g.cfg.RedisTimeout,
		Queue: g.cfg.Queue, Devices: devices,
		MaxInFlight: g.cfg.MaxCalls, CallBytes: g.cfg.CallBytes, CallLog: g.cfg.CallLog,
		NewToolBytes: g.cfg.NewToolBytes, OfferedBytes: g.cfg.OfferedBytes,
		HistoryBytes: g.cfg.HistoryBytes, Log: g.log, Tracer: g.tracer, CheckOutput: g.schemas.CheckOutput,
	})
	if err != nil {
		return err
	}
	g.log = g.log.With("pod", g.pod.ID())
	return g.pod.Start(ctx)
}

// openServer builds the server that Run serves with.
func (g *Gateway) openServer() {
	g.server = &http.Server{
		BaseContext: func(net.Listener) context.Context { return g.base },
		ConnState:   g.noteClient,
		ConnContext: listener.WithConn,
		Handler:     g.idle.Handler(g.handler), ReadHeaderTimeout: readHeaderTimeout, ReadTimeout: readTimeout,
		IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
		ErrorLog: slog.NewLogLogger(g.log.Handler(), slog.LevelDebug),
	}
	if g.certificate != nil {
		g.server.TLSConfig, g.server.HTTP2 = g.tlsConfig()
	}
}

// Listen opens a listener as Run does. Use it with WithListener if a program must know, before it makes a gateway, that
// the address is free or which port was chosen.
func Listen(ctx context.Context, addr string) (net.Listener, error) {
	return listener.Listen(ctx, addr)
}

// Run listens on Config.Addr, unless WithListener brought a listener. It speaks HTTPS if Config.TLSCert is set, and
// answers plain HTTP on the same port with a redirect. It serves until ctx ends, which is not an error,
// or serving fails. It must be called once. It does not close the gateway, which serves until Close.
func (g *Gateway) Run(ctx context.Context) error {
	l := g.listener
	if l == nil {
		var err error
		if l, err = Listen(ctx, g.cfg.Addr); err != nil {
			return err
		}
		g.listener = l
	}
	g.serving.Store(true)
	failed := make(chan error, 1)
	go func() { // ends with Close, which closes the listener
		defer close(g.served)
		failed <- g.serve(listener.Lasting{Listener: l})
	}()
	select {
	case <-ctx.Done():
		return nil
	case err := <-failed:
		if errors.Is(err, http.ErrServerClosed) || g.draining.Err() != nil && errors.Is(err, net.ErrClosed) {
			return nil
		}
		return fmt.Errorf("serve: %w", err)
	}
}

// Handler returns everything that Run serves, for a server of the program's own: the HTTP API below /api and /v1, the
// devices' WebSockets at /ws/chat, /healthz and /readyz. Paths are absolute. The server should have a read timeout, but
// no write timeout. WebSockets need HTTP/1.1. The server has its own certificate: Config.TLSCert is for Run.
func (g *Gateway) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.requests.add(1)
		defer g.requests.add(-1)
		ctx, cancel := context.WithCancelCause(r.Context())
		defer cancel(nil)
		defer context.AfterFunc(g.base, func() { cancel(context.Cause(g.base)) })()
		g.handler.ServeHTTP(w, r.WithContext(ctx))
	})
}

// noteClient counts the connections of the server, and passes their states to the limit of idle ones. WebSockets are
// not included.
func (g *Gateway) noteClient(conn net.Conn, state http.ConnState) {
	g.idle.Note(conn, state)
	switch state {
	case http.StateNew:
		g.clients.add(1)
	case http.StateIdle:
		if g.draining.Err() != nil {
			g.lastIdle.Store(time.Now().UnixNano())
		}
	case http.StateClosed, http.StateHijacked:
		g.clients.add(-1)
	}
}

// Pod returns the id of the pod, which every response contains.
func (g *Gateway) Pod() string { return g.pod.ID() }

// releaseReserve is the fraction of the drain timeout kept for the steps after the devices have left: releasing
// sessions, delivering queued messages, leaving the fleet.
const releaseReserve = 0.2

// Close stops the gateway within ctx, or within Config.DrainTimeout if ctx has no deadline. Devices are sent to another
// pod, and callers get the reason why their request ended. The order is:
//
//  1. Readiness turns red, and new devices are rejected.
//  2. Devices are sent away, each after its calls in flight and its turn have ended.
//  3. No more connections are accepted. Requests in flight finish; those that do not are ended and return a reason.
//  4. Sessions are released, the bus delivers queued messages, and the lease is released. Programs of the
//     built-in tools are ended.
//  5. The connections to Redis, or the state file, are closed. Metrics are served until then.
//
// A program that serves through Handler must shut its own server down after Close, because Close ends what is in flight
// there. The error lists everything that had to be ended early. Close is safe on a gateway that did not start
// completely. It must be called once.
func (g *Gateway) Close(ctx context.Context) error {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, g.cfg.DrainTimeout)
		defer cancel()
	}
	g.drainBegan.Store(time.Now().UnixNano())
	g.beginDrain()
	var errs []error
	gentle, cancel := context.WithDeadline(ctx, reserved(ctx))
	defer cancel()
	defer time.AfterFunc(time.Until(reserved(ctx))/2, g.endTurns).Stop()
	if g.devices != nil {
		errs = append(errs, g.devices.Close(gentle))
	}
	errs = append(errs, g.closeListener(gentle))
	g.waitForClients(gentle)
	g.endTurns()
	last := time.AfterFunc(time.Until(reserved(gentle)), func() { g.endRequests(registry.ErrDraining) })
	errs = append(errs, g.closeServer(gentle))
	last.Stop()
	g.endRequests(registry.ErrDraining)
	return errors.Join(append(errs, g.closeServices(gentle, ctx), g.closeStore(ctx))...)
}

// closeServices stops what serves calls, once callers and devices have left. gentle ends earlier than ctx.
func (g *Gateway) closeServices(gentle, ctx context.Context) error {
	var errs []error
	if g.chat != nil { // its callers are gone, so running turns end soon
		errs = append(errs, g.chat.Close(gentle))
	}
	errs = append(errs, g.closeServer(ctx)) // requests that had to be ended still return a reason
	if g.approvals != nil {                 // its callers are gone
		g.approvals.Close()
	}
	if g.pod != nil {
		g.pod.Drain(gentle)
		errs = append(errs, g.pod.Close(ctx))
	}
	errs = append(errs, g.upstreams.close(ctx), g.builtins.close(ctx))
	if g.wakes != nil {
		g.wakes.Close(gentle)
	}
	if g.files != nil {
		errs = append(errs, g.files.Close())
	}
	for _, h := range g.webhooks {
		h.Close()
	}
	if g.audit != nil {
		errs = append(errs, g.usage.Close(ctx), g.closeBudgets(ctx), g.audit.Close(ctx))
	}
	g.closeIdentity(ctx)
	return errors.Join(errs...)
}

// closeStore closes bus, store and files, which everything else uses.
func (g *Gateway) closeStore(ctx context.Context) error {
	var errs []error
	if g.bus != nil {
		errs = append(errs, g.bus.Close(ctx))
	}
	if g.redis != nil {
		errs = append(errs, g.redis.Close())
	}
	errs = append(errs, g.closeMemory(ctx))
	if g.policyFile != nil {
		g.policyFile.Close()
	}
	if g.certificate != nil {
		g.certificate.Close()
	}
	return errors.Join(append(errs, g.monitor.close())...)
}

// closeServer waits for the requests in flight, those of the gateway's own server and those through Handler.
func (g *Gateway) closeServer(ctx context.Context) error {
	errs := []error{ignoreClosed(g.server.Shutdown(ctx))}
	select {
	case <-g.requests.none():
	case <-ctx.Done():
		errs = append(errs, ctx.Err())
	}
	return errors.Join(errs...)
}

// ignoreClosed returns nil if the error says that something was closed before.
func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// clientsTimeout is how long callers with an open connection have to leave it: the answer to their next request tells
// them to reconnect, or they close an unused connection.
const clientsTimeout = 500 * time.Millisecond

// waitForClients waits until callers have left their kept-alive connections, and until new connections have sent their
// request. Closing a connection while a request is being sent leaves the caller without an answer, and http.Server
// drops requests that it reads after Shutdown began. A request answered just as the drain began did not yet tell its
// caller to reconnect, so the timeout of its connection starts then.
func (g *Gateway) waitForClients(ctx context.Context) {
	for last := time.Now(); ; {
		wait := time.NewTimer(time.Until(last.Add(clientsTimeout)))
		select {
		case <-g.clients.none():
		case <-wait.C:
		case <-ctx.Done():
		}
		wait.Stop()
		idle := time.Unix(0, g.lastIdle.Load())
		if !idle.After(last) || ctx.Err() != nil {
			return
		}
		last = idle
	}
}

// emptyTimeout is how long connections in the listener's queue may take to be accepted. emptyFor is how long the queue
// must be empty before the listener closes: connections that were being established arrive within that time.
const (
	emptyTimeout = 250 * time.Millisecond
	emptyFor     = 20 * time.Millisecond
)

// closeListener stops new connections, waits until the server has accepted all established ones, and closes the
// listener. Closing a listener resets the connections in its queue, and loses the requests sent on them. Clients that
// connect meanwhile retry, and are refused after the listener is closed.
func (g *Gateway) closeListener(ctx context.Context) error {
	if !g.serving.Load() {
		if brought := g.settings.listener; brought != nil {
			return ignoreClosed(brought.Close())
		}
		return nil
	}
	g.emptyListener(ctx)
	err := ignoreClosed(g.listener.Close())
	select {
	case <-g.served: // Shutdown waits for the last accepted connection, like all others
	case <-ctx.Done():
	}
	return err
}

func (g *Gateway) emptyListener(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, emptyTimeout)
	defer cancel()
	waiting := listener.Quiet(g.listener)
	if waiting == nil {
		return
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for empty := time.Now(); time.Since(empty) < emptyFor; {
		if waiting() > 0 {
			empty = time.Now()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// reserved returns the deadline of the graceful part of Close.
func reserved(ctx context.Context) time.Time {
	deadline, _ := ctx.Deadline() // Close sets one
	return deadline.Add(-time.Duration(float64(time.Until(deadline)) * releaseReserve))
}
