package ws

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/farhand/farhand/registry"
)

// maxDefinitions bounds the definitions in one frame, good or bad: every bad one is named in the answer.
const maxDefinitions = 1024

// registerTools judges the definitions one by one, in order, and registers those that pass.
func (c *conn) registerTools(ctx context.Context, f *registerToolsFrame) error {
	if len(f.Tools) > maxDefinitions {
		return invalidMessage("tools: at most %d definitions are allowed in one frame", maxDefinitions)
	}
	r := registration{conn: c, names: make(map[string]bool)}
	for _, t := range c.local.Tools() {
		r.names[t.Name] = true
	}
	for _, raw := range f.Tools {
		r.judge(raw)
	}
	if len(r.put) > 0 {
		if err := c.local.PutTools(ctx, r.put, nil); err != nil {
			return err
		}
	}
	return c.send(toolsRegisteredFrame(len(f.Tools), len(c.local.Tools()), r.rejected))
}

// registration is one register_tools frame being judged.
type registration struct {
	conn     *conn
	names    map[string]bool // offered so far
	put      []registry.ToolSpec
	rejected []rejection
}

func (r *registration) judge(raw json.RawMessage) {
	def, err := decodeTool(raw)
	if err != nil {
		r.reject(def.Name, reasonOf(err))
		return
	}
	others := len(r.names)
	if r.names[def.Name] {
		others-- // it replaces one
	}
	spec, err := r.conn.server.cfg.Admission.Admit(registry.ToolSpec{
		Name: def.Name, Description: def.Description, Parameters: def.Parameters, TimeoutMS: def.TimeoutMS,
		Annotations: def.Annotations, SecurityLevel: registry.SecurityLevel(def.SecurityLevel),
	}, others)
	if err != nil {
		r.reject(def.Name, reasonOf(err))
		return
	}
	r.names[spec.Name] = true
	r.put = slices.DeleteFunc(r.put, func(t registry.ToolSpec) bool { return t.Name == spec.Name })
	r.put = append(r.put, spec)
}

func (r *registration) reject(name, reason string) {
	r.rejected = append(r.rejected, rejection{Name: short(name), Reason: reason})
}

// reasonOf returns what the device is told about a definition that was left out.
func reasonOf(err error) string {
	var bad *frameError
	if errors.As(err, &bad) {
		return bad.message
	}
	return registry.AsError(err).Message
}

// unregisterTools takes tools back. Names the session does not offer are no mistake.
func (c *conn) unregisterTools(ctx context.Context, f *unregisterToolsFrame) error {
	var drop []string
	for _, t := range c.local.Tools() {
		if slices.Contains(f.Names, t.Name) {
			drop = append(drop, t.Name)
		}
	}
	if len(drop) > 0 {
		if err := c.local.PutTools(ctx, nil, drop); err != nil {
			return err
		}
	}
	return c.send(toolsRegisteredFrame(len(f.Names), len(c.local.Tools()), nil))
}
