package agent

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/farhand/farhand/agent/access/policy"
	"github.com/farhand/farhand/agent/chat/provenance"
	"github.com/farhand/farhand/internal/trace"
	"github.com/farhand/farhand/registry"
)

// prepared is a call that may run: on this pod if local is set, else on a device.
type prepared struct {
	req     *Request
	local   Tool
	session SessionContext // that local was made for
	route   registry.Route
	inv     Invocation

	start     time.Time     // when the request arrived; the timeout runs from here
	remaining time.Duration // what remains of the timeout after the hooks have admitted the call

	approval *registry.Approval // what a person must approve before the call runs; nil: nothing
	approved string             // what was approved, as of bindingOf; empty: nothing
	approver string             // who approved it, for the audit log; empty: no approval was needed

	rec     *registry.Record // nil until the call is prepared
	waited  *registry.Record // the record stored while the call waited for its device; nil: none
	inOrder func()           // called when an ordered call has its position; may be nil
	sent    func()           // called once when the device has the call, if its arguments are long; may be nil
	lost    string           // the loss to report to the caller; empty: none known
	queue   string           // the queue that the call must join; empty: it may run
	within  time.Time        // when the call must have ended; zero: when its timeout ends
}

// end returns when the timeout of the call ends.
func (p *prepared) end() time.Time { return p.start.Add(p.inv.Timeout) }

// dropArgs drops the arguments, because the device has the call.
func (p *prepared) dropArgs() {
	p.inv.Args, p.inv.Asked = registry.JSON{}, registry.JSON{}
	p.sent()
}

// prepare does all steps before the tool runs. On an error, p.inv holds what was known by then.
func (i *Invoker) prepare(ctx context.Context, req *Request, p *prepared, out *Outcome) error {
	p.req, p.local, p.session, p.within = req, req.Local, req.session, i.endOfCall(req, p.start)
	p.inv = Invocation{
		CallID: req.CallID, Caller: req.Caller, Spec: registry.ToolSpec{Name: req.Tool}, Args: req.Args,
		Asked: req.Args, Timeout: i.clamp(req.Timeout, 0), Conversation: req.Conversation, Turn: req.Turn,
		CallHistory: req.history, Child: req.child != nil, Model: req.Model, Endpoint: req.Endpoint,
		Context: req.Context, Provenance: req.Provenance, charged: p.inv.charged,
	}
	if req.child != nil {
		p.route, out.Session = req.child.Route, req.child.Route.Session
		if req.child.Asleep {
			p.queue = p.route.Session.DeviceKey()
		}
	}
	if req.refused != nil {
		return req.refused
	}
	if err := i.checkQueue(req); err != nil {
		return err
	}
	if p.local == nil {
		var err error
		p.session = sessionOf(req)
		if p.local, err = i.localTool(ctx, req, p.end()); err != nil {
			return err
		}
	}
	if p.local != nil {
		spec, err := specOf(p.local)
		if err != nil {
			return err
		}
		p.route.Session.Tenant, p.route.Spec = req.Caller.Tenant, spec
		p.inv.Source, _ = SourceOf(p.local)
	} else {
		if err := i.resolve(ctx, p); err != nil {
			return err
		}
		p.inv.Source = sourceOf(p.route.Session.Key)
	}
	err := i.admit(ctx, p)
	if err != nil && p.route.Remembered { // the reason of the refusal may have changed
		err = i.admitAnew(ctx, p, err)
	}
	out.Session = p.route.Session
	return err
}

// resolve finds the session of a call. If its device is expected back shortly, resolve waits for it.
func (i *Invoker) resolve(ctx context.Context, p *prepared) error {
	req, target := p.req, p.req.Target
	if viewer := req.Caller.Viewer(); viewer != "" && target.Viewer != registry.NoUser {
		target.Viewer = viewer
	}
	until := p.end()
	if p.route.Session.Key != (registry.Key{}) { // a child's, from a listing
		if req.Queue == 0 || p.queue != "" {
			return nil
		}
		_, err := i.resolveQueued(timed{ctx, until}, p, target, p.route, nil)
		return err
	}
	route, waits, err := i.cfg.Router.ResolveNow(timed{ctx, until}, req.Caller.Tenant, req.Tool, target, req.Select)
	if req.Queue > 0 {
		if done, failed := i.resolveQueued(timed{ctx, until}, p, target, route, err); done {
			return failed
		}
	}
	if waits {
		return i.awaitDevice(ctx, p, target, until)
	}
	if errors.Is(err, registry.CodeAmbiguousTarget) {
		route, err = i.resolvePreferred(timed{ctx, until}, req, target, err)
	}
	p.route = route
	return err
}

// awaitDevice is resolve for a call whose device is away. A call that would have no record gets one now, so that it can
// be found and cancelled. A call that gets a record later needs none yet: until then its caller does not know its id.
func (i *Invoker) awaitDevice(ctx context.Context, p *prepared, target registry.Target, until time.Time) error {
	req := p.req
	wait := func(ctx context.Context) (err error) {
		p.route, err = i.cfg.Router.Resolve(timed{ctx, until}, req.Caller.Tenant, req.Tool, target, req.Select)
		return err
	}
	if req.durable() || req.AsyncIfLonger > 0 || req.Suspend || req.Resume != nil {
		return wait(ctx)
	}
	rec := i.recordOf(p, &registry.Session{
		Key: registry.Key{Tenant: req.Caller.Tenant, Session: target.SessionID}, DeviceID: target.DeviceID,
	})
	p.waited = rec
	return i.cfg.CallLog.Attend(ctx, rec, wait)
}

// endOfCall returns the hard end of a call. If the caller names a timeout, the wait for approval is part of it; else it
// comes in addition to the timeout, and the end is zero. A local tool waits as long as its own caller does.
func (i *Invoker) endOfCall(req *Request, start time.Time) time.Time {
	if req.outer == nil && req.Timeout > 0 && req.Resume == nil && !req.Async {
		return start.Add(i.clamp(req.Timeout, 0))
	}
	return req.within
}

// admitAnew reads the route of a call again, because the session may have changed since it was cached. If it has, the
// hooks decide again. Otherwise admitAnew returns refused, the error of the first attempt.
func (i *Invoker) admitAnew(ctx context.Context, p *prepared, refused error) error {
	// The end of the call, because it may be refused before inv.Deadline is set.
	fresh, err := i.cfg.Router.ResolveAgain(timed{ctx, p.end()}, p.route)
	if err != nil {
		return err
	}
	before := p.route
	p.route = fresh
	if fresh.Spec.Hash() == before.Spec.Hash() && fresh.Session.Generation == before.Session.Generation &&
		fresh.Session.AttributesDigest() == before.Session.AttributesDigest() &&
		fresh.Session.InBackground() == before.Session.InBackground() {
		return refused
	}
	p.inv.Args = p.inv.Asked
	return i.admit(ctx, p)
}

// admit runs the hooks on a call whose route is known.
func (i *Invoker) admit(ctx context.Context, p *prepared) (err error) {
	ctx, span := trace.Start(ctx, trace.Internal, "admit", "")
	defer func() { span.End(string(registry.CodeOf(err))) }()
	p.inv.Session, p.inv.Spec = p.route.Session, p.route.Spec
	if len(i.cfg.Hooks) > 0 { // custom hooks get a copy: other calls may share the cached session
		p.inv.Session = p.inv.Session.Clone()
	}
	by := Asker{Who: p.inv.Caller, Context: p.inv.Context, Model: p.inv.Model, Endpoint: p.inv.Endpoint}
	from := policy.Remote
	if p.local != nil {
		_, from = SourceOf(p.local)
	}
	p.inv.Policy = i.cfg.Policy.Decide(by.policyQuestion(p.inv.Spec, from))
	span.Text(trace.Rule, p.inv.Policy.Rule)
	if err = p.inv.Policy.Err(); err != nil {
		return err
	}
	// Before a person or a limit is asked.
	if p.queue == "" && p.route.Session.InBackground() && p.inv.Spec.Effects.Foreground() {
		return registry.NeedsForeground(p.inv.Spec.Name)
	}
	p.inv.Timeout = i.clamp(p.req.Timeout, p.route.Spec.Timeout())
	if most := p.inv.Policy.Resources.MaxRuntime; most > 0 {
		p.inv.Timeout = min(p.inv.Timeout, most)
	}
	if p.queue == "" { // a queued call outlives its request
		if !p.within.IsZero() {
			p.inv.Timeout = min(p.inv.Timeout, p.within.Sub(p.start))
		}
		if p.req.outer != nil {
			p.inv.Timeout = min(p.inv.Timeout, p.req.atMost)
		}
	}
	p.inv.Deadline = p.start.Add(p.inv.Timeout)
	if p.local == nil {
		if err = i.giveUploads(ctx, &p.inv); err != nil {
			return err
		}
	}
	if err = i.hooks.before(ctx, i.cfg.Log, &p.inv); err != nil {
		return err
	}
	if p.local != nil {
		if err = i.checkLocal(ctx, p.local, &p.inv); err != nil {
			return err
		}
	}
	if p.approval, err = i.needsApproval(ctx, p); err != nil {
		return err
	}
	// The checks do not reduce the tool's time unless they take a millisecond or more.
	if p.remaining = p.inv.Timeout - time.Since(p.start).Truncate(time.Millisecond); p.remaining <= 0 {
		return registry.OutOfTime()
	}
	return nil
}

// localTool returns the local tool that a request names; nil: none, as with a target or a conversation. It waits until
// the given time for live tools that are not known yet.
func (i *Invoker) localTool(ctx context.Context, req *Request, until time.Time) (Tool, error) {
	if i.cfg.LocalTools == nil || !req.Target.IsZero() || req.Conversation != (registry.Key{}) {
		return nil, nil
	}
	tool, err := i.cfg.LocalTools.find(sessionOf(req), req.Tool)
	if err != nil {
		i.cfg.Log.Warn("factory did not return the announced tool", "tool", req.Tool, "error", err)
	}
	if tool != nil || !i.cfg.LocalTools.Owns(req.Tool) {
		return tool, nil
	}
	if err := i.cfg.LocalTools.Await(ctx, req.Tool, until); err != nil {
		return nil, err
	}
	return i.cfg.LocalTools.liveTool(req.Tool), nil
}

// sessionOf returns the SessionContext of a call outside of conversations.
func sessionOf(req *Request) SessionContext {
	return SessionContext{
		Key: registry.Key{Tenant: req.Caller.Tenant}, Caller: req.Caller, Channel: ChannelCall,
		Kind: policy.Join(req.Context, policy.Context(req.Caller.Context)),
	}
}

func sourceOf(session registry.Key) string { return sourceRemote + session.Session }

// clamp returns the timeout of a call: the requested one, else the tool's, else the default; at most MaxTimeout.
func (i *Invoker) clamp(requested, ofTool time.Duration) time.Duration {
	for _, d := range []time.Duration{requested, ofTool, i.cfg.Timeout} {
		if d > 0 {
			return min(d, i.cfg.MaxTimeout)
		}
	}
	return i.cfg.MaxTimeout
}

// Policy decides who may call and register which tools. It is the first check of every call and every registration.
type Policy = policy.Policy

// PolicyRules are the name lists of a policy.
type PolicyRules = policy.Lists

// NewPolicy returns a policy of lists and defaults only. A malformed pattern is an error.
func NewPolicy(lists PolicyRules) (*Policy, error) { return policy.New(policy.Options{Lists: lists}) }

// Provenance holds where the values of one call of a model come from. Its creator reads the fields below Conversation
// after the call. During the call, the goroutine that makes it owns them.
type Provenance struct {
	Conversation *provenance.Conversation // what the model has read
	Tool         string                   // as in Conversation.Approve; empty: no approved calls

	// Definitions returns the definitions that a model was shown of tools that devices and MCP servers offer, without
	// those of the owner of the called tool; nil: none.
	Definitions func() string

	Suspects []provenance.Argument // arguments that a person should approve

	// Approved is set if a person has seen and allowed the arguments of this very call. It is not set for a call that
	// "allow always" covers: its arguments were not seen, so they vouch for nothing.
	Approved bool
}

// noteMarks determines where the arguments of a call come from. It runs after all hooks.
func (inv *Invocation) noteMarks() {
	p := inv.Provenance
	if p == nil || p.Conversation == nil {
		return
	}
	call := provenance.Call{
		Tool: p.Tool, Args: inv.Args.Raw(), Schema: inv.Spec.Parameters, Destinations: inv.Policy.Destinations,
	}
	var facts provenance.Facts
	switch {
	case p.Conversation.Tainted():
		inv.Marks = policy.Untrusted
		facts = p.Conversation.Origins(call)
	case p.Definitions != nil:
		facts = p.Conversation.Defined(call, p.Definitions)
	}
	if !facts.Tainted {
		return
	}
	p.Approved = false // the call may be checked again
	effect := provenance.Changes
	if e := inv.Policy.Effects; e&policy.Destructive != 0 {
		effect = provenance.Destroys
	} else if e.OnlyReads() {
		effect = provenance.Reads
	}
	if p.Suspects = facts.Suspects(effect); len(p.Suspects) > 0 {
		inv.Marks |= policy.ForeignArgument
	}
}

// maxSuspects is how many values a sentence lists.
const maxSuspects = 3

// reasonText returns why the values of a call need approval, as a sentence after a space; empty: they do not.
func (inv *Invocation) reasonText() string {
	p := inv.Provenance
	if p == nil || len(p.Suspects) == 0 {
		return ""
	}
	var values []string
	for _, a := range p.Suspects[:min(len(p.Suspects), maxSuspects)] {
		values = append(values, a.String())
	}
	more := ""
	if n := len(p.Suspects) - maxSuspects; n > 0 {
		more = fmt.Sprintf(", and %d more", n)
	}
	return " The person has not named " + strings.Join(values, ", ") + more + "."
}
