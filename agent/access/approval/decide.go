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
)

// Decision is what somebody says to a question.
type Decision struct {
	Allow bool

	// Scope is how far an allowance reaches; default registry.ScopeOnce.
	Scope registry.ApprovalScope

	// GrantLife is how long "allow always" lasts; default and most registry.MaxGrantLife.
	GrantLife time.Duration
}

// Answer is what came of a decision.
type Answer struct {
	Approval registry.Approval
	Decided  bool            // this decision counted: it was the first, or the first of two that are needed
	Grant    *registry.Grant // that it made; nil: none
}

// Get returns an approval that who may see, registry.ErrNoApproval otherwise.
func (k *Keeper) Get(ctx context.Context, who auth.Identity, id string) (registry.Approval, error) {
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

// Wait is Get once the approval is final, or after wait has passed.
func (k *Keeper) Wait(
	ctx context.Context, who auth.Identity, id string, wait time.Duration,
) (registry.Approval, error) {
	a, err := k.Get(ctx, who, id)
	if err != nil || a.Final() || wait <= 0 {
		return a, err
	}
	verdicts, leave, err := k.listen(a.Ref())
	if err != nil {
		return a, err
	}
	defer leave()
	limit := time.NewTimer(wait)
	defer limit.Stop()
	select {
	case a.Verdict = <-verdicts:
		return a, nil
	case <-limit.C:
	case <-ctx.Done():
	case <-k.ctx.Done():
	}
	return k.Get(context.WithoutCancel(ctx), who, id)
}

// Pending returns the approvals that wait and that who may see, without arguments.
func (k *Keeper) Pending(ctx context.Context, who auth.Identity) ([]registry.Approval, error) {
	all, err := k.cfg.Store.PendingApprovals(ctx, who.Tenant)
	seen := []registry.Approval{}
	for _, a := range all {
		if maySee(who, a) {
			seen = append(seen, a)
		}
	}
	return seen, err
}

// Decide decides an approval for an identity that may see it, and allows only what MayDecide says. The first decision
// wins; all later ones return what it was. An approval by registry.ApproveTwo is allowed by the second person.
func (k *Keeper) Decide(ctx context.Context, who auth.Identity, id string, d Decision) (Answer, error) {
	a, err := k.Get(ctx, who, id)
	if err != nil {
		return Answer{}, err
	}
	if d.Allow && !a.Final() && isOwn(who, a) {
		return Answer{}, errOwn(a)
	}
	return k.decide(ctx, a, decider{who: who, by: cmp.Or(who.User, who.Credential, "somebody")}, d)
}

// DecideOnDevice decides an approval for the person at the device of a session. With its own credential a device may
// only say what it will do itself: calls for this session. who is the identity that opened its socket; if that may
// approve, it decides whatever it may decide elsewhere.
func (k *Keeper) DecideOnDevice(
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
	atDevice := isFor(session, a)
	if !atDevice {
		if !maySee(who, a) {
			return Answer{}, registry.ErrNoApproval
		}
		by = cmp.Or(who.User, by) // it is the role that decides
	}
	if d.Allow && !a.Final() && isOwn(who, a) {
		return Answer{}, errOwn(a)
	}
	return k.decide(ctx, a, decider{who, by, atDevice}, d)
}

// decider is who decides, and how the decision names it.
type decider struct {
	who      auth.Identity
	by       string
	atDevice bool // that the call is for, which needs no role
}

// signature returns what people read of who decided: by and, for a credential without a user, what people call it.
func signature(who auth.Identity, by string) string {
	if by == who.Credential {
		return who.Label()
	}
	return by
}

// byDevice is how a decision names the device it was made at.
func byDevice(id string) string { return "device:" + id }

// abandoned reports whether the pod where a call waits has died, so that nothing would come of allowing it. A pod that
// died less than a lease ago is not known to have: then an answer of that time is in vain.
func (k *Keeper) abandoned(ctx context.Context, a registry.Approval) bool {
	if a.Pod == "" || k.cfg.Pods == nil {
		return false
	}
	live, err := k.cfg.Pods.Live(ctx)
	return err == nil && !slices.Contains(live, a.Pod)
}

// isFor reports whether an approval is about a call for the device of a session: the session has the same id and is
// still the same user's. An id that was forgotten can be another user's by now.
func isFor(session registry.Session, a registry.Approval) bool {
	return a.Tenant == session.Tenant && a.SessionID == session.Key.Session &&
		a.Owner == cmp.Or(session.UserID, a.Requester.User)
}

// maxShown bounds how many questions a device is shown at once.
const maxShown = 16

// WaitingAt returns the approvals that wait for the person at the device of a session, whole, those that expire first
// before others. They are at most 16; people find the others elsewhere.
func (k *Keeper) WaitingAt(ctx context.Context, session registry.Session) ([]registry.Approval, error) {
	all, err := k.cfg.Store.PendingApprovals(ctx, session.Tenant)
	if err != nil {
		return nil, err
	}
	var waiting []registry.Approval
	for _, a := range all {
		if !isFor(session, a) || len(waiting) == maxShown {
			continue
		}
		whole, err := k.cfg.Store.Approval(ctx, a.Tenant, a.ID) // the list is without arguments
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

func (k *Keeper) decide(
	ctx context.Context, a registry.Approval, by decider, d Decision,
) (Answer, error) {
	v := registry.Verdict{State: registry.ApprovalDenied, DecidedBy: signature(by.who, by.by)}
	if d.Allow {
		v.State, v.Scope = registry.ApprovalAllowed, cmp.Or(d.Scope, registry.ScopeOnce)
		if a.By == registry.ApproveTwo { // two people look at each call
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
	k.tell(final.Ref(), final.Verdict)
	if !counted {
		return answer, nil
	}
	k.note(registry.ActivityApprovalDecided, final)
	outcome := registry.AuditDenied
	if final.State == registry.ApprovalAllowed {
		outcome = registry.AuditAllowed
	}
	k.audit(registry.AuditApproval, by.who.Actor(), final, outcome,
		strings.TrimSpace("by "+by.by+" "+string(final.Scope)))
	if final.Deferred {
		signal(k.sweep)
	}
	if final.Scope == registry.ScopeAlwaysTool || final.Scope == registry.ScopeAlwaysArgs {
		if answer.Grant, err = k.grant(ctx, final, by.by, d.GrantLife); err != nil {
			e := *registry.AsError(err)
			e.Message = "This call was allowed and runs; later ones are asked about, because no grant was stored. " +
				e.Message
			return answer, &e
		}
	}
	return answer, nil
}

// voter is who has allowed a call that two must allow, as it is kept with the vote.
type voter struct {
	Who    auth.Identity `json:"who"`
	Device bool          `json:"device,omitempty"` // at the device that the call is for, which needs no role
}

// voteOf returns the vote of somebody who decides.
func voteOf(by decider) (registry.Vote, error) {
	who := by.who
	if who.Issued.IsZero() { // it was there when it voted
		who.Issued = time.Now()
	}
	text, err := json.Marshal(voter{who, by.atDevice})
	return registry.Vote{Person: personOf(who), Voter: text}, err
}

// vote gives a verdict to the store. What somebody has allowed before who may not any more does not count.
func (k *Keeper) vote(
	ctx context.Context, a registry.Approval, by decider, v registry.Verdict,
) (now registry.Approval, counted bool, err error) {
	lapsed := ""
	if v.State == registry.ApprovalAllowed && !a.Final() {
		if lapsed, err = k.lapsed(ctx, a); err != nil {
			return a, false, err
		}
	}
	vote, err := voteOf(by)
	if err != nil {
		return a, false, err
	}
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

// lapsed returns the person whose vote was the first and does not count any more, because its identity was revoked or
// may not decide the approval now. Empty: there is no such vote. An error says that the store did not answer, and
// nothing may be decided.
func (k *Keeper) lapsed(ctx context.Context, a registry.Approval) (person string, err error) {
	if a.First.Person == "" {
		return "", nil
	}
	var v voter
	if json.Unmarshal(a.First.Voter, &v) != nil { // by a release that did not keep it
		return a.First.Person, nil
	}
	now, err := k.standing(ctx, v.Who)
	switch {
	case errors.Is(err, registry.CodeUnauthenticated) || errors.Is(err, registry.CodeNotFound):
		return a.First.Person, nil
	case err != nil:
		return "", err
	case personOf(now) != a.First.Person || !v.Device && !MayDecide(now, a):
		return a.First.Person, nil
	}
	return "", nil
}

// standing returns an identity as it is now: the rights of a stored credential may have changed. A JSON Web Token that
// has expired since is no reason to doubt what was said with it.
func (k *Keeper) standing(ctx context.Context, who auth.Identity) (auth.Identity, error) {
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
