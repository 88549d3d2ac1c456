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

// Factory makes the tools of one turn or call, or none. It and its tools must be safe for concurrent use.
type Factory func(SessionContext) []Tool

// Registration is a set of tools contributed by the gateway or by the program that embeds it.
type Registration struct {
	Names    []string // of the tools Make may make
	Make     Factory
	Optional bool // the tools may be absent or switched off: a factory may make fewer than announced

	// State describes the state that the tools keep on the pod that runs them. All calls of such tools run on one pod
	// for each conversation (outside of conversations: for each identity), whatever pod receives them.
	State PodState
}

// PodState describes state that tools keep on one pod. The zero value: no such state; any pod can run the next call.
type PodState struct {
	Kind string // a short name, such as "browser"; tools that share state have the same

	// Lost is added to the result of the first call after the pod with the state is gone. Empty: the tools report the
	// loss.
	Lost string
}

// WorkspaceState is for tools that work in SessionContext.Workspace, which reports its own losses.
func WorkspaceState() PodState { return PodState{Kind: "workspace"} }

// LocalTools are the available local tools. They are immutable, except for live tools, and safe for concurrent use.
type LocalTools struct {
	setting Setting
	makers  []Registration
	maker   map[string]int // by name of a tool
	live    LiveTools      // nil: none
}

// NewLocalTools returns the LocalTools of all registrations. It fails if a name is malformed, registered twice, or
// looks like a registered name, or if a registration has no names or no factory. All errors are joined.
func NewLocalTools(regs ...Registration) (*LocalTools, error) {
	t := &LocalTools{maker: make(map[string]int)}
	var errs []error
	var names Namesakes
	for _, r := range regs {
		if r.Make == nil || len(r.Names) == 0 {
			errs = append(errs, fmt.Errorf("agent: the registration of %q needs names and a factory", r.Names))
			continue
		}
		r.Names = slices.Clone(r.Names)
		for _, name := range r.Names {
			switch like := names.Find(name); {
			case !registry.ValidToolName(name):
				errs = append(errs, fmt.Errorf("agent: %q is not a valid tool name", name))
			case t.IsEnabled(name):
				errs = append(errs, fmt.Errorf("agent: the tool %q is registered twice", name))
			case like != "":
				errs = append(errs, fmt.Errorf("agent: the name %q looks like the registered tool %q", name, like))
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

// WithSetting returns a copy of the LocalTools with the setting of a gateway's agent sessions.
func (t *LocalTools) WithSetting(s Setting) *LocalTools {
	return &LocalTools{setting: s, makers: t.makers, maker: t.maker, live: t.live}
}

// Select returns LocalTools with only the named tools enabled. An unknown name is an error.
func (t *LocalTools) Select(names ...string) (*LocalTools, error) {
	enabled := make(map[string]int, len(names))
	for _, name := range names {
		maker, ok := t.maker[name]
		if !ok {
			return nil, fmt.Errorf("agent: there is no built-in tool %q; use one of: %s", name,
				strings.Join(t.Names(), ", "))
		}
		enabled[name] = maker
	}
	return &LocalTools{setting: t.setting, makers: t.makers, maker: enabled, live: t.live}, nil
}

// Without returns names minus those of switched-off tools. It fails if a tool in off is unknown or not optional.
func (t *LocalTools) Without(names []string, off ...string) ([]string, error) {
	for _, name := range off {
		maker, known := t.maker[name]
		switch {
		case !known:
			return nil, fmt.Errorf("agent: there is no tool %q; use one of: %s", name, strings.Join(t.Names(), ", "))
		case !t.makers[maker].Optional:
			return nil, fmt.Errorf("agent: the tool %q is not optional", name)
		}
	}
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return slices.Contains(off, n) }), nil
}

// IsEnabled reports whether a tool of this name is registered and enabled.
func (t *LocalTools) IsEnabled(name string) bool {
	_, ok := t.maker[name]
	return ok
}

func (t *LocalTools) podState(name string) PodState {
	if i, ok := t.maker[name]; ok {
		return t.makers[i].State
	}
	return PodState{}
}

// Names returns the names of all enabled tools, sorted, without live tools.
func (t *LocalTools) Names() []string { return slices.Sorted(maps.Keys(t.maker)) }

// Specs returns the tools of an empty session, sorted by name, for listings of the whole gateway.
func (t *LocalTools) Specs() []registry.ToolSpec {
	tools, _ := t.For(SessionContext{}) // factory errors are reported where the tools are used
	specs := make([]registry.ToolSpec, len(tools))
	for i, tool := range tools {
		specs[i] = tool.Spec()
	}
	return specs
}

// For makes the tools of a turn or call, sorted by name, without live tools. They are usable despite an error, which
// reports factories that panic, or do not make what they announced.
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

// find makes the named tool, or finds it among the live tools; nil: there is none. The error is for the log.
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

// absentTool stands for a tool that a factory does not make in a context.
type absentTool struct {
	Tool
	why string
}

func (t absentTool) Unavailable() string { return t.why }

// Tool returns a tool as made for a context. A tool that is absent there is returned as unavailable.
func (t *LocalTools) Tool(in ContextKind, name string) Tool {
	tool, err := t.find(SessionContext{Kind: in}, name)
	switch {
	case err != nil:
		return absentTool{why: "It could not be created; see the gateway's log."}
	case tool == nil:
		return absentTool{why: "It is not offered in such conversations."}
	}
	return tool
}

// make runs the factory of one registration, and keeps the tools that are announced and enabled.
func (t *LocalTools) make(i int, sc SessionContext) (kept []Tool, err error) {
	r := t.makers[i]
	if !slices.ContainsFunc(r.Names, t.IsEnabled) {
		return nil, nil
	}
	tools, err := callFactory(r, sc.withSetting(t.setting))
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
		if err == nil && !missing[spec.Name] {
			err = fmt.Errorf("agent: the factory of %s returned %q, which is not announced or was already returned",
				strings.Join(r.Names, ", "), spec.Name)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		delete(missing, spec.Name)
		if t.IsEnabled(spec.Name) {
			kept = append(kept, madeTool{Tool: tool, spec: spec})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(missing)) {
		if !r.Optional && t.IsEnabled(name) {
			errs = append(errs, fmt.Errorf("agent: the factory of %q did not return the tool", name))
		}
	}
	return kept, errors.Join(errs...)
}

// callFactory turns a panic of a factory into an error, so that the session continues without the tool.
func callFactory(r Registration, sc SessionContext) (tools []Tool, err error) {
	defer onPanic(func(p any) {
		tools, err = nil, fmt.Errorf("agent: the factory of %s panicked: %v", strings.Join(r.Names, ", "), p)
	})
	return r.Make(sc), nil
}

func specOf(tool Tool) (spec registry.ToolSpec, err error) {
	defer onPanic(func(p any) { err = fmt.Errorf("agent: a tool panicked while it described itself: %v", p) })
	switch made := tool.(type) {
	case nil:
		return spec, errors.New("agent: a factory returned a nil tool")
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

func (t madeTool) Spec() registry.ToolSpec { return t.spec }

func madeBy(t Tool) Tool {
	if made, ok := t.(madeTool); ok {
		return made.Tool
	}
	return t
}

// LiveTools are local tools that come and go, such as those of MCP servers. Safe for concurrent use.
type LiveTools interface {
	// Live returns the current tools. It does not block.
	Live() LiveSet

	// Owns reports whether a live tool can have this name, whether or not the tool is there now.
	Owns(name string) bool

	// Await waits for the owner of a name to be there. It stops when ctx ends, at until, or when the owner has been
	// away for too long to be expected back. It then returns a retryable *registry.Error with CodeNotConnected. It
	// returns nil if the owner is there, or if the name has no owner.
	Await(ctx context.Context, name string, until time.Time) error
}

// LiveSet is the set of live tools at one moment. It must not be modified.
type LiveSet struct {
	// Tools are sorted by name, with specifications in canonical form. No name equals or looks like that of a
	// registered tool.
	Tools []Tool

	Version uint64          // differs if the tools, or the reasons why some cannot work, differ
	Changed <-chan struct{} // closed when a newer set exists; nil: never
}

// SourcedTool is an optional interface of a local Tool that forwards its calls to another server. Source names it in
// listings and records: registry.SourceMCP and the name of an MCP server. Its results are untrusted.
type SourcedTool interface {
	Source() string
}

// ReturningTool is an optional interface of an UnavailableTool that may be back shortly: models see it, calls wait.
type ReturningTool interface {
	Returning() bool
}

// WithLive returns a copy of the LocalTools with live tools added.
func (t *LocalTools) WithLive(live LiveTools) *LocalTools {
	with := *t
	with.live = live
	return &with
}

// Live returns the current live tools.
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

// liveTool wraps a live tool so that its specification is not checked again at each call.
func liveTool(t Tool) Tool { return madeTool{Tool: t, spec: t.Spec()} }

// SourceOf returns the source of a local tool, in the form for records and in the form for policy.
func SourceOf(t Tool) (string, policy.Source) {
	s, ok := madeBy(t).(SourcedTool)
	if !ok {
		return registry.SourceLocal, policy.Builtin
	}
	return s.Source(), policy.MCP
}

// localNow returns the local tools that the model may see now, sorted by name.
func (s *ToolSet) localNow() []Tool {
	now := slices.Clone(s.local)
	if s.cfg.LocalTools == nil {
		return now
	}
	for _, t := range s.cfg.LocalTools.Live().Tools {
		if t = liveTool(t); s.allows(t.Spec(), t) {
			now = append(now, t)
		}
	}
	slices.SortFunc(now, func(a, b Tool) int { return strings.Compare(a.Spec().Name, b.Spec().Name) })
	return now
}

func isReturning(t Tool) bool {
	r, ok := madeBy(t).(ReturningTool)
	return ok && r.Returning()
}
