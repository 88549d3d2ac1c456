package farhand

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/sandbox"
	"github.com/farhand/farhand/api"
	"github.com/farhand/farhand/internal/metrics"
	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/internal/trace"
	"github.com/farhand/farhand/redisstore"
)

// profileTimeout is how long a profile may take, and so an answer of the metrics address.
const profileTimeout = 2 * time.Minute

// monitoring holds a gateway's metrics, and serves them at their own address if one is set. That address requires no
// authentication.
type monitoring struct {
	set      *metrics.Set
	listener net.Listener // nil: /metrics is served with everything else, to admins
	server   *http.Server
	done     chan struct{} // closed when the server has ended
}

// openMonitoring opens the listener if a metrics address is set. Nothing is served before watch. Listening is its last
// step, so after an error nothing is left open.
func openMonitoring(ctx context.Context, cfg Config, models []string, brought settings) (*monitoring, error) {
	m := &monitoring{set: metrics.New(models, brought.version)}
	if cfg.MetricsAddr == "" {
		return m, nil
	}
	handler, err := monitoringHandler(cfg, m.set, brought)
	if err != nil {
		return nil, fmt.Errorf("FARHAND_METRICS_ADDR %s: %w", cfg.MetricsAddr, err)
	}
	if m.listener, err = new(net.ListenConfig).Listen(ctx, "tcp", cfg.MetricsAddr); err != nil {
		return nil, fmt.Errorf("listen on FARHAND_METRICS_ADDR %s: %w", cfg.MetricsAddr, err)
	}
	m.server = &http.Server{
		Handler: handler, ReadHeaderTimeout: readHeaderTimeout, ReadTimeout: readTimeout, WriteTimeout: profileTimeout,
		IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
	}
	return m, nil
}

// monitoringHandler returns the handler of the metrics address. It rejects requests from web pages.
func monitoringHandler(cfg Config, set *metrics.Set, brought settings) (http.Handler, error) {
	origins, err := auth.NewOrigins(nil, auth.IsLoopbackHost(cfg.MetricsAddr))
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", set.Handler())
	if cfg.Pprof {
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	if brought.level != nil {
		level := logLevel{brought.level, brought.log}
		mux.HandleFunc("GET /loglevel", level.show)
		mux.HandleFunc("PUT /loglevel", level.set)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := origins.Check(r); err != nil {
			http.Error(w, "Web pages may not read this.", http.StatusForbidden)
			return
		}
		mux.ServeHTTP(w, r)
	}), nil
}

// logLevel serves the level of the log.
type logLevel struct {
	level *slog.LevelVar
	log   *slog.Logger
}

func (l logLevel) show(w http.ResponseWriter, _ *http.Request) {
	fmt.Fprintln(w, strings.ToLower(l.level.Level().String()))
}

// maxLevel is the maximum length of a level's name, with a newline.
const maxLevel = 16

// set sets the level until the process ends, and writes to the log that it did.
func (l logLevel) set(w http.ResponseWriter, r *http.Request) {
	text, err := io.ReadAll(io.LimitReader(r.Body, maxLevel+1))
	name := strings.TrimSpace(string(text))
	var to slog.Level
	known := []string{"debug", "info", "warn", "error"}
	if err != nil || !slices.Contains(known, name) || to.UnmarshalText([]byte(name)) != nil {
		http.Error(w, "The body must be debug, info, warn or error.", http.StatusBadRequest)
		return
	}
	was := l.level.Level()
	l.level.Set(min(was, to)) // so that the line is written
	l.log.Log(r.Context(), max(slog.LevelWarn, l.level.Level()), "log level changed", "from", was, "to", to)
	l.level.Set(to)
	l.show(w, r)
}

// handler returns the handler for the main address, or nil if the metrics have their own address.
func (m *monitoring) handler() http.Handler {
	if m.listener != nil {
		return nil
	}
	return m.set.Handler()
}

// watch exports the counters of a gateway, and starts serving.
func (m *monitoring) watch(g *Gateway, handler *api.Handler, refusals *auth.Refusals) {
	p := metrics.Pod{
		Routing: g.pod.Stats, Sockets: g.devices.Stats, API: handler.Stats, Refusals: refusals.Counts,
		Audit: g.audit.Stats, Budgets: g.budgets.Stats, Tenants: g.devices.Tenants, Approvals: g.approvals.Stats,
		Drained: g.drained,
		Disks:   g.disks(), Wakes: g.wakes.Stats, Groups: g.groups.Stats,
	}
	if g.cfg.ModelPrices != "" {
		p.Prices = g.prices.Status
	}
	if g.chat != nil {
		p.Turns = g.chat.Stats
	}
	if g.redis != nil {
		p.RedisPools, p.Unreadable = g.redis.Pools, g.redis.Refused
		p.Bus = g.bus.(interface{ Stats() redisstore.BusStats }).Stats
	}
	if g.rotation != nil {
		p.PreviousTokens = g.rotation.Uses
	}
	if g.builtins.containers != nil {
		p.Containers = g.builtins.containers.Stats
	}
	if g.builtins.browsers != nil {
		p.Browsers = g.builtins.browsers.Stats
	}
	if g.policyFile != nil {
		p.PolicyFile = g.policyFile.Status
	}
	if g.certificate != nil {
		p.TLS = g.certificate.Status
	}
	if counts, ok := g.settings.traces.(interface{ Stats() trace.Stats }); ok {
		p.Traces = counts.Stats
	}
	for _, h := range g.webhooks {
		p.Hooks = append(p.Hooks, h.Stats)
	}
	if g.upstreams.servers != nil {
		p.MCPServers = g.upstreams.servers.Status
	}
	p.Pools = g.pools(handler)
	m.set.Watch(p)
	if m.listener == nil {
		return
	}
	m.done = make(chan struct{})
	go func() {
		defer close(m.done)
		_ = m.server.Serve(m.listener) // ends with close
	}()
}

// disks returns a reader of the disks of the folders that this pod writes to.
func (g *Gateway) disks() func() []metrics.Disk {
	dirs := make(map[string]string)
	if g.stateFile != nil {
		dirs[metrics.FolderData] = g.cfg.DataDir
	}
	if g.files != nil {
		where, _, _ := g.cfg.blobURL(g.settings.store != nil) // valid, because the files are open
		if u, err := url.Parse(where); err == nil && u.Scheme == "file" {
			dirs[metrics.FolderBlobs] = u.Path
		}
	}
	if g.builtins.workspaces != nil {
		dirs[metrics.FolderWorkspaces], _ = g.cfg.workspaceDir()
	}
	return func() (all []metrics.Disk) {
		for folder, dir := range dirs {
			if free, size, err := sandbox.Disk(dir); err == nil { // else the system cannot say
				all = append(all, metrics.Disk{Folder: folder, Free: free, Size: size})
			}
		}
		return all
	}
}

// drained returns the used part of the time for stopping, 0 to 1.
func (g *Gateway) drained() float64 {
	began := g.drainBegan.Load()
	if began == 0 {
		return 0
	}
	return min(time.Since(time.Unix(0, began)).Seconds()/g.cfg.DrainTimeout.Seconds(), 1)
}

// pools returns the readers of the pools that tenants share.
func (g *Gateway) pools(handler *api.Handler) (reads []func() map[string]share.Stats) {
	reads = append(reads, handler.Pools, g.idle.Pool, g.devices.Pools, g.pod.Pools, g.wakes.Pools, g.schemas.Pools)
	reads = append(reads, g.groups.Pools)
	if g.chat != nil {
		reads = append(reads, g.chat.Pools)
	}
	for _, h := range g.webhooks {
		reads = append(reads, h.Pools)
	}
	if g.upstreams.servers != nil {
		reads = append(reads, g.upstreams.servers.Pools)
	}
	if g.builtins.browsers != nil {
		reads = append(reads, g.builtins.browsers.Pools)
	}
	if commands := g.builtins.commands; commands != nil {
		reads = append(reads, func() map[string]share.Stats {
			return map[string]share.Stats{"commands": commands.Stats()}
		})
	}
	return reads
}

// close stops serving immediately: a scrape can be repeated.
func (m *monitoring) close() error {
	if m == nil || m.listener == nil {
		return nil
	}
	if m.done == nil {
		return m.listener.Close()
	}
	err := m.server.Close()
	<-m.done
	return err
}

// gauge counts current items, and notifies when there are none. It is safe for concurrent use.
type gauge struct {
	mu   sync.Mutex
	n    int
	zero chan struct{} // closed when the count is zero; nil without waiters
}

func (g *gauge) add(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.n += n
	if g.n == 0 && g.zero != nil {
		close(g.zero)
		g.zero = nil
	}
}

// none returns a channel that closes when the count is zero.
func (g *gauge) none() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	zero := g.zero
	if zero == nil {
		zero = make(chan struct{})
		g.zero = zero
	}
	if g.n == 0 {
		close(zero)
		g.zero = nil
	}
	return zero
}
