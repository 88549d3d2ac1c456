package farhand

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/sandbox"
	"github.com/farhand/farhand/agent/sandbox/docker"
	"github.com/farhand/farhand/agent/workspace"
)

// ownTools is what the gateway's own tools stand on: their workspaces, and what runs their programs. Only what is
// enabled is opened.
type ownTools struct {
	workspaces *workspace.Workspaces // nil: none is needed
	host       sandbox.Engine        // nil: no program is run
	sandbox    sandbox.Engine        // nil: noSandbox says why
	noSandbox  string
}

// openOwnTools opens what the enabled tools need.
func (g *Gateway) openOwnTools(ctx context.Context) error {
	o := &g.own
	if !g.cfg.enables("read", "write", "edit", "exec", "bash") {
		return nil
	}
	dir, err := g.cfg.workspaceDir()
	if err != nil {
		return err
	}
	o.workspaces, err = workspace.New(workspace.Config{
		Dir: dir, AgentID: g.cfg.AgentID, MaxBytes: int64(g.cfg.WorkspaceBytes), MaxFiles: g.cfg.WorkspaceFiles,
		TTL: g.cfg.WorkspaceTTL, User: g.cfg.ProgramUser, Log: g.log,
	})
	if err != nil {
		return fmt.Errorf("FARHAND_WORKSPACE_DIR: %w", err)
	}
	if g.cfg.enables("exec", "bash") {
		return g.openEngines(ctx)
	}
	return nil
}

// openEngines opens what runs programs: on the host, and in the sandbox. A sandbox that cannot be had leaves its tools
// unavailable there, unless it was asked for by name.
func (g *Gateway) openEngines(ctx context.Context) error {
	o := &g.own
	if g.cfg.Sandbox == SandboxAuto || g.cfg.Sandbox == SandboxDocker {
		cfg := g.cfg.docker(g.pod.ID())
		cfg.Log = g.log
		if err := docker.Probe(ctx, cfg); err != nil && g.cfg.Sandbox == SandboxDocker {
			return fmt.Errorf("FARHAND_SANDBOX: %w", err)
		} else if err != nil {
			o.noSandbox = err.Error()
		} else if o.sandbox, err = docker.New(cfg); err != nil {
			return fmt.Errorf("FARHAND_SANDBOX: %w", err)
		}
	}
	return nil
}

// setting returns where agent sessions live.
func (o *ownTools) setting(c ToolsConfig) agent.Setting {
	s := agent.Setting{AgentID: c.AgentID}
	if o.workspaces != nil {
		s.AgentDir, s.Workspaces = o.workspaces.AgentDir(), o.workspaces
	}
	return s
}

// programEnv returns the variables of this process that programs get.
func (c ToolsConfig) programEnv() []string {
	var env []string
	for _, name := range c.ProgramEnv {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// close ends what runs for the tools, and waits for it. Workspaces stay.
func (o *ownTools) close(ctx context.Context) error {
	var errs []error
	for _, e := range []sandbox.Engine{o.host, o.sandbox} {
		if e != nil {
			errs = append(errs, e.Close(ctx))
		}
	}
	if o.workspaces != nil {
		o.workspaces.Close()
	}
	return errors.Join(errs...)
}
