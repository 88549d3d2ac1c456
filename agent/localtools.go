package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/farhand/farhand/agent/access/policy"
	"github.com/farhand/farhand/registry"
)

// Factory makes the tools of one turn or call. It may return none: the capability is absent there. It is safe for
// concurrent use, and so are the tools it returns.
type Factory func(SessionContext) []Tool

// Registration is what the gateway itself, or the program that embeds it, contributes.
type Registration struct {
	Names    []string // of the tools Make may make
	Make     Factory
	Optional bool // the tools may be absent, or switched off: making fewer than announced is nothing to be told of
	Config   any  // handed to Make in SessionContext.Config

	// Keeps says what the tools keep on the pod that runs them. Calls of such tools run on one pod for each
	// conversation, or identity outside of conversations, whatever pod they are made on.
	Keeps Keeps
}

// Keeps says what tools keep beside the pod that runs them. The zero value: nothing that another pod could not go on
// with.
type Keeps struct {
	Kind string // a short name, such as "browser"; those that share something have the same

	// Lost is told with the result of the first call after the pod that had it is gone. Empty: the tools tell it.
	Lost string
}

// KeepsWorkspace returns the Keeps of tools that work in SessionContext.Workspace, which tells what is lost by itself.
func KeepsWorkspace() Keeps { return Keeps{Kind: "workspace"} }

// LocalTools is the local tools there may be. But for tools that come and go by themselves (WithLive) it is immutable.
// It is safe for concurrent use.
type LocalTools struct {
	setting Setting
	makers  []Registration
	maker   map[string]int // by name of a tool
	live    LiveTools      // nil: none
}

// NewLocalTools returns the LocalTools of all registrations. A name that is malformed, registered twice, or looks like
// one that is registered is an error, as is a registration without names or factory. All errors are reported together.
func NewLocalTools(regs ...Registration) (*LocalTools, error) {
	t := &LocalTools{maker: make(map[string]int)}
	var errs []error
	var names Namesakes
	for _, r := range regs {
		if r.Make == nil || len(r.Names) == 0 {
			errs = append(errs, fmt.Errorf("agent: a registration of %q needs names and a factory", r.Names))
			continue
		}
		r.Names = slices.Clone(r.Names)
		for _, name := range r.Names {
			switch like := names.Of(name); {
			case !registry.ValidToolName(name):
				errs = append(errs, fmt.Errorf("agent: no tool can have the name %q", name))
			case t.Has(name):
				errs = append(errs, fmt.Errorf("agent: the tool %q is registered twice", name))
			case like != "":
				errs = append(errs, fmt.Errorf("agent: the name %q looks like %q, which is registered", name, like))
			}
			names.Add(name)
			t.maker[name] = len(t.makers)
		}
		t.makers = append(t.makers, r)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return t, nil
}

// In returns the same LocalTools for the agent sessions of a gateway.
func (t *LocalTools) In(s Setting) *LocalTools {
	return &LocalTools{setting: s, makers: t.makers, maker: t.maker, live: t.live}
}

// Select returns LocalTools with the named tools only: tools are enabled by name. An unknown name is an error.
func (t *LocalTools) Select(names ...string) (*LocalTools, error) {
	enabled := make(map[string]int, len(names))
	for _, name := range names {
		maker, ok := t.maker[name]
		if !ok {
			return nil, fmt.Errorf("agent: there is no built-in tool %q; there are: %s", name,
				strings.Join(t.Names(), ", "))
		}
		enabled[name] = maker
	}
	return &LocalTools{setting: t.setting, makers: t.makers, maker: enabled, live: t.live}, nil
}

// Without returns names without those of tools that are switched off. Only optional tools can be.
func (t *LocalTools) Without(names []string, off ...string) ([]string, error) {
	for _, name := range off {
		maker, known := t.maker[name]
		switch {
		case !known:
			return nil, fmt.Errorf("agent: there is no tool %q; there are: %s", name, strings.Join(t.Names(), ", "))
		case !t.makers[maker].Optional:
			return nil, fmt.Errorf("agent: the tool %q is not optional", name)
		}
	}
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return slices.Contains(off, n) }), nil
}

// Has reports whether a tool of this name may be made.
func (t *LocalTools) Has(name string) bool {
	_, ok := t.maker[name]
	return ok
}

// keeps says what the tool of that name keeps.
func (t *LocalTools) keeps(name string) Keeps {
	i, ok := t.maker[name]
	if !ok {
		return Keeps{}
	}
	return t.makers[i].Keeps
}

// Names returns the names of all tools that may be made, in order, without those of live tools.
func (t *LocalTools) Names() []string { return slices.Sorted(maps.Keys(t.maker)) }

// Specs returns the tools a session gets of which nothing is known, in order of name: what listings of the whole
// gateway show, beside the live tools.
func (t *LocalTools) Specs() []registry.ToolSpec {
	tools, _ := t.For(SessionContext{}) // what is wrong with a factory is told where its tools are to be used
	specs := make([]registry.ToolSpec, len(tools))
	for i, tool := range tools {
		specs[i] = tool.Spec()
	}
	return specs
}

// For makes the tools of a turn or call, in order of name, without live tools. What is wrong (a factory that panics,
// makes a tool it did not announce, or, unless it is optional, fewer than it announced) is left out and told by the
// error; the others are good.
func (t *LocalTools) For(sc SessionContext) ([]Tool, error) {
	var made []Tool
	var errs []error
	for i := range t.makers {
		tools, err := t.make(i, sc)
		made, errs = append(made, tools...), append(errs, err)
	}
	slices.SortFunc(made, func(a, b Tool) int { return strings.Compare(a.Spec().Name, b.Spec().Name) })
	return made, errors.Join(errs...)
}

// find makes the one tool of that name, or finds it among the live ones; nil if the session has none. The error is for
// the log.
func (t *LocalTools) find(sc SessionContext, name string) (Tool, error) {
	i, ok := t.maker[name]
	if !ok {
		return t.liveTool(name), nil
	}
	tools, err := t.make(i, sc)
	for _, tool := range tools {
		if tool.Spec().Name == name {
			return tool, err
		}
	}
	return nil, err
}

// make has one registration make its tools, and keeps those that are announced and enabled.
func (t *LocalTools) make(i int, sc SessionContext) (kept []Tool, err error) {
	r := t.makers[i]
	if !slices.ContainsFunc(r.Names, t.Has) {
		return nil, nil
	}
	tools, err := callFactory(r, sc.in(t.setting))
	if err != nil {
		return nil, err
	}
	var errs []error
	missing := make(map[string]bool)
	for _, name := range r.Names {
		missing[name] = true
	}
	for _, tool := range tools {
		spec, err := specOf(tool)
		switch {
		case err != nil:
			errs = append(errs, err)
			continue
		case !missing[spec.Name]:
			errs = append(errs, fmt.Errorf(
				"agent: the factory of %s made %q, which it did not announce or had made already",
				strings.Join(r.Names, ", "), spec.Name))
			continue
		}
		delete(missing, spec.Name)
		if t.Has(spec.Name) {
			kept = append(kept, madeTool{Tool: tool, spec: spec})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(missing)) {
		if !r.Optional && t.Has(name) {
			errs = append(errs, fmt.Errorf("agent: the factory of %q made no such tool", name))
		}
	}
	return kept, errors.Join(errs...)
}

// callFactory turns a panic of a factory into an error: a session without the tool is better than none.
func callFactory(r Registration, sc SessionContext) (tools []Tool, err error) {
	defer func() {
		if p := recover(); p != nil {
			tools, err = nil, fmt.Errorf("agent: the factory of %s panicked: %v", strings.Join(r.Names, ", "), p)
		}
	}()
	sc.Config = r.Config
	return r.Make(sc), nil
}

// specOf returns the canonical specification of a tool.
func specOf(tool Tool) (spec registry.ToolSpec, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("agent: a tool panicked when it was asked what it is: %v", p)
		}
	}()
	switch made := tool.(type) {
	case nil:
		return spec, errors.New("agent: a factory made a nil tool")
	case madeTool:
		return made.spec, nil
	}
	if spec, err = tool.Spec().Normalize(); err != nil {
		return spec, fmt.Errorf("agent: the tool %q: %w", spec.Name, err)
	}
	return spec, nil
}

// madeTool is a tool with its specification in canonical form.
type madeTool struct {
	Tool
	spec registry.ToolSpec
}

// Spec implements Tool.
func (t madeTool) Spec() registry.ToolSpec { return t.spec }

// LiveTools are local tools that come and go while the gateway runs, such as those of MCP servers. Its methods are safe
// for concurrent use.
type LiveTools interface {
	// Live returns the tools of this moment. It does not wait.
	Live() LiveSet

	// Owns reports whether a name is one that a live tool can have, whether or not there is such a tool now.
	Owns(name string) bool

	// Await waits for the owner of a name to be there, until ctx ends, until until, or until the owner has been away
	// for too long to be expected back. The error is then a retryable *registry.Error with CodeNotConnected. It is nil
	// if the owner is there, and if the name has none.
	Await(ctx context.Context, name string, until time.Time) error
}

// LiveSet is the live tools of one moment. Nobody changes it.
type LiveSet struct {
	// Tools are in order of name. Their specifications are in canonical form, and none has, or looks like, the name of
	// a tool that is registered.
	Tools []Tool

	Version uint64          // another one for other tools, or for other reasons why some cannot work
	Changed <-chan struct{} // closed once there is another set; nil: never
}

// SourcedTool is what a local Tool may be besides, if it passes its calls on to somebody else. Source is what listings
// and records call that: registry.SourceMCP and the name of an MCP server. What it returns was written by strangers.
type SourcedTool interface {
	Source() string
}

// ReturningTool is what an UnavailableTool may be besides. Returning reports whether it is expected back in a moment:
// models are then still offered it, and its calls wait.
type ReturningTool interface {
	Returning() bool
}

// WithLive returns the same LocalTools with tools that come and go.
func (t *LocalTools) WithLive(live LiveTools) *LocalTools {
	with := *t
	with.live = live
	return &with
}

// Live returns the tools that come and go.
func (t *LocalTools) Live() LiveSet {
	if t.live == nil {
		return LiveSet{}
	}
	return t.live.Live()
}

// Owns implements LiveTools.
func (t *LocalTools) Owns(name string) bool { return t.live != nil && t.live.Owns(name) }

// Await implements LiveTools.
func (t *LocalTools) Await(ctx context.Context, name string, until time.Time) error {
	if t == nil || t.live == nil {
		return nil
	}
	return t.live.Await(ctx, name, until)
}

// liveTool returns the live tool of that name, nil if there is none now.
func (t *LocalTools) liveTool(name string) Tool {
	tools := t.Live().Tools
	i, found := slices.BinarySearchFunc(tools, name, func(t Tool, name string) int {
		return cmp.Compare(t.Spec().Name, name)
	})
	if !found {
		return nil
	}
	return liveTool(tools[i])
}

// liveTool spares a live tool the check of its specification at each call.
func liveTool(t Tool) Tool { return madeTool{Tool: t, spec: t.Spec()} }

// SourceOf returns the source of a local tool, as records have it, and as policy has it.
func SourceOf(t Tool) (string, policy.Source) {
	s, ok := inner(t).(SourcedTool)
	if !ok {
		return registry.SourceLocal, policy.Builtin
	}
	return s.Source(), policy.MCP
}

// localNow returns the local tools that the model may see now, in order of name.
func (s *ToolSet) localNow() []Tool {
	now := slices.Clone(s.local)
	if s.cfg.LocalTools == nil {
		return now
	}
	for _, t := range s.cfg.LocalTools.Live().Tools {
		if t = liveTool(t); s.offersLocal(t) {
			now = append(now, t)
		}
	}
	slices.SortFunc(now, func(a, b Tool) int { return strings.Compare(a.Spec().Name, b.Spec().Name) })
	return now
}

// offersLocal reports whether the model may see a local tool.
func (s *ToolSet) offersLocal(t Tool) bool {
	return s.offers(t.Spec(), t)
}

// isReturning reports whether a tool that cannot work now is expected back in a moment.
func isReturning(t Tool) bool {
	r, ok := inner(t).(ReturningTool)
	return ok && r.Returning()
}
