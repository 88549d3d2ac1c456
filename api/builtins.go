package api

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/policy"
	"github.com/farhand/farhand/registry"
)

// builtins holds the gateway's tools, in order of name: static ones, which do not change while the process runs, and a
// snapshot of the live ones.
type builtins struct {
	tools   []ownTool
	reasons string // why some cannot work now
	digest  string // of all of this
	version uint64 // of the live ones
}

// ownTool is a tool of the gateway, with its source.
type ownTool struct {
	registry.ToolSpec
	source string
	from   policy.Source
	in     map[policy.Context]agent.Tool // the tool, by context
}

// sourceType returns the kind of the source, a value of source_type.
func (t ownTool) sourceType() string {
	if t.from == policy.MCP {
		return sourceMCP
	}
	return sourceBuiltin
}

func newBuiltins(from Builtins) (builtins, error) {
	if from == nil {
		return builtins{}, nil
	}
	var b builtins
	for _, t := range from.Specs() {
		t, err := t.Normalize()
		if err != nil {
			return builtins{}, fmt.Errorf("api: built-in tool %q: %w", t.Name, err)
		}
		own := ownTool{t, sourceBuiltin, policy.Builtin, make(map[policy.Context]agent.Tool)}
		for _, in := range policy.Contexts() {
			own.in[in] = from.Tool(in, t.Name)
		}
		b.tools = append(b.tools, own)
	}
	return b.sorted(), nil
}

// sorted returns the tools in order of name, with their digest.
func (b builtins) sorted() builtins {
	b.tools = slices.SortedFunc(slices.Values(b.tools), func(a, b ownTool) int { return cmp.Compare(a.Name, b.Name) })
	b.reasons = b.whyNot()
	sum := sha256.New()
	for _, t := range b.tools {
		fmt.Fprintf(sum, "%q %s", t.source, t.Hash())
	}
	fmt.Fprint(sum, b.reasons)
	b.digest = hex.EncodeToString(sum.Sum(nil))
	return b
}

// whyNot returns why some of the tools cannot work now, or "" if all can.
func (b builtins) whyNot() string {
	var reasons strings.Builder
	for _, t := range b.tools {
		for _, in := range policy.Contexts() {
			if why := agent.WhyNot(t.in[in]); why != "" {
				fmt.Fprintf(&reasons, "%q %q %q", t.Name, in, why)
			}
		}
	}
	return reasons.String()
}

// own returns the gateway's current tools. It checks whether each can work; running does not.
func (h *handler) own() *builtins {
	last := h.running()
	if last.reasons != last.whyNot() {
		now := last.sorted()
		last = &now
		h.lastBuiltins.Store(last)
	}
	return last
}

// running returns the gateway's current tools. Their digest is that of the last check whether they can work.
func (h *handler) running() *builtins {
	last, set := h.lastBuiltins.Load(), agent.LiveSet{}
	live, ok := h.Builtins.(agent.LiveTools)
	if ok {
		set = live.Live()
	}
	if last == nil || last.version != set.Version {
		now := h.builtins.with(set)
		last = &now
		h.lastBuiltins.Store(last)
	}
	return last
}

// with returns the tools together with live ones.
func (b builtins) with(set agent.LiveSet) builtins {
	b.tools, b.version = slices.Clip(b.tools), set.Version
	for _, t := range set.Tools {
		source, from := agent.SourceOf(t)
		live := ownTool{t.Spec(), source, from, make(map[policy.Context]agent.Tool)}
		for _, in := range policy.Contexts() {
			live.in[in] = t
		}
		b.tools = append(b.tools, live)
	}
	return b.sorted()
}

// specs returns the definitions of all tools.
func (b *builtins) specs() []registry.ToolSpec {
	specs := make([]registry.ToolSpec, len(b.tools))
	for i, t := range b.tools {
		specs[i] = t.ToolSpec
	}
	return specs
}

// named returns the gateway's tool with a name, or nil if there is none.
func (b *builtins) named(name string) *ownTool {
	i, found := slices.BinarySearchFunc(b.tools, name,
		func(t ownTool, name string) int { return cmp.Compare(t.Name, name) })
	if !found {
		return nil
	}
	return &b.tools[i]
}

// matching returns the tools with which a list continues. They belong to no session, so a query that filters sessions
// excludes them.
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
