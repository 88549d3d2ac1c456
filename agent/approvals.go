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

// How long a person has to answer.
const (
	DefaultApprovalTimeout = 2 * time.Minute // about a call whose caller waits
	DefaultDeferredTimeout = time.Hour       // about an asynchronous call
	MaxApprovalTimeout     = time.Hour       // about a call whose caller waits, whatever the policy says
)

// Approvals asks people. *approval.Keeper is one. Its methods are safe for concurrent use.
type Approvals interface {
	// Granted reports whether "allow always" was said to what a would ask.
	Granted(ctx context.Context, a registry.Approval) (bool, error)

	// Ask stores the question and shows it to those who may answer, for life. request is kept with a deferred one.
	Ask(ctx context.Context, a registry.Approval, life time.Duration, request []byte) (registry.Approval, error)

	// Await returns the approval once it is final, at the latest when its time is up. When ctx ends first it withdraws
	// the question. Only with a nil error and registry.ApprovalAllowed may the call run.
	Await(ctx context.Context, a registry.Approval) (registry.Approval, error)
}

// ownerOf returns the user who is asked about a call: the one whose device it is for, else the one who asks.
func ownerOf(inv *Invocation) string {
	if inv.Session.UserID != "" {
		return inv.Session.UserID
	}
	return inv.Caller.User
}

// errChanged is why a call does not run that was approved when it was another.
var errChanged = registry.Errorf(registry.CodeApprovalDenied, "The tool, its device or the arguments have changed "+
	"since the call was approved, so the approval does not hold. Call again to ask anew.")

// demand finds out whether a person must be asked about a call of which policy demands it: p.ask is what to ask. Nobody
// is asked about what was approved already, for this call or for all like it.
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
	if a.By != registry.ApproveTwo { // two people look at each call
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

// maxSources is of how many arguments an approval says where they come from.
const maxSources = 32

// approvalOf returns what a person is asked about a call.
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

// reasonOf returns why a call needs an approval, for people: in the operator's words, and by which rule.
func reasonOf(inv *Invocation, own []string) string {
	why := fmt.Sprintf("%s (rule %s).%s", inv.Demand.When, inv.Demand.Rule, inv.because())
	if len(own) > 0 {
		why = strings.Join(own, " ") + " Asked because: " + why
	}
	return why
}

// bindingOf is the same for what one approval covers: the same call of the same tool, as it was defined, with the same
// arguments, to the same session, by the same caller.
func bindingOf(a registry.Approval) string {
	return a.CallID + " " + a.SessionID + " " + registry.GrantOf(a, registry.ScopeAlwaysArgs).Binding()
}

// longestQuestion returns how long people may have to answer about the calls of devices that one call of a local tool
// makes.
func (i *Invoker) longestQuestion() time.Duration {
	return min(max(i.cfg.ApprovalTimeout, i.cfg.Policy.LongestWithin()), MaxApprovalTimeout)
}

// attend is approve for a call without a record: it gets one, so that it can be found and cancelled while it waits.
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

// approvalTime returns how long a person has to answer about a call that waits for the answer: as the policy says, else
// the configured time. A caller that has said how long it waits leaves a tenth of that for the tool.
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

// approve asks the person that a call needs, and waits for the answer. The timeout of the call starts when the person
// has answered. What was approved is then checked again, because minutes may have passed.
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

// awaitApproval does what approve says.
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

// ask asks a person, and returns the answer. A local tool that makes the call loses no time meanwhile.
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

// approvedBy says for the audit log who has allowed a call.
func approvedBy(a registry.Approval) string { return "approved by " + a.DecidedBy }

// readmit reads the route of an approved call again and lets the hooks decide anew.
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

// denial returns why a call must not run, nil if it was allowed. The text is for callers and for models.
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
	if a.Reason != "" { // a model can do better once it knows which argument is to blame
		text += " Why it needs one: " + a.Reason
	}
	return registry.Errorf(registry.CodeApprovalDenied, "%s", text).With(registry.DispatchedNo)
}
