package farhand

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/policy"
	"github.com/farhand/farhand/agent/chat"
	"github.com/farhand/farhand/agent/hooks"
	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/agent/sandbox"
	"github.com/farhand/farhand/agent/sandbox/host"
	"github.com/farhand/farhand/agent/tools/upstream"
	"github.com/farhand/farhand/registry"
)

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
