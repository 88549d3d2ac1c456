package farhand

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"runtime/debug"

	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/agent/sandbox/host"
	"github.com/farhand/farhand/registry"
)

// Option adds a part of a gateway that is code of the program, and so cannot be a setting.
type Option func(*settings)

type settings struct {
	tools         []agent.Registration
	hooks         []agent.Hook
	models        []provider.Model
	authenticator auth.Authenticator
	system        func(context.Context, agent.SessionContext) (string, error)
	store         registry.Store
	bus           registry.Bus
	log           *slog.Logger
	level         *slog.LevelVar
	listener      net.Listener
	version       string
	program       host.Program
	traces        oteltrace.TracerProvider
	errs          []error // of options that cannot be applied
}

// apply applies the options, and sets the defaults of the others. After an error it also returns those that could
// be applied.
func apply(opts []Option) (settings, error) {
	p := settings{log: slog.Default(), version: moduleVersion()}
	for _, o := range opts {
		o(&p)
	}
	return p, errors.Join(p.errs...)
}

// WithTool adds tools that run in this process. They are offered to the model in every conversation, and can be called
// by name over HTTP. Devices cannot register their names. A tool can also be an agent.CallAuthorizer and an
// agent.ArgsValidator. It must be safe for concurrent use.
func WithTool(tools ...agent.Tool) Option {
	return func(p *settings) {
		for _, t := range tools {
			if t == nil {
				p.errs = append(p.errs, errors.New("farhand: WithTool was given a nil tool"))
				return
			}
			p.tools = append(p.tools, agent.Registration{
				Names: []string{t.Spec().Name},
				Make:  func(agent.SessionContext) []agent.Tool { return []agent.Tool{t} },
			})
		}
	}
}

// WithToolFunc adds a tool that is a function, as NewTool makes it.
func WithToolFunc[In any](name, description string, run func(context.Context, In) (any, error)) Option {
	t, err := NewTool(name, description, run)
	if err != nil {
		return func(p *settings) { p.errs = append(p.errs, err) }
	}
	return WithTool(t)
}

// WithToolFactory adds tools that are made for each agent session, and can be absent in some.
func WithToolFactory(regs ...agent.Registration) Option {
	return func(p *settings) { p.tools = append(p.tools, regs...) }
}

// WithHook adds hooks for every call, in this order: after the name policy and the loop guard, before the arguments are
// validated. Each is an agent.BeforeHook, agent.AmendHook or agent.AfterHook, or several of them.
func WithHook(hooks ...agent.Hook) Option {
	return func(p *settings) { p.hooks = append(p.hooks, hooks...) }
}

// WithModel adds language models, before those of Config.Models. The first of all is the default. A gateway with a
// model holds conversations.
func WithModel(models ...provider.Model) Option {
	return func(p *settings) { p.models = append(p.models, models...) }
}

// WithAuthenticator makes a identify devices and callers, in place of Config.Token.
func WithAuthenticator(a auth.Authenticator) Option {
	return func(p *settings) { p.authenticator = a }
}

// WithSystemPrompt sets the function that makes the system prompt of conversations, in place of Config.SystemPrompt. It
// runs once for each turn. An error ends the turn; its text is logged and not shown. prompt must be safe for concurrent
// use.
func WithSystemPrompt(prompt func(context.Context, agent.SessionContext) (string, error)) Option {
	return func(p *settings) { p.system = prompt }
}

// WithStore replaces Redis or the in-memory store. Both store and bus must pass registry/registrytest. Close closes the
// bus, which belongs to this pod, and leaves the store open.
func WithStore(store registry.Store, bus registry.Bus) Option {
	return func(p *settings) {
		if store == nil || bus == nil {
			p.errs = append(p.errs, errors.New("farhand: WithStore needs a store and a bus"))
			return
		}
		p.store, p.bus = store, bus
	}
}

// WithLogger sets the logger. Default: slog.Default(). The program must apply Config.LogLevel and Config.LogFormat.
func WithLogger(log *slog.Logger) Option {
	return func(p *settings) { p.log = log }
}

// WithLogLevel serves GET and PUT /loglevel at Config.MetricsAddr, which show and set a level. It must be that of the
// logger. Without it the level is fixed.
func WithLogLevel(level *slog.LevelVar) Option {
	return func(p *settings) { p.level = level }
}

// WithListener makes Run serve on a listener in place of Config.Addr. The gateway closes it.
func WithListener(l net.Listener) Option {
	return func(p *settings) { p.listener = l }
}

// WithProgram passes the result of host.Main (package agent/sandbox/host), which main must call before anything else.
// The gateway starts its own program again to run others: it needs this for exec and bash, and for MCP servers that are
// programs.
func WithProgram(p host.Program) Option {
	return func(all *settings) { all.program = p }
}

// WithTracerProvider makes the gateway record traces to p, such as the provider of OpenTelemetry's SDK that the program
// uses. The program shuts p down after the gateway is closed. Without this option the gateway makes no traces.
// docs/traces.md lists the spans.
func WithTracerProvider(p oteltrace.TracerProvider) Option {
	return func(all *settings) { all.traces = p }
}

// WithVersion sets the version in /healthz and /openapi.json. Default: the version of this module in the program.
func WithVersion(version string) Option {
	return func(p *settings) { p.version = version }
}

const modulePath = "github.com/farhand/farhand"

// moduleVersion returns the version of this module in the program, or "dev" if the build information lacks it.
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
