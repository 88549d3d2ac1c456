package farhand

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"slices"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/blobs"
	"github.com/farhand/farhand/agent/group"
	"github.com/farhand/farhand/agent/sandbox"
	"github.com/farhand/farhand/agent/sandbox/docker"
	"github.com/farhand/farhand/agent/sandbox/host"
	"github.com/farhand/farhand/agent/sandbox/workspace"
	"github.com/farhand/farhand/agent/tools"
	"github.com/farhand/farhand/agent/tools/browser"
	filetools "github.com/farhand/farhand/agent/tools/files"
	"github.com/farhand/farhand/agent/tools/nodes"
	"github.com/farhand/farhand/agent/tools/shell"
	"github.com/farhand/farhand/api"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/ws"
)

// builtins holds what the gateway's own tools use: their workspaces, and the engines that run their programs. Only what
// enabled tools need is opened.
type builtins struct {
	log        *slog.Logger
	workspaces *workspace.Workspaces // nil: none is needed
	host       sandbox.Engine        // nil: noHost says why
	noHost     string
	sandbox    sandbox.Engine // nil: noSandbox says why
	noSandbox  string
	containers *docker.Engine    // of sandbox; nil: it has none
	browsers   *browser.Browsers // nil: it is not enabled
	commands   *shell.Slots      // nil: they are not enabled
}

func (g *Gateway) openBuiltins(ctx context.Context, store registry.PlaceStore) error {
	o := &g.builtins
	var err error
	if g.upstreams.list, err = g.cfg.loadServers(); err != nil {
		return err
	}
	boxed := slices.ContainsFunc(g.upstreams.list, inSandbox)
	if !boxed && !g.cfg.enables("read", "write", "edit", "exec", "bash", "browser") {
		return nil
	}
	dir, err := g.cfg.workspaceDir()
	if err != nil {
		return err
	}
	o.log = g.log
	o.workspaces, err = workspace.New(workspace.Config{
		Dir: dir, AgentID: g.cfg.AgentID, MaxBytes: g.cfg.WorkspaceBytes, MaxFiles: g.cfg.WorkspaceFiles,
		TTL: g.cfg.WorkspaceTTL, User: g.cfg.ProgramUser, Log: g.log, Generations: store.PlaceGenerations,
	})
	if err != nil {
		return fmt.Errorf("FARHAND_WORKSPACE_DIR: %w", err)
	}
	g.pod.Places.Serve(registry.PlaceKeeper{Erased: o.erased, Lost: o.lost})
	if g.cfg.enables("browser") {
		if o.browsers, err = browser.New(g.cfg.browser()); err != nil {
			return err
		}
	}
	if boxed || g.cfg.enables("exec", "bash") {
		return g.openEngines(ctx)
	}
	return nil
}

// openEngines opens the engines that run programs, on the host and in the sandbox. If no sandbox is available, its
// tools are unavailable there, unless the configuration names one: then it fails.
func (g *Gateway) openEngines(ctx context.Context) error {
	o := &g.builtins
	o.commands = shell.NewSlots(g.cfg.MaxCommands)
	engine, err := host.New(host.Config{Program: g.settings.program})
	switch {
	case errors.Is(err, sandbox.ErrUnavailable):
		o.noHost = err.Error()
	case err != nil:
		return err
	default:
		o.host = o.workspaces.Limited(engine)
	}
	box, err := g.openSandbox(ctx)
	switch {
	case errors.Is(err, sandbox.ErrUnavailable) && g.cfg.Sandbox == SandboxAuto && g.cfg.configuresContainers():
		return fmt.Errorf("FARHAND_SANDBOX: %w\nA container engine is configured (FARHAND_DOCKER_HOST, DOCKER_HOST, "+
			"FARHAND_SANDBOX_IMAGE or FARHAND_SANDBOX_PULL), so the weaker sandbox does not replace it: repair the "+
			"engine, or set FARHAND_SANDBOX to docker,landlock (the weaker sandbox while the engine is unavailable), "+
			"landlock or none", err)
	case errors.Is(err, sandbox.ErrUnavailable) && g.cfg.Sandbox == SandboxAuto:
		o.noSandbox = err.Error()
		g.log.Warn("no sandbox for programs is available; run farhand doctor for details", "why", err)
	case err != nil:
		return fmt.Errorf("FARHAND_SANDBOX: %w", err)
	case box == nil:
		o.noSandbox = "the gateway has no sandbox (FARHAND_SANDBOX=none)"
	default:
		o.sandbox = o.workspaces.Limited(box)
		g.log.Info("sandbox", "engine", box.Name())
	}
	return nil
}

// openSandbox opens the engine of the sandbox. It returns nil if there is none.
func (g *Gateway) openSandbox(ctx context.Context) (sandbox.Engine, error) {
	var missing []error
	for _, engine := range g.cfg.engines() {
		box, err := g.openEngine(ctx, engine)
		if err == nil {
			if len(missing) > 0 {
				g.log.Warn("containers are unavailable: using the weaker sandbox (FARHAND_SANDBOX)",
					"why", errors.Join(missing...))
			}
			return box, nil
		}
		missing = append(missing, err)
	}
	return nil, errors.Join(missing...)
}

func (g *Gateway) openEngine(ctx context.Context, name string) (sandbox.Engine, error) {
	if name == SandboxLandlock {
		if err := host.Probe(); err != nil {
			return nil, err
		}
		return host.New(host.Config{Program: g.settings.program, Landlock: true})
	}
	cfg := g.cfg.docker(g.pod.ID())
	cfg.Log = g.log
	if err := docker.Probe(ctx, cfg); err != nil {
		return nil, err
	}
	var err error
	g.builtins.containers, err = docker.New(cfg)
	return g.builtins.containers, err
}

// localTools returns the tools that run in this process: the gateway's enabled ones and those of the program.
func (g *Gateway) localTools(store registry.Store, rules *agent.Policy) (*agent.LocalTools, error) {
	own, err := g.builtinRegistrations(store, rules)
	if err != nil {
		return nil, err
	}
	builtins, err := agent.NewLocalTools(own...)
	if err != nil {
		return nil, err
	}
	names := g.cfg.builtins(g.hasModel())
	if _, err := builtins.Select(names...); err != nil {
		return nil, fmt.Errorf("FARHAND_BUILTIN_TOOLS: %w", err)
	}
	for _, r := range g.settings.tools {
		names = append(names, r.Names...)
	}
	all, err := agent.NewLocalTools(append(own, g.settings.tools...)...)
	if err != nil {
		return nil, err
	}
	if names, err = all.Without(names, g.cfg.ToolsOff...); err != nil {
		return nil, fmt.Errorf("FARHAND_TOOLS_OFF: %w", err)
	}
	enabled, err := all.Select(names...)
	if err != nil {
		return nil, err
	}
	return enabled.WithSetting(g.setting(store)), nil
}

// builtinRegistrations returns all tools of the gateway, including disabled ones, because their names are reserved.
func (g *Gateway) builtinRegistrations(store registry.Store, rules *agent.Policy) ([]agent.Registration, error) {
	programs, err := shell.Registration(shell.Config{
		Host: g.builtins.host, Sandbox: g.builtins.sandbox, NoHost: g.builtins.noHost, NoSandbox: g.builtins.noSandbox,
		Env: g.cfg.programEnv(), MaxCommands: g.cfg.MaxCommands, Slots: g.builtins.commands,
		Limits: sandbox.Limits{Memory: g.cfg.ProgramMemory, Processes: g.cfg.Processes},
	})
	if err != nil {
		return nil, err
	}
	devices := nodes.Config{Directory: store, Policy: rules, Audit: g.audit, AllowPrivateURLs: g.cfg.PrivateURLs}
	if g.pairing != nil {
		devices.Pairing = g.pairing
	}
	groups := group.Config{Directory: store, Policy: rules, Known: store, Slots: g.cfg.MaxGroupCalls}
	if g.pod != nil {
		groups.Calls = g.pod.Calls
	}
	g.groups = group.New(groups)
	nothing := func(agent.SessionContext) []agent.Tool { return nil }
	pages := agent.Registration{Names: []string{"browser"}, Make: nothing}
	if g.builtins.browsers != nil {
		pages = g.builtins.browsers.Registration()
	}
	return slices.Concat(tools.Registrations(tools.Deps{Directory: store, Policy: rules}),
		[]agent.Registration{filetools.Registration(filetools.Config{}), programs, pages, g.groups.Registration()},
		nodes.Registrations(devices),
	), nil
}

// setting returns where agent sessions live. While a configuration is only checked, there is no pod and no store.
func (g *Gateway) setting(store registry.ToolMemoryStore) agent.Setting {
	s := agent.Setting{
		AgentID: g.cfg.AgentID, Memories: store, MemoryBytes: g.cfg.ToolMemory, MemoryLife: g.cfg.HistoryTTL,
	}
	if g.pod != nil {
		s.Claim = g.pod.Places.Claim
	}
	if w := g.builtins.workspaces; w != nil {
		s.AgentDir, s.Workspaces = w.AgentDir(), w
	}
	return s
}

// programEnv returns the variables of this process that are passed to programs.
func (c ToolsConfig) programEnv() []string {
	var env []string
	for _, name := range c.ProgramEnv {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// erased ends and removes this pod's state of a conversation, except its current generation.
func (o *builtins) erased(ctx context.Context, key registry.Key, current int64) {
	if o.browsers != nil {
		o.browsers.Release(func(id agent.SessionID) bool {
			return id.Tenant == key.Tenant && id.Conversation == key.Session && id.Generation != current
		})
	}
	for _, space := range o.workspaces.Earlier(key, current) {
		o.endPrograms(ctx, space)
		if err := o.workspaces.Remove(space); err != nil {
			o.log.Warn("workspace of a deleted conversation not removed", "workspace", space.ID, "error", err)
		}
	}
}

// lost ends programs on this pod for a place that another pod has taken over. It keeps the workspace, which may be on a
// volume that both pods share.
func (o *builtins) lost(ctx context.Context, p registry.Place) {
	if o.browsers != nil {
		o.browsers.Release(func(id agent.SessionID) bool {
			at := registry.PlaceKey{Tenant: id.Tenant, Session: id.Conversation}
			if id.Conversation == "" {
				at.Identity = id.Identity
			}
			return at == p.Key && id.Generation == p.Generation
		})
	}
	for _, space := range o.workspaces.At(p) {
		o.endPrograms(ctx, space)
	}
}

func (o *builtins) endPrograms(ctx context.Context, space sandbox.Workspace) {
	for _, e := range []sandbox.Engine{o.host, o.sandbox} {
		if e != nil {
			_ = e.Release(ctx, space) // the rest ends when it is idle
		}
	}
}

// close ends the tools' programs, and waits for them. Workspaces stay.
func (o *builtins) close(ctx context.Context) error {
	var errs []error
	for _, e := range []sandbox.Engine{o.host, o.sandbox} {
		if e != nil {
			errs = append(errs, e.Close(ctx))
		}
	}
	if o.browsers != nil {
		errs = append(errs, o.browsers.Close(ctx))
	}
	if o.workspaces != nil {
		o.workspaces.Close()
	}
	return errors.Join(errs...)
}

// noBlobs disables the storage of files. An empty variable cannot do that: it means the default.
const noBlobs = "none"

type files interface {
	agent.Files
	api.Files
	agent.Uploads
	ws.Uploads
	Close() error
}

// openBlobs opens the storage for files of results, if one is configured.
func (g *Gateway) openBlobs(ctx context.Context, store registry.Store) error {
	where, given, err := g.cfg.blobURL(g.settings.store != nil)
	if err == nil && where == "" {
		return nil
	}
	if err == nil {
		var service *blobs.Service
		service, err = blobs.Open(ctx, blobs.Config{
			URL: where, Store: store, Life: g.cfg.BlobLife, MaxUpload: g.cfg.MaxUpload,
			TenantBytes: g.cfg.BlobBytes, Log: g.log,
		})
		if err == nil {
			g.files = service
			return nil
		}
	}
	if given {
		return fmt.Errorf("FARHAND_BLOB_URL: %w", err)
	}
	g.log.Warn("files of tools are not stored: set FARHAND_BLOB_URL", "error", err)
	return nil
}

// blobURL returns where files of results are stored, empty if nowhere, and whether the configuration says so. It fails
// if the user has no home and thus no default folder.
func (c Config) blobURL(ownStore bool) (where string, given bool, err error) {
	switch {
	case c.BlobURL == noBlobs, c.BlobURL == "" && (c.RedisURL != "" || ownStore):
		return "", c.BlobURL != "", nil
	case c.BlobURL != "":
		return string(c.BlobURL), true, nil
	}
	cache, err := os.UserCacheDir()
	folder := url.URL{Scheme: "file", Path: filepath.Join(cache, "farhand", "blobs")}
	return folder.String(), false, err
}
