package ws

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/ws/internal/fields"
)

const (
	maxDefinitions = 1024 // in one frame, valid or not, because the answer names every rejected one
	fewTools       = 16   // of a frame, for which memory is allocated before they are admitted
)

// The token bucket for bytes that a device registers. Its burst is twice what a session may offer, so that all tools
// can be replaced. Without it, a device whose schemas always change would fill the store, which keeps each version of a
// definition for a while.
const (
	registerBurst = 2        // times what a session may offer
	registerRate  = 32 << 10 // bytes a second
)

// registerTools checks the definitions one by one, in order, and registers the admitted ones.
func (c *conn) registerTools(ctx context.Context, f *registerToolsFrame) error {
	if len(f.Tools) > maxDefinitions {
		return fields.Invalid("tools: at most %d definitions are allowed in one frame", maxDefinitions)
	}
	c.registering.Lock()
	defer c.registering.Unlock()
	r := c.newRegistration(len(f.Tools))
	r.inTurn(ctx, f.Tools, r.admitTool)
	if err := r.review(ctx); err != nil {
		return err
	}
	if err := r.store(ctx); err != nil {
		return err
	}
	return c.send(toolsRegisteredFrame(len(f.Tools), len(c.local.Tools()), r.rejected, r.ignored))
}

// newRegistration returns a registration of about n tools. c.registering must be held.
func (c *conn) newRegistration(n int) *registration {
	few := min(n, fewTools)
	r := &registration{
		conn: c, offered: make(map[string]size, len(c.local.Tools())+few),
		put: make([]registry.ToolSpec, 0, few), turnsEnd: time.Now().Add(turnWait),
	}
	for i, t := range c.local.Tools() {
		r.offer(t, int(c.compiled[i]))
	}
	return r
}

// store registers the admitted tools, and removes the withdrawn ones.
func (r *registration) store(ctx context.Context) error {
	if len(r.put)+len(r.drop) == 0 {
		return nil
	}
	err := r.conn.local.PutTools(ctx, r.put, r.drop)
	if errors.Is(err, registry.CodeRateLimited) {
		if len(r.drop) > 0 { // they must no longer be offered
			return CloseRate
		}
		for _, t := range r.put {
			r.reject(t.Name, reasonOf(err))
		}
		r.put = nil
		return nil
	}
	tools := r.conn.local.Tools()
	r.conn.budget.spend(unitsPerTool * float64(len(tools))) // delays the next frame that needs the store
	r.conn.compiled = make([]int32, len(tools))
	for i, t := range tools {
		r.conn.compiled[i] = int32(r.offered[t.Name].compiled) // at most agent.maxCompiledBytes
	}
	return err
}

// registration is one register_tools frame that is being checked.
type registration struct {
	conn     *conn
	offered  map[string]size  // the tools offered so far, by name
	sum      size             // sum over offered
	names    *agent.Namesakes // names of offered; nil until a new name is checked
	put      []registry.ToolSpec
	drop     []string // tools that the session offers and must no longer offer
	rejected []rejection
	bare     []rejection // tools of an MCP device that are offered without their output schemas
	ignored  []ignoredFields

	turn      *share.Grant // nil: none
	turnUntil time.Time    // end of the turn, if others wait
	turnsEnd  time.Time    // after this it waits for no more turns
}

type size struct {
	bytes    int // of its definition
	compiled int // of its compiled schema
}

// admitTool decodes and checks one definition, and offers it if it is admitted.
func (r *registration) admitTool(ctx context.Context, raw json.RawMessage) {
	tool, err := r.admit(ctx, raw)
	if err != nil {
		if errors.Is(err, registry.CodePolicyDenied) || errors.Is(err, registry.CodeForbidden) {
			r.conn.server.cfg.Refusals.Tool(*r.conn.who, r.conn.local.Session(), tool.Spec.Name, err)
		}
		r.reject(tool.Spec.Name, reasonOf(err))
		return
	}
	r.take(tool)
}

// admit returns the admitted tool of a definition. With an error, it returns the name if that could be decoded.
func (r *registration) admit(ctx context.Context, raw json.RawMessage) (agent.Admitted, error) {
	admission := r.conn.server.cfg.Admission
	tool, known := admission.Known(raw)
	if !known {
		var err error
		if tool, err = decodeTool(raw); err != nil {
			return tool, err
		}
	}
	if full := r.conn.budget.takeDefinitions(len(raw)); full != noSpender {
		return tool, fields.NewError(codeRateLimited, fmt.Sprintf("%s registered too much in a short time; at most %d "+
			"bytes per second are allowed", full, full.times(registerRate)))
	}
	if err := r.takeTurn(ctx); err != nil {
		return tool, err
	}
	others := r.others(tool.Spec.Name)
	if known {
		return tool, admission.AdmitKnown(tool, others)
	}
	spec, err := admission.Admit(ctx, tool.Spec, others)
	if err != nil {
		return tool, err
	}
	size := admission.CompiledSize(ctx, &others.Who, spec)
	if ctx.Err() != nil { // the size may be wrong
		return tool, ctx.Err()
	}
	return admission.Remember(raw, agent.Admitted{Spec: spec, Compiled: size, Ignored: tool.Ignored}), nil
}

// others returns the offered tools other than the tool of this name.
func (r *registration) others(name string) agent.SessionTools {
	others := agent.SessionTools{Who: *r.conn.who, Tools: len(r.offered), Bytes: r.sum.bytes, Compiled: r.sum.compiled}
	if old, replaced := r.offered[name]; replaced {
		others.Tools--
		others.Bytes -= old.bytes
		others.Compiled -= old.compiled
		return others
	}
	if r.names == nil { // a name that is already offered was checked before, so most frames do not need them
		r.names = new(agent.Namesakes)
		for name := range r.offered {
			r.names.Add(name)
		}
	}
	others.Names = r.names
	return others
}

// take offers an admitted tool, and replaces an earlier tool of its name.
func (r *registration) take(t agent.Admitted) {
	if r.names != nil {
		r.names.AddKnown(t)
	}
	r.offer(t.Spec, t.Compiled)
	r.put = slices.DeleteFunc(r.put, func(other registry.ToolSpec) bool { return other.Name == t.Spec.Name })
	r.put = append(r.put, t.Spec)
	if len(t.Ignored) > 0 {
		r.ignored = append(r.ignored, ignoredFields{t.Spec.Name, t.Ignored})
	}
}

func (r *registration) offer(t registry.ToolSpec, compiled int) {
	old, now := r.offered[t.Name], size{t.Size(), compiled}
	r.sum.bytes += now.bytes - old.bytes
	r.sum.compiled += now.compiled - old.compiled
	r.offered[t.Name] = now
}

// withdraw counts a tool as no longer offered. If the session offers it, store removes it.
func (r *registration) withdraw(name string) {
	old := r.offered[name]
	r.sum.bytes -= old.bytes
	r.sum.compiled -= old.compiled
	delete(r.offered, name)
	if r.conn.offers(name) {
		r.drop = append(r.drop, name)
	}
}

// offers reports whether the session offers a tool with this name.
func (c *conn) offers(name string) bool {
	return slices.ContainsFunc(c.local.Tools(), func(t registry.ToolSpec) bool { return t.Name == name })
}

func (r *registration) reject(name, reason string) {
	r.rejected = append(r.rejected, rejection{Name: fields.Short(name), Reason: reason})
}

func reasonOf(err error) string {
	if bad, ok := errors.AsType[*fields.Error](err); ok {
		return bad.Message
	}
	if _, full := errors.AsType[*share.FullError](err); full || errors.Is(err, context.DeadlineExceeded) {
		return "the gateway was too busy to check the definition; register it again after a moment"
	}
	return registry.AsError(err).Message
}

// unregisterTools removes tools. It ignores names that the session does not offer.
func (c *conn) unregisterTools(ctx context.Context, f *unregisterToolsFrame) error {
	c.registering.Lock()
	defer c.registering.Unlock()
	tools := c.local.Tools()
	named := make(map[string]bool, len(tools)) // false: not named yet
	for _, t := range tools {
		named[t.Name] = false
	}
	for _, name := range f.Names { // there may be hundreds of thousands
		if _, offered := named[name]; offered {
			named[name] = true
		}
	}
	var drop []string
	var compiled []int32
	for i, t := range tools {
		if named[t.Name] {
			drop = append(drop, t.Name)
		} else {
			compiled = append(compiled, c.compiled[i])
		}
	}
	if len(drop) > 0 {
		c.budget.spend(unitsPerTool * float64(len(tools))) // as in registration.store
		err := c.local.PutTools(ctx, nil, drop)
		if errors.Is(err, registry.CodeRateLimited) { // removed tools must no longer be offered
			return CloseRate
		}
		c.compiled = compiled
		if err != nil {
			return err
		}
	}
	return c.send(toolsRegisteredFrame(len(f.Names), len(c.local.Tools()), nil, nil))
}

// Checking a definition takes 0.1 ms for each name that it may be mistaken for. Listing a session's tools takes some
// milliseconds per mebibyte. Devices take turns for both, by tenant and identity. During a turn, a schema may wait for
// the compiler pool. The other order never happens, so there is no deadlock.
const (
	// turnLength is how long one frame's definitions are checked while others wait. It is checked between two
	// definitions.
	turnLength = 10 * time.Millisecond

	// turnWait is how long the definitions of one frame wait for turns in total. The rest of storeTimeout is for the
	// store.
	turnWait = storeTimeout / 2
)

// inTurn calls admit for each definition. admit takes the turns, and inTurn ends the last one.
func (r *registration) inTurn(
	ctx context.Context, definitions []json.RawMessage, admit func(context.Context, json.RawMessage),
) {
	defer r.endTurn()
	for _, raw := range definitions {
		admit(ctx, raw)
	}
	r.conn.budget.spend(unitsPerTool * float64(len(definitions))) // also for rejected ones
}

// takeTurn waits for a turn, unless the registration has one that is shorter than turnLength so far.
func (r *registration) takeTurn(ctx context.Context) error {
	if r.turn != nil && time.Now().Before(r.turnUntil) {
		return nil
	}
	r.endTurn()
	ctx, cancel := context.WithDeadline(ctx, r.turnsEnd)
	defer cancel()
	turn, err := r.conn.server.turns.Acquire(ctx, r.conn.who.Owner(), 1)
	if err != nil {
		return err
	}
	r.turn, r.turnUntil = turn, time.Now().Add(turnLength)
	return nil
}

func (r *registration) endTurn() {
	r.turn.Release()
	r.turn = nil
}

// listRegistered sends the device its registered tools. The list may be a million times as long as the request, so its
// bytes have a token bucket, like the bytes of definitions.
func (c *conn) listRegistered(ctx context.Context, _ *getRegisteredToolsFrame) error {
	tools, size := c.local.Tools(), 0
	for _, t := range tools {
		size += t.Size()
	}
	by := owner(c.who, c.server.cfg.MaxUnsent)
	if size > unsentLeft && c.server.unsent.Lacks(by, int64(size)) != "" {
		return errTooMuchUnsent // before the list is built
	}
	if full := c.budget.takeListing(size); full != noSpender {
		return fields.NewError(codeRateLimited, fmt.Sprintf("%s requested tools too often in a short time; at most %d "+
			"bytes per second are sent", full, full.times(registerRate)))
	}
	turn, err := c.server.turns.Acquire(ctx, c.who.Owner(), 1)
	if err != nil {
		return fields.NewError(codeRateLimited, "the gateway is too busy to list the tools; retry after a moment")
	}
	frame := registeredToolsFrame(tools)
	turn.Release()
	if err = c.out.push(frame); errors.Is(err, errOutboxesFull) {
		return errTooMuchUnsent
	}
	return sendError(err)
}

var errTooMuchUnsent = fields.NewError(codeRateLimited,
	"the send queues of this pod, or of this tenant on it, are full; retry after a moment")
