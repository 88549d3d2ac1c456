package api

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/policy"
	"github.com/farhand/farhand/registry"
)

// builtins are the tools that run in the gateway, in order of name: its own, which are the same as long as the process
// runs, and live ones, as they were at one moment.
type builtins struct {
	tools   []ownTool
	missing map[builtinIn]string // why some cannot work
	live    []agent.Tool
	digest  string // of all this
	version uint64 // of the live ones
}

// ownTool is a tool that runs in the gateway, and where it comes from.
type ownTool struct {
	registry.ToolSpec
	source string
	from   policy.Source
}

// sourceType returns the kind of the source, as source_type has it.
func (t ownTool) sourceType() string {
	if t.from == policy.MCP {
		return sourceMCP
	}
	return sourceBuiltin
}

// builtinIn is a tool of the gateway in a context.
type builtinIn struct {
	tool string
	in   policy.Context
}

func newBuiltins(from Builtins) (builtins, error) {
	if from == nil {
		return builtins{}, nil
	}
	b := builtins{missing: make(map[builtinIn]string)}
	for _, t := range from.Specs() {
		t, err := t.Normalize()
		if err != nil {
			return builtins{}, fmt.Errorf("api: built-in tool %q: %w", t.Name, err)
		}
		b.tools = append(b.tools, ownTool{t, sourceBuiltin, policy.Builtin})
		for _, in := range policy.Contexts() {
			if why := from.Unavailable(in, t.Name); why != "" {
				b.missing[builtinIn{t.Name, in}] = why
			}
		}
	}
	return b.sorted(), nil
}

// sorted returns the tools in order of name, with their digest.
func (b builtins) sorted() builtins {
	slices.SortFunc(b.tools, func(a, b ownTool) int { return cmp.Compare(a.Name, b.Name) })
	sum := sha256.New()
	for _, t := range b.tools {
		fmt.Fprintf(sum, "%q %s", t.source, t.Hash())
		for _, in := range policy.Contexts() {
			if why := b.missing[builtinIn{t.Name, in}]; why != "" {
				fmt.Fprintf(sum, "%q %q", in, why)
			}
		}
	}
	b.digest = hex.EncodeToString(sum.Sum(nil))
	return b
}

// own returns the tools that run in the gateway now.
func (h *handler) own() *builtins {
	live, ok := h.Builtins.(agent.LiveTools)
	if !ok {
		return &h.builtins
	}
	set := live.Live()
	if b := h.withLive.Load(); b != nil && b.version == set.Version {
		return b
	}
	b := h.builtins.with(set)
	h.withLive.Store(&b)
	return &b
}

// with returns the tools with live ones.
func (b builtins) with(set agent.LiveSet) builtins {
	b.tools, b.missing, b.version = slices.Clone(b.tools), maps.Clone(b.missing), set.Version
	b.live = set.Tools
	for _, t := range set.Tools {
		spec := t.Spec()
		source, from := agent.SourceOf(t)
		b.tools = append(b.tools, ownTool{spec, source, from})
		u, ok := t.(agent.UnavailableTool)
		if !ok {
			continue
		}
		if why := u.Unavailable(); why != "" {
			for _, in := range policy.Contexts() {
				b.missing[builtinIn{spec.Name, in}] = why
			}
		}
	}
	return b.sorted()
}

// isReturning reports whether a live tool that cannot work now is expected back in a moment.
func (b *builtins) isReturning(name string) bool {
	i, found := slices.BinarySearchFunc(b.live, name,
		func(t agent.Tool, name string) int { return cmp.Compare(t.Spec().Name, name) })
	if !found {
		return false
	}
	t, ok := b.live[i].(agent.ReturningTool)
	return ok && t.Returning()
}

// specs returns the definitions of all.
func (b *builtins) specs() []registry.ToolSpec {
	specs := make([]registry.ToolSpec, len(b.tools))
	for i, t := range b.tools {
		specs[i] = t.ToolSpec
	}
	return specs
}

// sourceOf returns where a tool of the gateway comes from, as policy has it.
func (b *builtins) sourceOf(name string) policy.Source {
	i, found := slices.BinarySearchFunc(b.tools, name,
		func(t ownTool, name string) int { return cmp.Compare(t.Name, name) })
	if !found {
		return policy.Builtin
	}
	return b.tools[i].from
}

// matching returns the tools with which a list continues. They belong to no session, so a query that filters sessions
// does not mean them.
func (b *builtins) matching(tq toolQuery, from cursor) []ownTool {
	after, some := from.builtinsAfter()
	if !some || !tq.target.IsZero() {
		return nil
	}
	var found []ownTool
	for _, t := range b.tools {
		if t.Name > after && tq.from(t.sourceType()) && tq.matches(t.ToolSpec) {
			found = append(found, t)
		}
	}
	return found
}
