package ws

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/registry"
)

// maxDefinitions bounds the definitions in one frame, good or bad, because the answer names every bad one.
const maxDefinitions = 1024

// The budget of bytes that a device may register: twice what a session may offer at once, so that everything can be
// replaced, and then slowly more. Without it, a device whose schemas change all the time would fill the store, because
// each version of a definition stays there for a while.
const (
	registerBurst = 2        // times what a session may offer
	registerRate  = 32 << 10 // bytes a second
)

// registerTools checks the definitions one by one, in order, and registers those that are admitted.
func (c *conn) registerTools(ctx context.Context, f *registerToolsFrame) error {
	if len(f.Tools) > maxDefinitions {
		return invalidMessage("tools: at most %d definitions are allowed in one frame", maxDefinitions)
	}
	r := registration{conn: c, offered: make(map[string]size)}
	for _, t := range c.local.Tools() {
		r.offer(t, c.compiled[t.Name])
	}
	for _, raw := range f.Tools {
		r.admitTool(ctx, raw)
	}
	if len(r.put) > 0 {
		err := c.local.PutTools(ctx, r.put, nil)
		switch {
		case errors.Is(err, registry.CodeRateLimited):
			for _, t := range r.put {
				r.reject(t.Name, reasonOf(err))
			}
		case err != nil:
			return err
		default:
			r.keepSizes()
		}
	}
	return c.send(toolsRegisteredFrame(len(f.Tools), len(c.local.Tools()), r.rejected))
}

// registration is one register_tools frame that is being checked.
type registration struct {
	conn     *conn
	offered  map[string]size  // the tools offered so far, by name
	sum      size             // of all of them
	names    *agent.Namesakes // of those; nil until a new name is checked
	put      []registry.ToolSpec
	rejected []rejection
}

// size is how much memory a tool takes.
type size struct {
	bytes    int // of its definition
	compiled int // of its compiled schema
}

func (r *registration) admitTool(ctx context.Context, raw json.RawMessage) {
	def, err := decodeTool(raw)
	if err != nil {
		r.reject(def.Name, reasonOf(err))
		return
	}
	if !r.conn.allowance.takeDefinitions(len(raw)) {
		r.reject(def.Name, fmt.Sprintf(
			"this session registered too much in too short a time; %d bytes a second are allowed", registerRate))
		return
	}
	others := agent.Offered{Tools: len(r.offered), Bytes: r.sum.bytes, Compiled: r.sum.compiled}
	if old, replaced := r.offered[def.Name]; replaced {
		others.Tools--
		others.Bytes -= old.bytes
		others.Compiled -= old.compiled
	} else {
		others.Names = r.namesakes()
	}
	spec, err := r.conn.server.cfg.Admission.Admit(ctx, registry.ToolSpec{
		Name: def.Name, Description: def.Description, Parameters: def.Parameters, TimeoutMS: def.TimeoutMS,
		Annotations: def.Annotations, SecurityLevel: registry.SecurityLevel(def.SecurityLevel),
	}, others)
	if err != nil {
		r.reject(def.Name, reasonOf(err))
		return
	}
	r.offer(spec, r.conn.server.cfg.Admission.CompiledSize(ctx, spec))
	r.put = slices.DeleteFunc(r.put, func(t registry.ToolSpec) bool { return t.Name == spec.Name })
	r.put = append(r.put, spec)
}

// keepSizes stores in the connection how large the compiled schemas are.
func (r *registration) keepSizes() {
	if r.conn.compiled == nil {
		r.conn.compiled = make(map[string]int)
	}
	for _, t := range r.put {
		r.conn.compiled[t.Name] = r.offered[t.Name].compiled
	}
}

// namesakes returns the names offered so far. It is needed for new names only: no other can look like one of them.
func (r *registration) namesakes() *agent.Namesakes {
	if r.names == nil {
		r.names = new(agent.Namesakes)
		for name := range r.offered {
			r.names.Add(name)
		}
	}
	return r.names
}

// offer counts a tool as offered.
func (r *registration) offer(t registry.ToolSpec, compiled int) {
	old, now := r.offered[t.Name], size{t.Size(), compiled}
	if r.names != nil {
		r.names.Add(t.Name)
	}
	r.sum.bytes += now.bytes - old.bytes
	r.sum.compiled += now.compiled - old.compiled
	r.offered[t.Name] = now
}

func (r *registration) reject(name, reason string) {
	r.rejected = append(r.rejected, rejection{Name: short(name), Reason: reason})
}

// reasonOf returns the reason for which a definition is rejected.
func reasonOf(err error) string {
	var bad *frameError
	if errors.As(err, &bad) {
		return bad.message
	}
	return registry.AsError(err).Message
}

// unregisterTools removes tools. Names that the session does not offer are no mistake.
func (c *conn) unregisterTools(ctx context.Context, f *unregisterToolsFrame) error {
	var drop []string
	for _, t := range c.local.Tools() {
		if slices.Contains(f.Names, t.Name) {
			drop = append(drop, t.Name)
			delete(c.compiled, t.Name)
		}
	}
	if len(drop) > 0 {
		err := c.local.PutTools(ctx, nil, drop)
		if errors.Is(err, registry.CodeRateLimited) { // removed tools must not be offered any longer
			return CloseRate
		}
		if err != nil {
			return err
		}
	}
	return c.send(toolsRegisteredFrame(len(f.Names), len(c.local.Tools()), nil))
}
