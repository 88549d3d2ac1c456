package agent

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/farhand/farhand/agent/access/policy"
	"github.com/farhand/farhand/registry"
)

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
