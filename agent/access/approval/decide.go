package approval

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/textsafe"
)

// Decision is an answer to a question.
type Decision struct {
	Allow     bool
	Scope     registry.ApprovalScope // what an allowance covers; default registry.ScopeOnce
	GrantLife time.Duration          // of "allow always"; default and maximum registry.MaxGrantLife
	Comment   string                 // for the caller and the audit log; cut to a line of registry.MaxComment bytes
}

// Answer is the outcome of a decision.
type Answer struct {
	Approval registry.Approval
	Decided  bool            // this decision counted: the first, or the first of two required
	Grant    *registry.Grant // created by the decision; nil: none
}

// Get returns an approval that the identity may see, else registry.ErrNoApproval.
func (k *Service) Get(ctx context.Context, who auth.Identity, id string) (registry.Approval, error) {
	if !registry.ValidApprovalID(id) {
		return registry.Approval{}, registry.ErrNoApproval
	}
	a, err := k.cfg.Store.Approval(ctx, who.Tenant, id)
	if err == nil && !maySee(who, a) {
		err = registry.ErrNoApproval
	}
	if err != nil {
		return registry.Approval{}, err
	}
	return a, nil
}

// Wait is Get when the approval is final, or after wait has passed.
func (k *Service) Wait(
	ctx context.Context, who auth.Identity, id string, wait time.Duration,
) (registry.Approval, error) {
	a, err := k.Get(ctx, who, id)
	if err != nil || a.Final() || wait <= 0 {
		return a, err
	}
	v, final, err := k.waitForVerdict(ctx, a.Ref(), wait)
	if err != nil {
		return a, err
	}
	if final {
		a.Verdict = v
		return a, nil
	}
	return k.Get(context.WithoutCancel(ctx), who, id)
}

// Pending returns the pending approvals that the identity may see, without arguments.
func (k *Service) Pending(ctx context.Context, who auth.Identity) ([]registry.Approval, error) {
	all, err := k.cfg.Store.PendingApprovals(ctx, who.Tenant)
	seen := []registry.Approval{}
	for _, a := range all {
		if maySee(who, a) {
			seen = append(seen, a)
		}
	}
	return seen, err
}

// Decide decides an approval for an identity that may see it. It allows the call only if MayDecide does. The first
// decision wins; later ones return it. With registry.ApproveTwo, the second person's decision allows the call.
func (k *Service) Decide(ctx context.Context, who auth.Identity, id string, d Decision) (Answer, error) {
	a, err := k.Get(ctx, who, id)
	if err != nil {
		return Answer{}, err
	}
	return k.decide(ctx, a, decider{who: who, by: cmp.Or(who.User, who.Credential, "an approver without a name")}, d)
}

// DecideOnDevice decides an approval for the person at a session's device. With its own credential, a device may decide
// only calls for this session, which it would run itself. who is the identity of the device's socket. An approver
// decides the same approvals as elsewhere.
func (k *Service) DecideOnDevice(
	ctx context.Context, who auth.Identity, session registry.Session, id string, d Decision,
) (Answer, error) {
	if !registry.ValidApprovalID(id) {
		return Answer{}, registry.ErrNoApproval
	}
	a, err := k.cfg.Store.Approval(ctx, session.Tenant, id)
	if err != nil {
		return Answer{}, err
	}
	by := "session:" + session.Key.Session
	if session.DeviceID != "" {
		by = byDevice(session.DeviceID)
	}
	atDevice := a.Concerns(session)
	if !atDevice {
		if !maySee(who, a) {
			return Answer{}, registry.ErrNoApproval
		}
		by = cmp.Or(who.User, by) // decides by its role
	}
	return k.decide(ctx, a, decider{who, by, atDevice}, d)
}

// decider is the deciding identity, and its name in the decision.
type decider struct {
	who      auth.Identity
	by       string
	atDevice bool // at the device that runs the call; needs no role
}

func byDevice(id string) string { return "device:" + id }

// abandoned reports whether the pod that waits for a call has died, so that allowing the call has no effect. A pod that
// died less than a lease ago still counts as live: an answer in that time is lost.
func (k *Service) abandoned(ctx context.Context, a registry.Approval) bool {
	if a.Pod == "" || k.cfg.Pods == nil {
		return false
	}
	live, err := k.cfg.Pods.Live(ctx)
	return err == nil && !slices.Contains(live, a.Pod)
}

// maxShown bounds how many questions a device shows at once.
const maxShown = 16

// WaitingAt returns the pending approvals for the person at a session's device, with arguments, in the order of their
// expiry. It returns at most maxShown (16); others can be decided elsewhere.
func (k *Service) WaitingAt(ctx context.Context, session registry.Session) ([]registry.Approval, error) {
	all, err := k.cfg.Store.PendingApprovals(ctx, session.Tenant)
	if err != nil {
		return nil, err
	}
	var waiting []registry.Approval
	for _, a := range all {
		if !a.Concerns(session) || len(waiting) == maxShown {
			continue
		}
		whole, err := k.cfg.Store.Approval(ctx, a.Tenant, a.ID) // the list has no arguments
		switch {
		case errors.Is(err, registry.ErrNoApproval):
		case err != nil:
			return nil, err
		case !whole.Final():
			waiting = append(waiting, whole)
		}
	}
	return waiting, nil
}

func (k *Service) decide(ctx context.Context, a registry.Approval, by decider, d Decision) (Answer, error) {
	if d.Allow && !a.Final() && isOwn(by.who, a) {
		e := registry.Errorf(registry.CodeForbidden,
			"You made this call of %q, so another approver must allow it (rule %s). You may deny it.", a.Tool, a.Rule)
		e.Rule = a.Rule
		return Answer{}, e
	}
	v := registry.Verdict{
		State: registry.ApprovalDenied, DecidedBy: by.by,
		Comment: registry.TruncateText(textsafe.Line(d.Comment), registry.MaxComment),
	}
	if by.by == by.who.Credential { // people know its name
		v.DecidedBy = by.who.Label()
	}
	if d.Allow {
		v.State, v.Scope = registry.ApprovalAllowed, cmp.Or(d.Scope, registry.ScopeOnce)
		if a.By == registry.ApproveTwo || a.Devices != nil { // people review each call; a grant has one target
			v.Scope = registry.ScopeOnce
		}
		if a.ExactArgs && v.Scope == registry.ScopeAlwaysTool {
			v.Scope = registry.ScopeAlwaysArgs
		}
	}
	if d.Allow && !a.Final() && k.abandoned(ctx, a) {
		return Answer{Approval: k.withdraw(ctx, a, registry.ApprovalWithdrawn)}, nil
	}
	final, counted, err := k.vote(ctx, a, by, v)
	answer := Answer{Approval: final, Decided: counted}
	if err != nil || !final.Final() {
		return answer, err
	}
	k.deliver(final.Ref(), final.Verdict)
	if !counted {
		return answer, nil
	}
	k.note(registry.ActivityApprovalDecided, final)
	outcome := registry.AuditDenied
	if final.State == registry.ApprovalAllowed {
		outcome = registry.AuditAllowed
	}
	reason := strings.TrimSpace("by " + by.by + " " + string(final.Scope))
	if final.Comment != "" {
		reason += ": " + final.Comment
	}
	k.audit(registry.AuditApproval, by.who.Actor(), final, outcome, reason)
	if final.Deferred {
		signal(k.sweep)
	}
	if final.Scope == registry.ScopeAlwaysTool || final.Scope == registry.ScopeAlwaysArgs {
		if answer.Grant, err = k.grant(ctx, final, by, d.GrantLife); err != nil {
			e := *registry.AsError(err)
			e.Message = "The call was allowed and runs, but the grant was not stored: later calls need approval. " +
				e.Message
			return answer, &e
		}
	}
	return answer, nil
}

// voter is a person who has allowed a call that two must allow, as stored with the vote.
type voter struct {
	Who    auth.Identity `json:"who"`
	Device bool          `json:"device,omitempty"` // at the device that runs the call; needs no role
}

// vote stores a verdict. An earlier vote does not count if its voter may no longer decide.
func (k *Service) vote(
	ctx context.Context, a registry.Approval, by decider, v registry.Verdict,
) (now registry.Approval, counted bool, err error) {
	lapsed := ""
	if v.State == registry.ApprovalAllowed && !a.Final() {
		if lapsed, err = k.lapsedVoter(ctx, a); err != nil {
			return a, false, err
		}
	}
	who := by.who
	if who.Issued.IsZero() { // it existed when it voted
		who.Issued = time.Now()
	}
	text, err := json.Marshal(voter{who, by.atDevice})
	if err != nil {
		return a, false, err
	}
	vote := registry.Vote{Person: personOf(who), Voter: text}
	now, counted, err = k.cfg.Store.DecideApproval(ctx, a.Tenant, a.ID, vote, lapsed, v)
	if err == nil && counted && !now.Final() {
		reason := "by " + by.by + ", the first of two"
		if lapsed != "" {
			reason += "; the vote of " + a.AllowedBy + " lapsed"
		}
		k.audit(registry.AuditApproval, by.who.Actor(), now, registry.AuditAllowed, reason)
	}
	return now, counted, err
}

// lapsedVoter returns the person whose first vote no longer counts, because the identity was revoked or may not decide
// the approval now. Empty: no such vote. If lapsedVoter fails, nothing may be decided.
func (k *Service) lapsedVoter(ctx context.Context, a registry.Approval) (person string, err error) {
	if a.First.Person == "" {
		return "", nil
	}
	var v voter
	if json.Unmarshal(a.First.Voter, &v) != nil { // from a release that did not store it
		return a.First.Person, nil
	}
	now, err := k.currentIdentity(ctx, v.Who)
	gone := errors.Is(err, registry.CodeUnauthenticated) || errors.Is(err, registry.CodeNotFound)
	switch {
	case err != nil && !gone:
		return "", err
	case gone || personOf(now) != a.First.Person || !v.Device && !MayDecide(now, a):
		return a.First.Person, nil
	}
	return "", nil
}

// currentIdentity returns the current state of an identity, because the rights of a stored credential may have changed.
// A JWT that has expired since its vote does not invalidate the vote.
func (k *Service) currentIdentity(ctx context.Context, who auth.Identity) (auth.Identity, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	kind, id, _ := strings.Cut(who.Credential, ":")
	switch kind {
	case string(registry.CredentialKey), string(registry.CredentialDevice):
		if k.cfg.Credentials == nil {
			break
		}
		c, err := k.cfg.Credentials.Credential(ctx, who.Tenant, id)
		if err != nil {
			return who, err
		}
		if who, err = auth.IdentityOf(c); err != nil {
			return who, err
		}
	case auth.CredentialJWT:
		who.Expires = time.Time{}
	}
	if k.cfg.Verify != nil {
		return who, k.cfg.Verify(ctx, &who)
	}
	return who, nil
}
