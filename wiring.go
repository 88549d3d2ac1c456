package farhand

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/access/erasure"
	"github.com/farhand/farhand/agent/access/pairing"
	"github.com/farhand/farhand/agent/access/policy"
	"github.com/farhand/farhand/agent/chat"
	"github.com/farhand/farhand/agent/chat/loopguard"
	"github.com/farhand/farhand/agent/hooks"
	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/agent/sandbox"
	"github.com/farhand/farhand/agent/sandbox/host"
	"github.com/farhand/farhand/agent/schema"
	"github.com/farhand/farhand/agent/tools/upstream"
	"github.com/farhand/farhand/api"
	"github.com/farhand/farhand/internal/days"
	"github.com/farhand/farhand/internal/listener"
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
		g.log.Warn("messages of pods are also accepted without a signature: set FARHAND_FLEET_SECRET_REQUIRED=true when " +
			"all pods have FARHAND_FLEET_SECRET")
	}
	g.redis, g.bus = conn, conn.Bus()
	return conn.Store(), nil
}

// redis returns the options of the connection to Redis.
func (c Config) redis() redisstore.Options {
	return redisstore.Options{
		URL: string(c.RedisURL), CAFile: c.RedisCA, CertFile: c.RedisCert, KeyFile: c.RedisKey, Timeout: c.RedisTimeout,
		Secrets: c.fleetSecrets(), UnsignedToo: !c.FleetRequired,
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
			"  if it requires a client certificate, set FARHAND_REDIS_TLS_CERT_FILE and FARHAND_REDIS_TLS_KEY_FILE to one "+
			"that its authority signed", err)
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
		Retention: g.cfg.Retention,
		Invoker:   a.invoker, Calls: g.pod.Calls, Directory: a.store, Conversations: a.store, Kicker: g.pod.Hub,
		Queue: g.pod.Queue, Devices: a.store,
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

func (g *Gateway) erasure(store registry.Store) *erasure.Service {
	limits := g.cfg.storeLimits().WithDefaults()
	return erasure.New(erasure.Config{
		Store: store, AuditTTL: limits.AuditTTL, ChangeTTL: limits.ChangeTTL, ActivityTTL: limits.ActivityTTL,
		HistoryTTL: limits.HistoryTTL, PlaceTTL: limits.PlaceTTL, SessionTTL: limits.SessionTTL,
	})
}

// erasing returns the function that hides the memories of tools before a conversation is erased. If it fails, the
// deletion fails: memories that outlive it would be readable in the next conversation of that name.
func (g *Gateway) erasing(store registry.Store) func(context.Context, registry.Key) error {
	return func(ctx context.Context, key registry.Key) error {
		return store.EraseToolMemories(ctx, key, g.cfg.HistoryTTL)
	}
}

// erasedTimeout is how long the rest of an erased conversation may take to remove.
const erasedTimeout = 5 * time.Second

// erased returns the function that removes what else there is of an erased conversation. It continues after the request
// ends.
func (g *Gateway) erased(store registry.Store) func(context.Context, registry.Key) {
	return func(ctx context.Context, key registry.Key) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), erasedTimeout)
		defer cancel()
		// Again, for what a turn stored that began before the conversation was erased.
		if err := store.EraseToolMemories(ctx, key, g.cfg.HistoryTTL); err != nil {
			g.log.Warn("memories that tools stored during a deletion not removed; tools can read them until they expire",
				"session", key.Session, "error", err)
		}
		if err := store.DropBlobsOf(ctx, key); err != nil {
			g.log.Warn("files of a deleted conversation not removed; they are readable until they expire",
				"session", key.Session, "error", err)
		}
		g.pod.Places.Erased(ctx, key)
	}
}

// openHooks returns the custom hooks in the order in which they run before a call: those of the program, then those of
// the file.
func (g *Gateway) openHooks() ([]agent.Hook, error) {
	all := slices.Clone(g.settings.hooks)
	if g.cfg.HooksFile == "" {
		return all, nil
	}
	configs, err := hooks.Load(g.cfg.HooksFile)
	if err != nil {
		return nil, fmt.Errorf("FARHAND_HOOKS_FILE: %w", err)
	}
	for _, c := range configs {
		h, err := hooks.New(c, g.log)
		if err != nil {
			return nil, fmt.Errorf("FARHAND_HOOKS_FILE: %w", err)
		}
		g.webhooks = append(g.webhooks, h)
		if !h.Notifies() {
			all = append(all, h)
		}
	}
	return all, nil
}

// approvalRequested notifies the hooks of the file that a call needs an approval. The notification has links if the
// gateway's URL is known: one for programs, and one for people if the gateway serves the console. Calls start only
// after all hooks exist.
func (g *Gateway) approvalRequested(a registry.Approval) {
	var links hooks.Links
	if url := g.cfg.publicURL(); url != "" {
		links.API = url + "/api/approvals/" + a.ID
		if g.cfg.Console != consoleOff {
			links.Console = url + "/console/approvals/" + a.ID
		}
	}
	for _, h := range g.webhooks {
		h.ApprovalRequested(a, links)
	}
}

func (g *Gateway) modelNames() []string {
	var names []string
	for _, m := range g.settings.models {
		names = append(names, m.Name())
	}
	return append(names, g.cfg.Models...)
}

func (g *Gateway) hasModel() bool { return len(g.cfg.Models)+len(g.settings.models) > 0 }

// openAgent returns the agent that holds conversations, or nil without a model.
func (g *Gateway) openAgent(
	store registry.Store, invoker *agent.Invoker, rules *agent.Policy, localTools *agent.LocalTools,
) (chat.Agent, error) {
	if !g.hasModel() {
		return nil, nil
	}
	toolSets := agent.NewToolSets(agent.ToolSetsConfig{
		Invoker: invoker, Directory: store, Policy: rules, LocalTools: localTools, OtherSessions: g.cfg.OtherSessions,
		Approvals: true, Devices: store, Log: g.log,
	})
	models := append([]provider.Model(nil), g.settings.models...)
	if g.cfg.ModelPrices != "" {
		g.monitor.set.Turns.Price = func(model string, u provider.Usage) (float64, bool) {
			price, ok := g.prices.Of(model)
			return float64(price.Cost(u.Input, u.Output)) / 1e6, ok
		}
	}
	var err error
	g.chat, err = chat.NewEngine(chat.Config{
		Models: append(models, g.cfg.models(g.log)...), Store: store, Budget: g.pod.History,
		ModelBudget: g.budgets,
		OpenTools:   func(sc agent.SessionContext) chat.Tools { return toolSets.Open(sc) },
		Activity:    turnActivity{g.monitor.set.Turns, g.pod.Calls, g.usage},
		System:      g.cfg.SystemPrompt, SystemFor: g.settings.system, Files: g.files, Calls: g.pod.Calls,
		Limits: g.cfg.Turns,
		Log:    g.log,
	})
	if err != nil {
		return nil, err
	}
	g.pod.Turns.Serve(g.chat.Abort)
	g.pod.Places.Serve(registry.PlaceKeeper{Erased: func(_ context.Context, key registry.Key, _ int64) {
		g.chat.Erased(key)
	}})
	return g.chat, nil
}

// upstreams holds the MCP servers whose tools the gateway offers.
type upstreams struct {
	list    []upstream.Server // of the file; nil without one
	servers *upstream.Servers
	host    sandbox.Engine // runs those that are programs; nil without an engine
}

// loadServers reads the file of MCP servers, if one is set.
func (c Config) loadServers() ([]upstream.Server, error) {
	if c.MCPServers == "" {
		return nil, nil
	}
	list, err := upstream.Load(c.MCPServers, os.LookupEnv)
	if err != nil {
		return nil, fmt.Errorf("FARHAND_MCP_SERVERS: %w", err)
	}
	return list, nil
}

func inSandbox(s upstream.Server) bool { return s.Sandbox }
func isProgram(s upstream.Server) bool { return s.Command != nil && !s.Sandbox }

// openUpstreams starts connecting to the MCP servers, and adds their tools to the local ones.
func (g *Gateway) openUpstreams(a *core) error {
	u := &g.upstreams
	if len(u.list) == 0 {
		return nil
	}
	allowAll, err := policy.New(policy.Options{}) // the policy's registration rules are for devices
	if err != nil {
		return err
	}
	cfg := upstream.Config{
		Servers: u.list, Version: g.settings.version, Log: g.log,
		Sandbox: g.builtins.sandbox, NoSandbox: g.builtins.noSandbox,
		Limits:    sandbox.Limits{Memory: g.cfg.ProgramMemory, Processes: g.cfg.Processes},
		Admission: agent.NewAdmission(allowAll, a.schemas, g.cfg.admissionLimits(), g.builtinNames(a.localTools)...),
	}
	if g.builtins.workspaces != nil {
		cfg.Workspaces = g.builtins.workspaces
	}
	if slices.ContainsFunc(u.list, isProgram) {
		if cfg.Host, cfg.NoHost, err = openHost(g.settings.program); err != nil {
			return err
		}
		u.host = cfg.Host
	}
	u.servers = upstream.New(cfg)
	a.localTools = a.localTools.WithLive(u.servers)
	return nil
}

// openHost opens the engine that runs MCP servers on this machine. If there is none, it returns nil and the reason.
func openHost(p host.Program) (sandbox.Engine, string, error) {
	engine, err := host.New(host.Config{Program: p})
	switch {
	case errors.Is(err, sandbox.ErrUnavailable):
		return nil, err.Error(), nil
	case err != nil:
		return nil, "", err
	}
	return engine, "", nil
}

// prefixes returns the prefixes that names of devices' tools must not have.
func (u *upstreams) prefixes() []string {
	var all []string
	for _, s := range u.list {
		all = append(all, upstream.Prefix(s.Name)+"*")
	}
	return all
}

// close ends the connections and the programs.
func (u *upstreams) close(ctx context.Context) error {
	var errs []error
	if u.servers != nil {
		errs = append(errs, u.servers.Close(ctx))
	}
	if u.host != nil {
		errs = append(errs, u.host.Close(ctx))
	}
	return errors.Join(errs...)
}

// checkServers connects to each MCP server of the file once.
func checkServers(ctx context.Context, cfg Config, program host.Program) (string, error) {
	list, err := cfg.loadServers()
	if err != nil || len(list) == 0 {
		return "none are configured (FARHAND_MCP_SERVERS)", err
	}
	probe := upstream.Config{}
	if slices.ContainsFunc(list, isProgram) {
		if probe.Host, probe.NoHost, err = openHost(program); err != nil {
			return "", err
		}
		if probe.Host != nil {
			defer probe.Host.Close(context.WithoutCancel(ctx))
		}
	}
	names := make([]string, len(list))
	for i, s := range list {
		names[i] = s.Name
	}
	return eachOf(names, func(i int) (string, error) {
		if list[i].Sandbox {
			return "not checked here: its program runs in the sandbox", nil
		}
		text, err := upstream.Probe(ctx, probe, list[i])
		if err != nil && list[i].Optional {
			return err.Error(), nil
		}
		return text, err
	})
}
