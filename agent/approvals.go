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
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/legible"
)

// Time limits for a person's answer.
const (
	DefaultApprovalTimeout = 2 * time.Minute // for a call whose caller waits
	DefaultDeferredTimeout = time.Hour       // for an asynchronous call
	MaxApprovalTimeout     = time.Hour       // for a call whose caller waits, whatever the policy says
)

// Approvals asks people for approvals. *approval.Keeper is one. Its methods are safe for concurrent use.
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

// ownerOf returns the user who must approve a call: the owner of its device, else the caller.
func ownerOf(inv *Invocation) string {
	if inv.Session.UserID != "" {
		return inv.Session.UserID
	}
	return inv.Caller.User
}

// errChanged is the error of a call that has changed since it was approved.
var errChanged = registry.Errorf(registry.CodeApprovalDenied, "The tool, its device or the arguments have changed "+
	"since the call was approved, so the approval does not hold. Call again to ask anew.")

// demand finds out whether a person must approve a call for which the policy demands it. It sets p.ask to the question.
// It does not ask if this call, or all calls like it, are already approved.
func (i *Invoker) demand(ctx context.Context, p *prepared) error {
	a := approvalOf(&p.inv)
	if p.approved == bindingOf(a) {
		if p.inv.Provenance != nil {
			p.inv.Provenance.Approved = true
		}
		return nil
	}
	if p.approved != "" {
		return errChanged
	}
	if n := p.inv.Args.Len(); n > registry.MaxApprovalArgs {
		return registry.Errorf(registry.CodePayloadTooLarge,
			"The call needs a person's approval, and nobody can be asked about %d bytes of arguments; %d are allowed.",
			n, registry.MaxApprovalArgs)
	}
	granted := false
	var err error
	if a.By != registry.ApproveTwo { // two people must see each call
		granted, err = i.cfg.Approvals.Granted(timed{ctx, p.inv.Deadline}, a)
	}
	if granted {
		p.consent = "as granted by an earlier approval"
	}
	if err == nil && !granted {
		a.Pod = i.cfg.Pod
		p.ask = &a
	}
	return err
}

// maxSources is the maximum number of arguments whose source an approval lists.
const maxSources = 32

// approvalOf returns the approval to ask for about a call.
func approvalOf(inv *Invocation) registry.Approval {
	digest := sha256.Sum256(inv.Args.Raw())
	terms := inv.Policy.Terms(inv.Marks)
	a := registry.Approval{
		ID: registry.NewApprovalID(), Tenant: inv.Caller.Tenant, CallID: inv.CallID, Tool: inv.Spec.Name,
		DefinitionHash: inv.Spec.Hash(), ArgsDigest: hex.EncodeToString(digest[:]), Args: inv.Args,
		SessionID: inv.Session.Key.Session, DeviceID: inv.Session.DeviceID, DeviceName: inv.Session.DeviceName,
		Owner:     ownerOf(inv),
		Requester: inv.Caller.Requester(),
		Model:     inv.Model, Conversation: inv.Conversation.Session, Turn: inv.Turn,
		Rule: inv.Demand.Rule, Rules: strings.Join(terms.Rules, " "), By: terms.By, Within: terms.Within,
		Reason:     reasonOf(inv, terms.Reasons),
		GrantLimit: terms.Grant, ExactArgs: inv.Marks&policy.ForeignArgument != 0,
	}
	if inv.Session.Can(registry.CapabilityApproval) {
		a.Approvers = []string{"the person at the device"}
	}
	if inv.Provenance != nil {
		for _, s := range inv.Provenance.Suspects[:min(len(inv.Provenance.Suspects), maxSources)] {
			a.Arguments = append(a.Arguments, registry.ArgumentSource{
				Pointer: legible.Expose(s.Pointer), Value: legible.Expose(s.Value), Source: string(s.Source),
				Record: s.ShownRecord(),
			})
		}
	}
	return a
}

// reasonOf returns why a call needs approval, for people: the operator's text, then the rule.
func reasonOf(inv *Invocation, own []string) string {
	why := fmt.Sprintf("%s (rule %s).%s", inv.Demand.When, inv.Demand.Rule, inv.because())
	if len(own) > 0 {
		why = strings.Join(own, " ") + " Asked because: " + why
	}
	return why
}

// bindingOf identifies what one approval covers: the same call of the same tool, with the same definition and
// arguments, to the same session, by the same caller.
func bindingOf(a registry.Approval) string {
	return a.CallID + " " + a.SessionID + " " + registry.GrantOf(a, registry.ScopeAlwaysArgs).Binding()
}

// longestQuestion returns how long approvals may take for the device calls of one call of a local tool.
func (i *Invoker) longestQuestion() time.Duration {
	return min(max(i.cfg.ApprovalTimeout, i.cfg.Policy.LongestWithin()), MaxApprovalTimeout)
}

// attend is approve for a call without a record. It creates a record, so that the call can be found and cancelled while
// it waits.
func (i *Invoker) attend(
	ctx context.Context, p *prepared, rec *registry.Record, tell func(registry.Approval),
) error {
	rec.HoldMS += i.approvalTime(p).Milliseconds()
	err := i.cfg.CallLog.Attend(ctx, rec, func(ctx context.Context) error { return i.approve(ctx, p, tell) })
	if err == nil {
		rec.DeviceID = p.route.Session.DeviceID
	}
	return err
}

// approvalTime returns how long a person has to answer while the caller waits: as the policy says, else the configured
// time. If the caller set a timeout, a tenth of the remaining time is left for the tool.
func (i *Invoker) approvalTime(p *prepared) time.Duration {
	life := min(cmp.Or(p.ask.Within, i.cfg.ApprovalTimeout), MaxApprovalTimeout)
	if !p.within.IsZero() {
		life = min(life, time.Until(p.within)*9/10)
	}
	if p.outer != nil {
		life = min(life, p.outer.mayStand())
	}
	return max(life, 0)
}

// approve asks for the approval that a call needs, and waits for the answer. The wait does not count against the call's
// timeout. The approved call is then checked again, because minutes may have passed.
func (i *Invoker) approve(ctx context.Context, p *prepared, tell func(registry.Approval)) error {
	rule := p.inv.Demand.Rule
	err := i.awaitApproval(ctx, p, tell)
	if err == nil {
		return nil
	}
	e := *undispatched(err)
	if e.Rule == "" && e.Code == registry.CodeApprovalDenied {
		e.Rule = rule
	}
	return &e
}

// awaitApproval implements approve.
func (i *Invoker) awaitApproval(ctx context.Context, p *prepared, tell func(registry.Approval)) error {
	for p.ask != nil {
		began, life := time.Now(), i.approvalTime(p)
		if life == 0 {
			return registry.Errorf(registry.CodeTimeout, "The time of the call was up before a person could be asked.")
		}
		answered, err := i.ask(ctx, p, life, tell)
		switch {
		case ctx.Err() != nil:
			err = registry.Errorf(registry.CodeCancelled, "The call was cancelled while it waited for an approval.")
		case err == nil:
			err = denial(answered)
		}
		if err != nil {
			return err
		}
		p.approved, p.consent = bindingOf(*p.ask), approvedBy(answered)
		p.start = p.start.Add(time.Since(began))
		p.inv.Deadline = p.start.Add(p.inv.Timeout)
		if err := i.readmit(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// ask asks a person and returns the answer. The clock of an enclosing local tool stops meanwhile.
func (i *Invoker) ask(
	ctx context.Context, p *prepared, life time.Duration, tell func(registry.Approval),
) (registry.Approval, error) {
	if p.outer != nil {
		defer p.outer.stop()()
	}
	asked, err := i.question(timed{ctx, time.Now().Add(life)}, p, life)
	if err != nil {
		return asked, err
	}
	tell(asked)
	answered, err := i.cfg.Approvals.Await(ctx, asked)
	tell(answered)
	return answered, err
}

// approvedBy returns who allowed a call, for the audit log.
func approvedBy(a registry.Approval) string { return "approved by " + a.DecidedBy }

// readmit reads the route of an approved call again and runs the hooks again.
func (i *Invoker) readmit(ctx context.Context, p *prepared) error {
	if p.inv.Caller.Expired(time.Now()) {
		return registry.Errorf(registry.CodeUnauthenticated, "The credentials of the caller ended while it waited.")
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
	const again = "Do not call it again for the same purpose unless the person asks for it."
	text := ""
	switch a.State {
	case registry.ApprovalAllowed:
		return nil
	case registry.ApprovalDenied:
		text = fmt.Sprintf("A person denied this call of %q. %s", a.Tool, again)
	case registry.ApprovalWithdrawn:
		text = fmt.Sprintf("The question about this call of %q was withdrawn before anybody answered.", a.Tool)
	default:
		text = fmt.Sprintf("This call of %q needs a person's approval, and nobody answered within %v, which is a "+
			"denial. Ask an approver to watch `farhand approve list --wait` or GET /api/approvals, and call again.",
			a.Tool, a.ExpiresAt.Sub(a.CreatedAt).Round(time.Second))
		if len(a.Approvers) > 0 {
			text += " Who may decide: " + strings.Join(a.Approvers, ", ") + "."
		}
	}
	if a.State == registry.ApprovalExpired && !a.Deferred && a.Turn == "" {
		text += ` To give a person more time, send "mode": "async" (over MCP: a task): such a call waits without its ` +
			"caller."
	}
	if a.Reason != "" { // a model can do better once it knows the argument at fault
		text += " Why it needs one: " + a.Reason
	}
	return registry.Errorf(registry.CodeApprovalDenied, "%s", text).With(registry.DispatchedNo)
}
