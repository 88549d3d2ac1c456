package farhand

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"unicode"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/access/budget"
	"github.com/farhand/farhand/agent/access/pairing"
	"github.com/farhand/farhand/agent/chat"
	"github.com/farhand/farhand/agent/chat/loopguard"
	"github.com/farhand/farhand/agent/schema"
	"github.com/farhand/farhand/agent/wake"
	"github.com/farhand/farhand/api"
	"github.com/farhand/farhand/internal/days"
	"github.com/farhand/farhand/internal/listener"
	"github.com/farhand/farhand/internal/reload"
	"github.com/farhand/farhand/redisstore"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/routing"
	"github.com/farhand/farhand/ws"
)

// storeLimits returns the limits of the store.
func (c Config) storeLimits() registry.Limits {
	return registry.Limits{
		SessionTTL: c.SessionTTL, PodLease: c.PodLease, Retention: c.Retention, IdempotencyTTL: c.IdempotencyTTL,
		ActivityTTL: c.ActivityTTL, ActivityCap: c.ActivityCap, ActivityBytes: int(c.ActivityBytes),
		HistoryTTL: c.HistoryTTL, HistoryCap: c.HistoryCap, AuditTTL: c.AuditTTL, AuditCap: c.AuditCap,
		AuditBytes: int(c.AuditBytes), Credentials: c.MaxCredentials, ChangeTTL: c.changeTTL(),
		Revocations: c.MaxRevocations, UsageTTL: c.UsageTTL, UsageRows: c.UsageRows, PlaceTTL: c.placeTTL(),
	}
}

// memory returns how long devices are remembered.
func (c Config) memory() (routing.MemoryConfig, error) {
	others, err := days.Parse(c.DeviceRetention)
	if err == nil && others < 0 {
		err = errors.New("is negative")
	}
	return routing.MemoryConfig{Paired: c.PairedRetention, Others: others}, err
}

// openStore connects to the shared store and returns it: the program's, Redis, or memory.
func (g *Gateway) openStore(ctx context.Context) (registry.Store, error) {
	if g.settings.store != nil {
		g.bus = g.settings.bus
		return g.settings.store, nil
	}
	if g.cfg.RedisURL == "" {
		var err error
		if g.memory, g.stateFile, err = g.cfg.openMemory(g.cfg.storeLimits(), g.log); err != nil {
			return nil, err
		}
		g.bus = g.memory.NewBus()
		return g.memory, nil
	}
	options := g.cfg.redis()
	options.Limits, options.Log, options.Meter = g.cfg.storeLimits(), g.log, g.monitor.set.Redis
	conn, err := redisstore.Dial(ctx, options)
	if err != nil {
		return nil, explainRedis(err)
	}
	for _, warning := range conn.Warnings() {
		g.log.Warn("redis is configured unsafely", "warning", warning)
	}
	if len(options.Secrets) > 0 && options.UnsignedToo {
		g.log.Warn("messages of pods are also accepted without a signature: set FARHAND_FLEET_SECRET_REQUIRED=true " +
			"when all pods have FARHAND_FLEET_SECRET")
	}
	g.redis, g.bus = conn, conn.Bus()
	return conn.Store(), nil
}

// redis returns the options of the connection to Redis.
func (c Config) redis() redisstore.Options {
	return redisstore.Options{
		URL: string(c.RedisURL), CAFile: c.RedisCA, CertFile: c.RedisCert, KeyFile: c.RedisKey, Timeout: c.RedisTimeout,
		Replicas: c.RedisReplicas,
		Secrets:  c.fleetSecrets(), UnsignedToo: !c.FleetRequired,
	}
}

func (c Config) fleetSecrets() []string {
	return strings.FieldsFunc(string(c.FleetSecret), func(r rune) bool { return r == ',' || unicode.IsSpace(r) })
}

// explainRedis adds what to do to an error of Redis.
func explainRedis(err error) error {
	network, certificate, alert := net.Error(nil), (*tls.CertificateVerificationError)(nil), tls.AlertError(0)
	switch {
	case errors.As(err, &alert):
		return fmt.Errorf("FARHAND_REDIS_URL: Redis ends the TLS handshake: %w\n"+
			"  if it requires a client certificate, set FARHAND_REDIS_TLS_CERT_FILE and FARHAND_REDIS_TLS_KEY_FILE "+
			"to one that its authority signed", err)
	case errors.As(err, &certificate):
		return fmt.Errorf("FARHAND_REDIS_URL: the certificate of Redis cannot be verified: %w\n"+
			"  if its authority is your own, set FARHAND_REDIS_CA to the file with the certificate of that authority",
			err)
	case errors.As(err, &network):
		return fmt.Errorf("FARHAND_REDIS_URL: Redis does not answer: %w\n"+
			"  start one: redis-server, or docker run -p 6379:6379 redis:7\n"+
			"  or unset FARHAND_REDIS_URL: a single process does not need Redis", err)
	default:
		return fmt.Errorf("FARHAND_REDIS_URL: %w", err)
	}
}

// core is what the APIs of devices and of callers share.
type core struct {
	store         registry.Store
	rules         *agent.Policy
	schemas       *schema.Validator
	localTools    *agent.LocalTools
	invoker       *agent.Invoker
	conversations chat.Agent

	authenticator auth.Authenticator
	origins       *auth.Origins
	sources       auth.Sources
	refusals      *auth.Refusals
}

// openAPIs builds the operations and the two APIs in front of them.
func (g *Gateway) openAPIs(store registry.Store, schemas *schema.Validator) (http.Handler, error) {
	a := &core{store: store, schemas: schemas}
	for _, open := range []func(*core) error{g.openAccess, g.openOperation, g.openDevices} {
		if err := open(a); err != nil {
			return nil, err
		}
	}
	return g.openHTTP(a)
}

func (g *Gateway) openAccess(a *core) (err error) {
	if a.rules, err = g.openPolicy(); err != nil {
		return err
	}
	a.origins, err = auth.NewOrigins(g.cfg.origins(),
		g.settings.authenticator == nil && g.cfg.Anonymous())
	if err != nil {
		return err
	}
	if err := a.origins.AllowHosts(g.cfg.hosts()...); err != nil {
		return err
	}
	if a.sources, err = auth.NewSources(g.cfg.TrustedProxies); err != nil {
		return err
	}
	a.authenticator = g.authenticator(a.sources)
	a.refusals = auth.NewRefusals(a.sources, g.log)
	a.refusals.AuditTo(g.audit)
	g.pairing.Serve(pairing.NodeConfig{Auth: a.authenticator, Refusals: a.refusals, Sources: a.sources})
	return nil
}

func (g *Gateway) openOperation(a *core) (err error) {
	if a.localTools, err = g.localTools(a.store, a.rules); err != nil {
		return err
	}
	if err = g.openUpstreams(a); err != nil {
		return err
	}
	loops := loopguard.New(loopguard.Config{
		Store: a.store, Warn: g.cfg.LoopWarn, Block: g.cfg.LoopBlock, Log: g.log,
	})
	hooks, err := g.openHooks()
	if err != nil {
		return err
	}
	a.invoker = agent.NewInvoker(agent.Config{
		Router: g.pod.Router, CallLog: g.pod.Calls, Policy: a.rules, Schemas: a.schemas, LocalTools: a.localTools,
		Guards: []agent.Hook{agent.NewBudgets(g.budgets), loops}, Hooks: hooks,
		Timeout: g.cfg.CallTimeout, MaxTimeout: g.cfg.MaxCallTimeout,
		Log: g.log, Tracer: g.tracer, Pod: g.pod.ID(), Live: g.live, Audit: g.audit, Files: g.files, Uploads: g.files,
		Places: g.pod.Places, Queue: g.pod.Queue, QueueTTL: g.cfg.Queue.TTL, Wake: g.wakes.Wake, Defaults: a.store,
		Meter:     meters{g.monitor.set.Calls, g.usage, callBytes{g.budgets}},
		Limits:    agent.NewRateLimits(a.store, g.cfg.callLimits(), g.cfg.LimitsFail == limitsOpen, g.log),
		Approvals: g.approvals, ApprovalTimeout: g.cfg.ApprovalTime, DeferredTimeout: g.cfg.DeferredTime,
	})
	g.approvals.Serve(a.invoker)
	g.pod.Queue.Serve(a.invoker)
	a.conversations, err = g.openAgent(a.store, a.invoker, a.rules, a.localTools)
	return err
}

func (g *Gateway) openDevices(a *core) (err error) {
	own := append(g.builtinNames(a.localTools), g.upstreams.prefixes()...)
	g.devices, err = ws.NewServer(ws.Config{
		Uploads: g.files, Files: g.files, Wakes: g.wakes, Nodes: g.pairing,
		Pod: g.pod, Admission: agent.NewAdmission(a.rules, a.schemas, g.cfg.admissionLimits(), own...),
		Auth: a.authenticator, Pairing: g.pairing, Live: g.live, Origins: a.origins, Agent: a.conversations,
		Conversations: a.store, Decisions: g.approvals, Defaults: a.store,
		MaxFramesPerSecond: g.cfg.FrameRate, FrameBurst: g.cfg.FrameBurst, MessageTimeout: g.cfg.MessageTimeout,
		MaxUnfinished: g.cfg.MaxUnfinished, MaxOpensPerSecond: g.cfg.OpenRate, OpensBurst: g.cfg.OpenBurst,
		MaxSockets: g.cfg.sockets(listener.OpenFiles()),
		Sources:    a.sources, Refusals: a.refusals,
		MaxFrame: g.cfg.MaxFrame, MaxOutput: g.cfg.MaxOutput, MaxOutbound: int(g.cfg.MaxOutbound),
		MaxUnsent: g.cfg.MaxUnsent, MaxNodeFrame: int64(g.cfg.MaxNodeFrame), Version: g.settings.version,
		PingInterval: g.cfg.PingInterval, PongTimeout: g.cfg.PongTimeout, DenyQueryToken: !g.cfg.AllowQuery,
		IgnoreDebug: !g.cfg.AllowDebug, Log: g.log, Tracer: g.tracer,
	})
	if err == nil {
		g.revocationTarget.Store(g.devices)
	}
	return err
}

// nodes returns the handler for OpenClaw nodes, nil if none are served.
func (g *Gateway) nodes() http.Handler {
	if g.cfg.NodePath == nodesOff {
		return nil
	}
	return g.devices.Node()
}

func (g *Gateway) openHTTP(a *core) (http.Handler, error) {
	var pages api.Pages
	if g.cfg.Console != consoleOff {
		pages = g.pages()
	}
	handler, err := api.NewHandler(api.Config{
		Pages: pages, Files: g.files, Resource: g.cfg.resource(), States: a.store, TaskAfter: g.cfg.CallTimeout,
		QueueTTL:  g.cfg.Queue.TTL,
		Retention: g.cfg.Retention,
		Invoker:   a.invoker, Calls: g.pod.Calls, Directory: a.store, Conversations: a.store, Kicker: g.pod.Hub,
		Queue: g.pod.Queue, Devices: a.store, History: g.pod.History,
		Turns: g.pod.Turns, Policy: a.rules, Auth: a.authenticator, Live: g.live, Credentials: a.store,
		Erasure: g.erasure(a.store),
		Origins: a.origins, Approvals: g.approvals, AuditLog: a.store, Usage: a.store, Pod: g.pod.ID(),
		Tenants: a.store, Budgets: g.budgets, Defaults: a.store,
		Version: g.settings.version, Console: g.cfg.Pages().Console, SignIn: g.signIn,
		Agent: a.conversations, Groups: g.groups, Builtins: a.localTools, Refusals: a.refusals,
		Audit: g.audit, Ending: g.erasing(a.store), Ended: g.erased(a.store), Ready: g.pod.Ready, Warnings: g.warnings,
		Draining: g.draining, Closing: g.closing,
		Device: g.devices, DeviceMCP: g.devices.MCP(), DeviceNode: g.nodes(), NodePath: g.cfg.NodePath,
		DeviceLimits: g.devices.Limits(), Log: g.log,
		Tracer:  g.tracer,
		Sources: a.sources, Limits: g.cfg.HTTP, MaxCallTimeout: g.cfg.MaxCallTimeout,
		MaxTurn: g.cfg.Turns.Turn, TurnWait: g.cfg.Turns.Wait, IgnoreDebug: !g.cfg.AllowDebug,
		MaxServed: g.cfg.requests(listener.OpenFiles()),
		Pairing:   g.pairing, Wakes: g.wakes, Metrics: g.monitor.handler(), Meter: g.monitor.set.HTTP,
		AccessLog: api.AccessLog(g.cfg.AccessLog), Operator: operator{g},
	})
	if err != nil {
		return nil, err
	}
	g.monitor.watch(g, handler, a.refusals)
	g.pod.Fleet.Serve(func() []byte { return g.summary(handler) })
	return handler, nil
}

// openWakes builds what wakes sleeping devices.
func (g *Gateway) openWakes(store registry.Store) (err error) {
	g.wakes, err = wake.New(wake.Config{
		Settings: g.cfg.Wake, Store: store, AllowPrivate: g.cfg.PrivateURLs, Log: g.log,
		Needed: func(ctx context.Context, r registry.WakeRecord) (wake.Need, error) {
			return neededFor(ctx, store, r)
		},
		Queued: store.ScanQueued,
		Searches: func(ctx context.Context) (bool, error) {
			live, err := store.Live(ctx)
			return len(live) > 0 && slices.Min(live) == g.pod.ID(), err
		},
	})
	if err != nil {
		return fmt.Errorf("FARHAND_WAKE_: %w", err)
	}
	return nil
}

// neededTools is how many queued calls are read for the names of their tools.
const neededTools = 16

// neededFor reports which calls wait for a device that is not connected, or whose app is in the background. A device of
// another user that chose the same id does not count: the user who registered must not learn of its calls.
func neededFor(ctx context.Context, store registry.Store, r registry.WakeRecord) (need wake.Need, err error) {
	target := registry.Target{DeviceID: r.DeviceID, UserID: r.User}
	if r.User == "" {
		target.Viewer = registry.NoUser
	}
	known, _, err := store.KnownDevices(ctx, registry.KnownQuery{Tenant: r.Tenant, Target: target})
	if err != nil {
		return need, err
	}
	for i := range known { // a session that only chose the id is another device
		target.Bound = target.Bound || known[i].Session.Bound
	}
	connected, _, err := store.List(ctx, registry.Query{Tenant: r.Tenant, Target: target, Limit: 1})
	if err != nil || len(connected) > 0 && !connected[0].Session.InBackground() {
		return need, err
	}
	for i := range known {
		ids, err := store.QueueOf(ctx, r.Tenant, known[i].Session.DeviceKey(), neededTools)
		if err != nil {
			return need, err
		}
		need.Calls += len(ids)
		for _, id := range ids {
			rec, err := store.ReadCall(ctx, r.Tenant, id)
			if err == nil && !slices.Contains(need.Tools, rec.Tool) {
				need.Tools = append(need.Tools, rec.Tool)
			}
		}
	}
	need.Wanted = need.Calls > 0
	return need, nil
}

// openBudgets builds what holds tenants and identities to their budgets, with the prices of models.
func (g *Gateway) openBudgets(store registry.Store) error {
	g.prices = new(budget.Prices)
	if path := g.cfg.ModelPrices; path != "" {
		prices, err := budget.OpenPrices(path, reload.DefaultInterval, g.log)
		if err != nil {
			return fmt.Errorf("FARHAND_MODEL_PRICES_FILE: %w", err)
		}
		g.prices = prices
		for _, model := range g.modelNames() {
			if _, ok := prices.Of(model); !ok {
				g.log.Warn("a model has no price in FARHAND_MODEL_PRICES_FILE; it costs nothing", "model", model)
			}
		}
	}
	g.budgets = budget.New(budget.Config{
		Store: store, Prices: g.prices, Open: g.cfg.LimitsFail == limitsOpen, Audit: g.audit, Warn: g.budgetReached,
		Log: g.log,
	})
	return nil
}

// closeBudgets writes what was spent last. It must run after all calls and turns have ended, and before the audit log
// closes.
func (g *Gateway) closeBudgets(ctx context.Context) error {
	if g.prices != nil {
		g.prices.Close()
	}
	if g.budgets == nil {
		return nil
	}
	return g.budgets.Close(ctx)
}

// callBytes counts the bytes of calls. It implements agent.Meter.
type callBytes struct{ budgets *budget.Ledger }

// CallEnded implements agent.Meter.
func (c callBytes) CallEnded(end agent.CallEnd) {
	if end.Outcome != agent.OutcomeReplayed { // counted when it ran
		c.budgets.CallEnded(end.Owner, int64(end.BytesIn)+int64(end.BytesOut))
	}
}

// budgetReached records in the activity feed of a tenant that a share of a budget is spent. Users see events of their
// own budgets only.
func (g *Gateway) budgetReached(e budget.Event) {
	a := registry.Activity{Tenant: e.Tenant, Type: registry.ActivityBudgetWarning, Reason: e.Text()}
	if e.Percent == 100 {
		a.Type = registry.ActivityBudgetSpent
	}
	a.UserID, _ = strings.CutPrefix(e.Identity, "user:")
	g.pod.Calls.Note(a)
}
