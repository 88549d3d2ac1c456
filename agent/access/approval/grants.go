package approval

import (
	"context"
	"errors"
	"time"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/registry"
)

// Granted implements agent.Approvals.
func (k *Keeper) Granted(ctx context.Context, a registry.Approval) (bool, error) {
	bindings := []string{registry.GrantOf(a, registry.ScopeAlwaysArgs).Binding()}
	if !a.ExactArgs {
		bindings = append(bindings, registry.GrantOf(a, registry.ScopeAlwaysTool).Binding())
	}
	g, err := k.cfg.Store.FindGrant(ctx, a.Tenant, bindings...)
	if errors.Is(err, registry.ErrNoGrant) {
		return false, nil
	}
	return err == nil && g.Covers(a), err
}

// grant makes the grant of an approval that by has allowed always.
func (k *Keeper) grant(
	ctx context.Context, a registry.Approval, by string, life time.Duration,
) (*registry.Grant, error) {
	limit := registry.MaxGrantLife
	if a.GrantLimit > 0 {
		limit = min(limit, a.GrantLimit)
	}
	if life <= 0 || life > limit {
		life = limit
	}
	g := registry.GrantOf(a, a.Scope)
	g.ID, g.GrantedBy = registry.NewApprovalID(), by
	g, err := k.cfg.Store.PutGrant(ctx, g, life)
	if err != nil {
		return nil, err
	}
	return &g, nil
}

// Grants returns the grants that who may see.
func (k *Keeper) Grants(ctx context.Context, who auth.Identity) ([]registry.Grant, error) {
	all, err := k.cfg.Store.Grants(ctx, who.Tenant)
	seen := []registry.Grant{}
	for _, g := range all {
		if maySeeGrant(who, g) {
			seen = append(seen, g)
		}
	}
	return seen, err
}

// Revoke revokes a grant that who may see. Calls that it covered are asked about again from then on.
func (k *Keeper) Revoke(ctx context.Context, who auth.Identity, id string) (registry.Grant, error) {
	all, err := k.Grants(ctx, who)
	if err != nil {
		return registry.Grant{}, err
	}
	for _, g := range all {
		if g.ID != id {
			continue
		}
		if g, err = k.cfg.Store.RevokeGrant(ctx, who.Tenant, id); err == nil {
			k.auditRevoke(who.Actor(), g, "")
		}
		return g, err
	}
	return registry.Grant{}, registry.ErrNoGrant
}

// auditRevoke notes in the audit log that a grant was revoked. The zero actor is nobody: it ended with something else.
func (k *Keeper) auditRevoke(who registry.AuditActor, g registry.Grant, reason string) {
	k.cfg.Audit.Note(registry.AuditEntry{
		Tenant: g.Tenant, Actor: who, Action: registry.AuditGrantRevoke, Outcome: registry.AuditAllowed, Reason: reason,
		Target: g.ID, Tool: g.Tool, SessionID: g.SessionID, DeviceID: g.DeviceID,
	})
}

func maySeeGrant(who auth.Identity, g registry.Grant) bool {
	return maySee(who, registry.Approval{Tenant: g.Tenant, Tool: g.Tool, Owner: g.Owner, DeviceID: g.DeviceID})
}
