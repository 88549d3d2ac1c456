package agent

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/farhand/farhand/agent/access/policy"
	"github.com/farhand/farhand/internal/trace"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/textsafe"
)

// Time limits for a person's answer.
const (
	DefaultApprovalTimeout = 2 * time.Minute // for a call whose caller waits
	DefaultDeferredTimeout = time.Hour       // for an asynchronous call
	MaxApprovalTimeout     = time.Hour       // for a call whose caller waits; policy cannot exceed it
)

// Approvals asks people for approvals. *approval.Service is one. Its methods are safe for concurrent use.
type Approvals interface {
	// Granted reports whether an earlier "allow always" covers a.
	Granted(ctx context.Context, a registry.Approval) (bool, error)

	// Ask stores the question and shows it to the approvers, for the time life. request is stored with a deferred
	// question.
	Ask(ctx context.Context, a registry.Approval, life time.Duration, request []byte) (registry.Approval, error)

	// Await returns the approval when it is final, at the latest when it expires. If ctx ends first, Await withdraws
	// the question. The call may run only if the error is nil and the state is registry.ApprovalAllowed.
	Await(ctx context.Context, a registry.Approval) (registry.Approval, error)
}

// ruleRepeats is the rule by which a turn asks before it reaches people a second time with the same arguments. No
// policy has to have it.
const ruleRepeats = "repeated"

// repeats reports whether the call reaches people as an earlier call of its turn did.
func (p *prepared) repeats() bool {
	return p.req.Repeats && p.inv.Spec.Effects.Is(registry.ClassPeople)
}

var errChanged = registry.Errorf(registry.CodeApprovalDenied, "The tool, its device or the arguments changed after "+
	"the approval, so the approval is invalid. Call again to request a new one.")

// needsApproval returns the approval that a call needs; nil: none. It is the last check: the arguments must not change
// afterwards. It refuses calls that the policy forbids by their marks, and calls that nothing can approve.
func (i *Invoker) needsApproval(ctx context.Context, p *prepared) (*registry.Approval, error) {
	inv, d := &p.inv, p.inv.Policy
	if len(d.Approvals)+len(d.Forbids) == 0 && !p.repeats() {
		return nil, nil
	}
	inv.noteMarks()
	if f := d.Forbidden(inv.Marks); f != nil {
		e := registry.Errorf(registry.CodePolicyDenied,
			"The policy of this gateway does not allow this call of %q: %s (rule %s).%s", inv.Spec.Name, f.When, f.Rule,
			inv.reasonText())
		e.Rule = f.Rule
		return nil, e
	}
	inv.Demand = d.Approval(inv.Marks)
	switch {
	case inv.Demand == nil && p.repeats():
		inv.Demand = &policy.Demand{Rule: ruleRepeats, When: "this turn already made the same call, and the tool " +
			"reaches people"}
	case inv.Demand == nil:
		return nil, nil
	}
	if i.cfg.Approvals == nil {
		e := registry.Errorf(registry.CodeApprovalDenied,
			"A person must approve this call of %q (rule %s), and this gateway has no approver.%s", inv.Spec.Name,
			inv.Demand.Rule, inv.reasonText())
		e.Rule = inv.Demand.Rule
		return nil, e
	}
	a := approvalOf(inv)
	if approved, err := i.isApproved(ctx, p, a); approved || err != nil {
		return nil, err
	}
	a.Pod = i.cfg.Pod
	return &a, nil
}

// isApproved reports whether this call, or all calls like it, are approved. It fails if the call has changed since, or
// is too long to be asked about.
func (i *Invoker) isApproved(ctx context.Context, p *prepared, a registry.Approval) (bool, error) {
	if p.approved == bindingOf(a) {
		if p.inv.Provenance != nil {
			p.inv.Provenance.Approved = true
		}
		return true, nil
	}
	if p.approved != "" {
		return false, errChanged
	}
	if n := p.inv.Args.Len(); n > registry.MaxApprovalArgs {
		return false, registry.Errorf(registry.CodePayloadTooLarge,
			"The arguments are too large for an approval: %d bytes; at most %d are allowed.",
			n, registry.MaxApprovalArgs)
	}
	if a.By == registry.ApproveTwo || p.repeats() { // people must see each call
		return false, nil
	}
	granted, err := i.cfg.Approvals.Granted(timed{ctx, p.inv.Deadline}, a)
	if granted {
		p.approver = "as granted by an earlier approval"
	}
	return granted && err == nil, err
}

// maxSources is the maximum number of arguments whose source an approval lists.
const maxSources = 32

func approvalOf(inv *Invocation) registry.Approval {
	digest := sha256.Sum256(inv.Args.Raw())
	terms := inv.Policy.Terms(inv.Marks)
	a := registry.Approval{
		ID: registry.NewApprovalID(), Tenant: inv.Caller.Tenant, CallID: inv.CallID, Tool: inv.Spec.Name,
		Effects: inv.Spec.Declared(), DefinitionHash: inv.Spec.Hash(),
		ArgsDigest: hex.EncodeToString(digest[:]), Args: inv.Args,
		SessionID: inv.Session.Key.Session, DeviceID: inv.Session.DeviceID, DeviceName: inv.Session.DeviceName,
		Owner:     cmp.Or(inv.Session.UserID, inv.Caller.User), // who must approve
		Unowned:   inv.Session.UserID == "" && inv.Session.Key.Session != "",
		Requester: inv.Caller.Requester(),
		Model:     inv.Model, Conversation: inv.Conversation.Session, Turn: inv.Turn,
		Rule: inv.Demand.Rule, Rules: strings.Join(terms.Rules, " "), By: terms.By, Within: terms.Within,
		Reason:     fmt.Sprintf("%s (rule %s).%s", inv.Demand.When, inv.Demand.Rule, inv.reasonText()),
		GrantLimit: terms.Grant, ExactArgs: inv.Marks&policy.ForeignArgument != 0,
	}
	if len(terms.Reasons) > 0 { // the operator's text comes first
		a.Reason = strings.Join(terms.Reasons, " ") + " Asked because: " + a.Reason
	} else {
		a.Reason = "The policy requires approval: " + a.Reason
	}
	if inv.Session.Can(registry.CapabilityApproval) {
		a.Approvers = []string{"the person at the device"}
	}
	if inv.Provenance != nil {
		for _, s := range inv.Provenance.Suspects[:min(len(inv.Provenance.Suspects), maxSources)] {
			a.Arguments = append(a.Arguments, registry.ArgumentSource{
				Pointer: textsafe.Expose(s.Pointer), Value: textsafe.Expose(s.Value), Source: string(s.Source),
				Record: s.ShownRecord(),
			})
		}
	}
	return a
}

// bindingOf identifies what one approval covers: this call, with its tool, definition, arguments, session and caller.
func bindingOf(a registry.Approval) string {
	return a.CallID + " " + a.SessionID + " " + registry.GrantOf(a, registry.ScopeAlwaysArgs).Binding()
}

// longestApproval returns how long approvals may take for the device calls of one call of a local tool.
func (i *Invoker) longestApproval() time.Duration {
	return min(max(i.cfg.ApprovalTimeout, i.cfg.Policy.LongestWithin()), MaxApprovalTimeout)
}

// approvalTime returns how long a person has to answer while the caller waits. If the caller set a timeout, a tenth of
// the remaining time is left for the tool.
func (i *Invoker) approvalTime(p *prepared) time.Duration {
	life := min(cmp.Or(p.approval.Within, i.cfg.ApprovalTimeout), MaxApprovalTimeout)
	if !p.within.IsZero() {
		life = min(life, time.Until(p.within)*9/10)
	}
	if outer := p.req.outer; outer != nil {
		life = min(life, outer.stopAllowance())
	}
	return max(life, 0)
}

// ask asks for the approval that a call needs, for the time life, and reports it to the caller. request is stored with
// the question of a deferred call. Of a suspended call that is resumed, the question exists: the request that was
// suspended has asked it.
func (i *Invoker) ask(ctx context.Context, p *prepared, life time.Duration, request []byte) error {
	asked := *p.approval
	if p.req.Resume != nil && request == nil {
		asked.CreatedAt = time.Now() // the store enforces the expiry of the question
		asked.ExpiresAt = asked.CreatedAt.Add(life)
	} else {
		var err error
		if asked, err = i.cfg.Approvals.Ask(ctx, asked, life, request); err != nil {
			return err
		}
	}
	p.approval = &asked
	p.reportApproval(asked)
	return nil
}

func (p *prepared) reportApproval(a registry.Approval) {
	if p.req.OnApproval != nil {
		p.req.OnApproval(a)
	}
}

// waitWithRecord is waitForApproval with a record, so that the call can be found and cancelled while it waits.
func (i *Invoker) waitWithRecord(ctx context.Context, p *prepared) error {
	p.rec.Approval = p.approval.ID
	p.rec.HoldMS += i.approvalTime(p).Milliseconds()
	err := i.cfg.CallLog.Attend(ctx, p.rec, func(ctx context.Context) error { return i.waitForApproval(ctx, p) })
	if err == nil {
		p.rec.DeviceID = p.route.Session.DeviceID
	}
	return err
}

// waitForApproval asks for the approval that a call needs, and waits for the answer. The wait does not count against
// the call's timeout. The approved call is then checked again, because minutes may have passed.
func (i *Invoker) waitForApproval(ctx context.Context, p *prepared) error {
	rule := p.inv.Demand.Rule
	waiting, span := trace.Start(ctx, trace.Internal, "await_approval", "")
	err := i.waitForAnswer(waiting, p)
	span.Text(trace.Approval, p.approval.ID).Text(trace.Rule, rule).End(string(registry.CodeOf(err)))
	if err == nil {
		err = i.recheck(ctx, p)
	}
	if err == nil {
		return nil
	}
	e := *undispatched(err)
	if e.Rule == "" && e.Code == registry.CodeApprovalDenied {
		e.Rule = rule
	}
	return &e
}

// waitForAnswer asks a person and waits for consent. The clock of an enclosing local tool stops meanwhile.
func (i *Invoker) waitForAnswer(ctx context.Context, p *prepared) error {
	began, life := time.Now(), i.approvalTime(p)
	if life == 0 {
		return registry.Errorf(registry.CodeTimeout, "The call timed out before a person could be asked.")
	}
	if p.req.outer != nil {
		defer p.req.outer.stop()()
	}
	var answered registry.Approval
	err := i.ask(timed{ctx, time.Now().Add(life)}, p, life, nil)
	if err == nil {
		answered, err = i.cfg.Approvals.Await(ctx, *p.approval)
		p.reportApproval(answered)
	}
	switch {
	case ctx.Err() != nil:
		return registry.Errorf(registry.CodeCancelled, "The call was cancelled while it waited for approval.")
	case err == nil:
		err = denial(answered)
	}
	if err != nil {
		return err
	}
	p.approved, p.approver = bindingOf(*p.approval), approverOf(answered)
	p.start = p.start.Add(time.Since(began))
	p.inv.Deadline = p.start.Add(p.inv.Timeout)
	return nil
}

func approverOf(a registry.Approval) string { return "approved by " + a.DecidedBy }

// recheck reads the route of an approved call again and runs the hooks again.
func (i *Invoker) recheck(ctx context.Context, p *prepared) error {
	if p.inv.Caller.Expired(time.Now()) {
		return registry.Errorf(registry.CodeUnauthenticated, "The caller's credentials expired while the call waited.")
	}
	if p.local == nil {
		fresh, err := i.cfg.Router.ResolveAgain(timed{ctx, p.inv.Deadline}, p.route)
		if err != nil {
			return err
		}
		p.route = fresh
	}
	p.inv.Args = p.inv.Asked
	return i.admit(ctx, p)
}

// denial returns why a call must not run, or nil if it was allowed. The text is for callers and models.
func denial(a registry.Approval) error {
	const again = "Do not retry it for the same purpose unless the person asks for it."
	text := ""
	switch a.State {
	case registry.ApprovalAllowed:
		return nil
	case registry.ApprovalDenied:
		text = fmt.Sprintf("A person denied this call of %q. %s", a.Tool, again)
		if a.Comment != "" {
			text += " The person's comment: " + a.Comment
		}
	case registry.ApprovalWithdrawn:
		text = fmt.Sprintf("The approval request for this call of %q was withdrawn before a decision.", a.Tool)
	default:
		text = fmt.Sprintf("This call of %q needs a person's approval and was denied after %v without an answer. "+
			"Ask an approver to watch `farhand approve list --wait` or GET /api/approvals, and call again.",
			a.Tool, a.ExpiresAt.Sub(a.CreatedAt).Round(time.Second))
		if len(a.Approvers) > 0 {
			text += " Approvers: " + strings.Join(a.Approvers, ", ") + "."
		}
	}
	if a.State == registry.ApprovalExpired && !a.Deferred && a.Turn == "" {
		text += ` To allow more time, send "mode": "async" (over MCP: a task): such a call waits without its ` +
			"caller."
	}
	if a.Reason != "" { // a model can do better once it knows the argument at fault
		text += " Reason: " + a.Reason
	}
	return registry.Errorf(registry.CodeApprovalDenied, "%s", text).With(registry.DispatchedNo)
}

// ruleDevice is the rule by which a device wants a person to decide about a call, such as the exec approvals of an
// OpenClaw node. No policy has to have it.
const ruleDevice = "device"

// decided reports whether a person decided that the call may run: an approver was asked or has granted such calls, or
// the caller is an approver who makes the call directly. A device that would ask its own person need not.
func (p *prepared) decided() bool {
	return p.approver != "" || !p.inv.Model && p.inv.Caller.Approves()
}

// askForDevice asks a person about a call that its device gave back (registry.AsksPerson). Without an error the call
// may be sent again, as decided, and must end by the time that is returned. A light call waits beyond its timeout, as
// for every approval. The timeout of a durable call is in its record, so its question must be answered before limit.
func (i *Invoker) askForDevice(
	ctx context.Context, p *prepared, why string, durable bool, limit time.Time,
) (time.Time, error) {
	began := time.Now()
	if err := i.decideForDevice(ctx, p, why, durable, limit); err != nil {
		return limit, err
	}
	if !durable {
		limit = limit.Add(time.Since(began))
	}
	if p.remaining = min(p.inv.Timeout, time.Until(limit)); p.remaining <= 0 {
		return limit, registry.TimedOut(p.inv.Timeout, registry.DispatchedNo)
	}
	return limit, nil
}

func (i *Invoker) decideForDevice(ctx context.Context, p *prepared, why string, durable bool, limit time.Time) error {
	if !durable {
		p.rec.Apply(registry.EventReturn, registry.Change{}, time.Now().UTC())
	}
	a, err := i.deviceApproval(p, why)
	if err != nil {
		return err
	}
	granted, err := i.cfg.Approvals.Granted(timed{ctx, limit}, a)
	if err != nil {
		return err
	}
	if granted {
		p.approver = "as granted by an earlier approval"
		return nil
	}
	p.approval = &a
	if durable {
		a.Within = min(cmp.Or(a.Within, i.cfg.ApprovalTimeout), time.Until(limit)*9/10)
		if a.Within <= 0 {
			return registry.TimedOut(p.inv.Timeout, registry.DispatchedNo)
		}
		err = i.waitForApproval(ctx, p)
	} else {
		err = i.waitWithRecord(ctx, p)
	}
	i.noteDecision(p, err)
	return err
}

// deviceApproval returns the approval that a device wants.
func (i *Invoker) deviceApproval(p *prepared, why string) (registry.Approval, error) {
	inv := &p.inv
	inv.Demand = &policy.Demand{Rule: ruleDevice, When: why}
	fail := func(code registry.Code, text string) (registry.Approval, error) {
		e := registry.Errorf(code, "The device wants a person to decide about this call of %q, and %s. It said: %s",
			inv.Spec.Name, text, why).With(registry.DispatchedNo)
		e.Rule = ruleDevice
		return registry.Approval{}, e
	}
	switch n := inv.Args.Len(); {
	case i.cfg.Approvals == nil:
		return fail(registry.CodeApprovalDenied, "this gateway has no approver")
	case p.decided():
		return fail(registry.CodeApprovalDenied, "does not accept the decision of an approver here")
	case n == 0 || n > registry.MaxApprovalArgs: // zero: dropped when the device got them, as too large
		return fail(registry.CodePayloadTooLarge, "its arguments are too large for an approval")
	}
	a := approvalOf(inv)
	a.Rules, a.Reason, a.Pod = ruleDevice, why+" (rule "+ruleDevice+").", i.cfg.Pod
	return a, nil
}
