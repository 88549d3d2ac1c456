package farhand

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/policy"
	"github.com/farhand/farhand/agent/sandbox"
	"github.com/farhand/farhand/agent/sandbox/host"
	"github.com/farhand/farhand/agent/tools/upstream"
)

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

// isBoxed and isProgram select the servers that need an engine.
func isBoxed(s upstream.Server) bool   { return s.Sandbox }
func isProgram(s upstream.Server) bool { return s.Command != nil && !s.Sandbox }

// openUpstreams starts connecting to the MCP servers, and adds their tools to the local ones.
func (g *Gateway) openUpstreams(a *apis) error {
	u := &g.upstreams
	if len(u.list) == 0 {
		return nil
	}
	everybody, err := policy.New(policy.Options{}) // the policy's registration rules are for devices
	if err != nil {
		return err
	}
	cfg := upstream.Config{
		Servers: u.list, Version: g.parts.version, Log: g.log, Sandbox: g.own.sandbox, NoSandbox: g.own.noSandbox,
		Limits:    sandbox.Limits{Memory: int64(g.cfg.ProgramMemory), Processes: g.cfg.Processes},
		Admission: agent.NewAdmission(everybody, a.schemas, g.cfg.admissionLimits(), g.ownNames(a.localTools)...),
	}
	if g.own.workspaces != nil {
		cfg.Workspaces = g.own.workspaces
	}
	if slices.ContainsFunc(u.list, isProgram) {
		if cfg.Host, cfg.NoHost, err = openHost(g.parts.program); err != nil {
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

// tryServers connects to each MCP server of the file once.
func tryServers(ctx context.Context, cfg Config, program host.Program) (string, error) {
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
	lines, broken := make([]string, len(list)), make([]bool, len(list))
	var all sync.WaitGroup
	for i, s := range list {
		all.Go(func() {
			text, err := "its program runs in the sandbox, and is not tried here", error(nil)
			if !s.Sandbox {
				text, err = upstream.Probe(ctx, probe, s)
			}
			if err != nil {
				text, broken[i] = err.Error(), !s.Optional
			}
			lines[i] = s.Name + ": " + text
		})
	}
	all.Wait()
	text := strings.Join(lines, "\n")
	if slices.Contains(broken, true) {
		return "", errors.New(text)
	}
	return text, nil
}
