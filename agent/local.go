package agent

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/farhand/farhand/agent/access/policy"
	"github.com/farhand/farhand/registry"
)

// MaxLocalOutput is the maximum output of a local tool, in bytes. The rest, or all structured output, is dropped.
const MaxLocalOutput = 1 << 20

// truncatedMark is appended to truncated output.
const truncatedMark = "\n[cut: the output was longer than 1 MiB]"

// localRunner is an optional interface of a Router: it makes calls on this pod visible and cancellable everywhere.
type localRunner interface {
	RunLocal(
		ctx context.Context, c registry.Call,
		run func(ctx context.Context, report func(registry.Report)) (registry.Result, error),
	) (registry.Result, error)
}

// runLocal runs a local tool on the calling goroutine. The errors say whether the tool has started.
func (i *Invoker) runLocal(ctx context.Context, p *prepared, durable bool) (registry.Result, error) {
	run := func(ctx context.Context, report func(registry.Report)) (registry.Result, error) {
		if keeps := i.podState(p); keeps.Kind != "" {
			return i.runAtPlace(ctx, p, keeps, report)
		}
		return i.runTimed(ctx, p, report)
	}
	if r, ok := i.cfg.Router.(localRunner); ok {
		return r.RunLocal(ctx, registry.Call{
			ID: p.inv.CallID, Route: p.route, Args: p.inv.Args, Timeout: p.remaining, Durable: durable, Record: p.rec,
		}, run)
	}
	return run(ctx, nil)
}

// runTimed runs a local tool on this pod, for the rest of its timeout, without approvals of its devices' calls.
func (i *Invoker) runTimed(ctx context.Context, p *prepared, report func(registry.Report)) (registry.Result, error) {
	if !p.within.IsZero() {
		bounded, cancel := context.WithDeadline(ctx, p.within)
		defer cancel()
		ctx = bounded
	}
	clock, stop := newToolClock(ctx, p.remaining, i.longestApproval())
	defer stop()
	ctx = clock
	call := &toolCall{inv: &p.inv, invoker: i, prepared: p, clock: clock, report: report}
	if p.lost != "" {
		call.losses = []string{p.lost}
	}
	res, err := i.executeLocal(toolContext{onlyDeadline(ctx), call}, p.local, &p.inv)
	if err != nil {
		return call.withLosses(registry.Result{}, localError(ctx, &p.inv, err))
	}
	res.Violations = i.checkOutput(ctx, &p.inv, res)
	res, _ = call.withLosses(res, nil)
	return i.fitResult(ctx, &p.inv, res), nil
}

// checkOutput checks the tool's own result. A result that will be truncated is not checked, and a violation says so.
func (i *Invoker) checkOutput(ctx context.Context, inv *Invocation, res registry.Result) []registry.Violation {
	size := res.Structured.Len()
	if size == 0 {
		size = len(res.Output)
	}
	if res.Success && len(inv.Spec.OutputSchema) > 0 && size > MaxLocalOutput {
		return []registry.Violation{{Message: "not checked: the answer is longer than 1 MiB"}}
	}
	return i.cfg.Schemas.CheckOutput(ctx, inv.Caller.Tenant, inv.Spec.OutputSchema, res)
}

// checkLocal asks a local tool to validate the arguments, to authorize the caller, and whether the call needs approval.
func (i *Invoker) checkLocal(ctx context.Context, t Tool, inv *Invocation) (err error) {
	if why := unavailable(t); why != "" && !isReturning(t) { // calls of a returning tool wait when they run
		if err := i.cfg.LocalTools.Await(ctx, inv.Spec.Name, inv.Deadline); err != nil {
			return err
		}
		if why = unavailable(t); why != "" {
			return registry.Errorf(registry.CodeToolNotFound,
				"The tool %q is not available here: %s", inv.Spec.Name, why)
		}
	}
	t = madeBy(t)
	validator, validates := t.(ArgsValidator)
	authorizer, authorizes := t.(CallAuthorizer)
	checker, checks := t.(ApprovalChecker)
	if !authorizes && !validates && !checks {
		return nil
	}
	defer onPanic(func(p any) { err = i.toolPanicked(inv, p) })
	ctx, cancel := context.WithDeadline(toolContext{onlyDeadline(ctx), &toolCall{inv: inv}}, inv.Deadline)
	defer cancel()
	if validates {
		if err := validator.Validate(ctx, inv.Args.Raw()); err != nil {
			return refusal(ctx, err, registry.CodeInvalidArguments)
		}
	}
	if authorizes {
		if err := authorizer.Authorize(ctx, inv.Caller, inv.Args.Raw()); err != nil {
			return refusal(ctx, err, registry.CodeForbidden)
		}
	}
	if checks {
		if why, needed := checker.NeedsApproval(inv.Args.Raw()); needed {
			inv.Policy = inv.Policy.WithApproval(policy.Demand{Rule: ruleOfTool, When: why})
		}
	}
	return nil
}

// ruleOfTool is the rule name for approvals that a tool itself demands.
const ruleOfTool = "tool"

// refusal returns the error of a refusing tool with the right code.
func refusal(ctx context.Context, err error, code registry.Code) error {
	if e, ok := errors.AsType[*registry.Error](err); ok {
		return e
	}
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return registry.OutOfTime()
	case ctx.Err() != nil:
		return registry.Cancelled()
	}
	e := registry.Errorf(code, "%s", err.Error())
	if all, ok := err.(interface{ Unwrap() []error }); ok && code == registry.CodeInvalidArguments {
		if each := all.Unwrap(); len(each) > 1 { // readers see the message and each violation
			e.Message = "The arguments cannot be used."
			for _, one := range each {
				e.Violations = append(e.Violations, registry.Violation{Message: one.Error()})
			}
		}
	}
	return e
}

func (i *Invoker) executeLocal(ctx context.Context, t Tool, inv *Invocation) (res registry.Result, err error) {
	defer onPanic(func(p any) { err = i.toolPanicked(inv, p) })
	return t.Execute(ctx, inv.Args.Raw())
}

func (i *Invoker) toolPanicked(inv *Invocation, p any) error {
	i.cfg.Log.Error("panic in a tool",
		"tool", inv.Spec.Name, "call", inv.CallID, "panic", p, "stack", string(debug.Stack()))
	return fmt.Errorf("the tool %s panicked: %v", inv.Spec.Name, p)
}

// localError returns the error of a tool for its caller: why its context ended, if that is the cause.
func localError(ctx context.Context, inv *Invocation, err error) *registry.Error {
	e, own := errors.AsType[*registry.Error](err)
	switch {
	case own:
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		e = registry.Errorf(registry.CodeTimeout, "The tool %q did not finish within %v.", inv.Spec.Name, inv.Timeout)
	case ctx.Err() != nil:
		e = registry.Cancelled()
	default:
		e = registry.AsError(err)
	}
	if e.Dispatched == "" {
		e = e.With(registry.DispatchedYes)
	}
	return e
}

// fitResult returns a result that is within the limits for sending and storing.
func (i *Invoker) fitResult(ctx context.Context, inv *Invocation, res registry.Result) registry.Result {
	res.Output, res.Error = truncated(res.Output), truncated(res.Error)
	if res.Structured.Len() > MaxLocalOutput {
		res.Structured = registry.JSON{}
	}
	res.Parts = i.fitParts(ctx, inv, res.Parts)
	return res
}

// fitParts returns the parts that can be sent and stored. A part that does not fit gets a link instead of its data, or
// only its description. Malformed parts are dropped.
func (i *Invoker) fitParts(ctx context.Context, inv *Invocation, parts []registry.Part) []registry.Part {
	var fitted []registry.Part
	free := registry.MaxInlinePart
	for _, p := range parts[:min(len(parts), registry.MaxParts)] {
		if p.Data != nil {
			p.Size = int64(len(p.Data))
		}
		if field, _ := p.Check(); field != "" {
			continue
		}
		if len(p.Data) > free {
			p = i.linkPart(ctx, inv, p)
		}
		free -= len(p.Data)
		fitted = append(fitted, p)
	}
	return fitted
}

// linkPart returns a part without its data, with a link to the data if they can be stored.
func (i *Invoker) linkPart(ctx context.Context, inv *Invocation, p registry.Part) registry.Part {
	if i.cfg.Files != nil {
		key := registry.Key{Tenant: inv.Caller.Tenant, Session: inv.Conversation.Session}
		stored, err := i.cfg.Files.Store(ctx, key, inv.Caller.FileOwner(), inv.CallID, p)
		if err == nil {
			return stored
		}
		i.cfg.Log.Warn("file of a tool not stored", "tool", inv.Spec.Name, "call", inv.CallID, "error", err)
	}
	p.Data = nil
	return p
}

func truncated(s string) string { return registry.Truncate(s, MaxLocalOutput, truncatedMark) }

// toolClock is the context of a running local tool. It ends when the tool's time is used up. The clock stops while a
// device call of the tool waits for approval.
type toolClock struct {
	context.Context // ends with the call, whatever the clock says
	end             context.CancelFunc

	mu        sync.Mutex
	timer     *time.Timer
	until     time.Time     // the deadline, not yet moved by the current stop
	stops     int           // how many approvals it waits for
	since     time.Time     // when it was stopped
	allowance time.Duration // how long it may still be stopped, not yet reduced by the current stop
	expired   bool
}

// newToolClock returns a clock that runs for runs, and may be stopped for allowance in total. stop must be called.
func newToolClock(ctx context.Context, runs, spare time.Duration) (c *toolClock, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	c = &toolClock{Context: ctx, end: cancel, until: time.Now().Add(runs), allowance: spare}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.timer = time.AfterFunc(runs, c.expire)
	return c, func() {
		c.timer.Stop()
		cancel()
	}
}

// expire ends the context because the time is used up, unless the clock has just been stopped.
func (c *toolClock) expire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stops == 0 && c.Context.Err() == nil {
		c.expired = true
		c.end()
	}
}

// stop stops the clock until resume is called. Stops may overlap.
func (c *toolClock) stop() (resume func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stops++; c.stops == 1 {
		c.timer.Stop()
		c.since = time.Now()
	}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.stops--; c.stops == 0 {
			stopped := time.Since(c.since)
			c.allowance -= stopped
			c.until = c.until.Add(stopped)
			c.timer.Reset(time.Until(c.until))
		}
	}
}

func (c *toolClock) stopAllowance() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	left := c.allowance
	if c.stops > 0 {
		left -= time.Since(c.since)
	}
	return max(left, 0)
}

// Deadline implements context.Context. It moves while the clock is stopped.
func (c *toolClock) Deadline() (time.Time, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	until := c.until
	if c.stops > 0 {
		until = until.Add(time.Since(c.since))
	}
	if outer, ok := c.Context.Deadline(); ok && outer.Before(until) {
		until = outer
	}
	return until, true
}

func (c *toolClock) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.expired {
		return context.DeadlineExceeded
	}
	return c.Context.Err()
}
