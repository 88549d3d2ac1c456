package farhand

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"runtime/debug"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/agent/sandbox/host"
	"github.com/farhand/farhand/registry"
)

// Option brings a part of a gateway that no setting can: code of the program.
type Option func(*parts) error

// parts is what the options bring.
type parts struct {
	tools         []agent.Registration
	hooks         []agent.Hook
	models        []provider.Model
	authenticator auth.Authenticator
	system        func(context.Context, agent.SessionContext) (string, error)
	store         registry.Store
	bus           registry.Bus
	log           *slog.Logger
	listener      net.Listener
	version       string
	program       host.Program
}

// partsOf applies the options, and fills in what holds without them. What could be applied is returned with an error,
// too.
func partsOf(opts []Option) (parts, error) {
	p := parts{log: slog.Default(), version: moduleVersion()}
	var errs []error
	for _, o := range opts {
		errs = append(errs, o(&p))
	}
	return p, errors.Join(errs...)
}

// WithTool adds tools that run in this process. They are offered to the model in every conversation, and can be called
// by name over HTTP; no device may register their names. A tool may also be an agent.CallAuthorizer and an
// agent.ArgsValidator. It is called by several goroutines at once.
func WithTool(tools ...agent.Tool) Option {
	return func(p *parts) error {
		for _, t := range tools {
			if t == nil {
				return errors.New("farhand: WithTool was given a nil tool")
			}
			p.tools = append(p.tools, agent.Registration{
				Names: []string{t.Spec().Name},
				Make:  func(agent.SessionContext) []agent.Tool { return []agent.Tool{t} },
			})
		}
		return nil
	}
}

// WithToolFunc is WithTool of a tool that is a function: see NewTool.
func WithToolFunc[In any](name, description string, run func(context.Context, In) (any, error)) Option {
	return func(p *parts) error {
		t, err := NewTool(name, description, run)
		if err != nil {
			return err
		}
		return WithTool(t)(p)
	}
}

// WithToolFactory adds tools that are made anew for each agent session, and may be absent in some.
func WithToolFactory(regs ...agent.Registration) Option {
	return func(p *parts) error {
		p.tools = append(p.tools, regs...)
		return nil
	}
}

// WithHook adds hooks that every call passes, in this order: behind the name policy and the loop guard, before the
// arguments are validated. Each is an agent.BeforeHook, agent.AmendHook or agent.AfterHook, or several of them.
func WithHook(hooks ...agent.Hook) Option {
	return func(p *parts) error {
		p.hooks = append(p.hooks, hooks...)
		return nil
	}
}

// WithModel adds language models, before those of Config.Models. The first of all is the default. With a model the
// gateway holds conversations.
func WithModel(models ...provider.Model) Option {
	return func(p *parts) error {
		p.models = append(p.models, models...)
		return nil
	}
}

// WithAuthenticator has a identify devices and callers, in place of Config.Token.
func WithAuthenticator(a auth.Authenticator) Option {
	return func(p *parts) error {
		p.authenticator = a
		return nil
	}
}

// WithSystemPrompt makes the system prompt of each conversation the gateway keeps, in place of Config.SystemPrompt,
// once for each turn. An error ends the turn; its text is logged and not shown. prompt is called by several goroutines
// at once.
func WithSystemPrompt(prompt func(context.Context, agent.SessionContext) (string, error)) Option {
	return func(p *parts) error {
		p.system = prompt
		return nil
	}
}

// WithStore has the gateway keep its state in another store than Redis or its own memory; both must pass
// registry/registrytest. Close closes the bus, which is this pod's, and leaves the store open.
func WithStore(store registry.Store, bus registry.Bus) Option {
	return func(p *parts) error {
		if store == nil || bus == nil {
			return errors.New("farhand: WithStore needs a store and a bus")
		}
		p.store, p.bus = store, bus
		return nil
	}
}

// WithLogger sets the logger. Default: slog.Default(). Config.LogLevel and Config.LogFormat are the program's to apply.
func WithLogger(log *slog.Logger) Option {
	return func(p *parts) error {
		p.log = log
		return nil
	}
}

// WithListener has Run serve on a listener in place of Config.Addr. The gateway closes it.
func WithListener(l net.Listener) Option {
	return func(p *parts) error {
		p.listener = l
		return nil
	}
}

// WithProgram hands over what host.Main (package agent/sandbox/host) has returned, which main has called before
// anything else. The gateway starts its own program again to run others: it needs this for exec and bash, and for MCP
// servers that are programs.
func WithProgram(p host.Program) Option {
	return func(all *parts) error {
		all.program = p
		return nil
	}
}

// WithVersion sets what /healthz and /openapi.json say of the version. Default: that of this module in the program.
func WithVersion(version string) Option {
	return func(p *parts) error {
		p.version = version
		return nil
	}
}

// modulePath is the path of this module.
const modulePath = "github.com/farhand/farhand"

// moduleVersion returns the version of this module in the program, "dev" if the program does not know.
func moduleVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "dev"
	}
	for _, m := range append(info.Deps, &info.Main) {
		if m.Path == modulePath && m.Version != "" && m.Version != "(devel)" {
			return m.Version
		}
	}
	return "dev"
}
