package approval

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/registry"
)

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
