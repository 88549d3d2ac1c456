package approval

import (
	"context"
	"errors"
	"time"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/registry"
)

const (
	// revocationDelay is within what time a revocation reaches every pod. A grant that was given in it may come from a
	// pod that did not know yet.
	revocationDelay = 2 * time.Second

	maxRevoked  = 10_000      // revocations that wait to be carried out; beyond it the oldest are not
	revokePause = time.Second // before it is tried again, when the store failed
)

// CredentialsChanged drops, soon, the grants that somebody has given or got whose identity was revoked. Every pod that
// hears of the revocation does so: the last one after the last pod has stopped taking decisions of theirs. It returns
// at once.
func (k *Keeper) CredentialsChanged(changes []registry.CredentialChange) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, c := range changes {
		if c.Revoked && c.Kind != registry.ChangeJWT { // who has a token is named by user
			k.revoked = append(k.revoked, c)
		}
	}
	if n := len(k.revoked) - maxRevoked; n > 0 {
		k.revoked = k.revoked[n:]
		k.cfg.Log.Warn("grants of some who were revoked are left: look at farhand approve grants", "revocations", n)
	}
	signal(k.forgets)
}

// forget carries out what CredentialsChanged is told.
func (k *Keeper) forget() {
	for {
		select {
		case <-k.forgets:
		case <-k.ctx.Done():
			return
		}
		k.mu.Lock()
		changes := k.revoked
		k.revoked = nil
		k.mu.Unlock()
		byTenant := make(map[string][]registry.CredentialChange)
		for _, c := range changes {
			byTenant[c.Tenant] = append(byTenant[c.Tenant], c)
		}
		for tenant, changes := range byTenant {
			if err := k.dropGrants(tenant, changes); err != nil {
				k.cfg.Log.Warn("grants of somebody who was revoked not dropped; it is tried again", "error", err)
				select {
				case <-time.After(revokePause):
					k.CredentialsChanged(changes)
				case <-k.ctx.Done():
					return
				}
			}
		}
	}
}

// dropGrants drops the grants of a tenant that revocations end. Another pod may do the same at the same time.
func (k *Keeper) dropGrants(tenant string, changes []registry.CredentialChange) error {
	ctx, cancel := context.WithTimeout(k.ctx, storeTimeout)
	defer cancel()
	grants, err := k.cfg.Store.Grants(ctx, tenant)
	if err != nil {
		return err
	}
	for _, g := range grants {
		for _, c := range changes {
			if !endsGrant(c, g) {
				continue
			}
			_, err := k.cfg.Store.RevokeGrant(ctx, tenant, g.ID)
			switch {
			case err == nil:
				k.auditRevoke(registry.AuditActor{}, g, string(c.Kind)+" "+c.ID+" was revoked")
			case !errors.Is(err, registry.ErrNoGrant):
				return err
			}
			break
		}
	}
	return nil
}

// endsGrant reports whether a revocation ends a grant: one that was given by whom it names, to them, or for their
// device. Grants since then are of somebody who is trusted again.
func endsGrant(c registry.CredentialChange, g registry.Grant) bool {
	if g.CreatedAt.After(c.At.Add(revocationDelay)) {
		return false
	}
	switch c.Kind {
	case registry.ChangeUser:
		return g.GrantedBy == c.ID || g.Requester.User == c.ID || g.Owner == c.ID
	case registry.ChangeDevice:
		return g.GrantedBy == byDevice(c.ID) || g.DeviceID == c.ID
	case registry.ChangeCredential:
		for _, kind := range []registry.CredentialKind{registry.CredentialKey, registry.CredentialDevice} {
			name := auth.CredentialName(kind, c.ID)
			if g.GrantedBy == name || g.Requester.User == "" && g.Requester.Credential == name {
				return true
			}
		}
	}
	return false
}

const (
	// sweepPause is the pause between two looks for deferred approvals that are final. The pod on which somebody
	// decides looks at once; the others find what it left if it died.
	sweepPause = 2 * time.Second
	sweepLimit = 100 // approvals settled at a time
)

// sweepDue starts and ends the calls of deferred approvals that are final, from all pods.
func (k *Keeper) sweepDue() {
	ticker := time.NewTicker(sweepPause)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-k.sweep:
		case <-k.ctx.Done():
			return
		}
		k.sweepOnce()
	}
}

func (k *Keeper) sweepOnce() {
	ctx, cancel := context.WithTimeout(k.ctx, storeTimeout)
	due, err := k.cfg.Store.DueApprovals(ctx, sweepLimit)
	cancel()
	if err != nil {
		k.cfg.Log.Debug("due approvals not found; they are looked for again", "error", err)
		return
	}
	for _, ref := range due {
		if k.ctx.Err() != nil {
			return
		}
		if err := k.settle(ref); err != nil {
			k.cfg.Log.Warn("call of an approval not started or ended; it is tried again",
				"approval", ref.ID, "error", err)
		}
	}
}

// settle carries on with one call. Several pods may settle one approval at a time: the record of the call decides who
// starts it.
func (k *Keeper) settle(ref registry.ApprovalRef) error {
	ctx, cancel := context.WithTimeout(k.ctx, storeTimeout)
	defer cancel()
	a, request, err := k.cfg.Store.ApprovalRequest(ctx, ref.Tenant, ref.ID)
	if errors.Is(err, registry.ErrNoApproval) {
		return k.cfg.Store.SettleApproval(ctx, ref.Tenant, ref.ID)
	}
	if err != nil || !a.Final() {
		return err
	}
	if len(request) == 0 { // another pod was faster
		return k.cfg.Store.SettleApproval(ctx, ref.Tenant, ref.ID)
	}
	k.mu.Lock()
	starter := k.starter
	k.mu.Unlock()
	done, err := starter.StartDeferred(ctx, a, request)
	if err != nil {
		return err
	}
	if done && a.State == registry.ApprovalExpired {
		k.note(registry.ActivityApprovalDecided, a)
		k.audit(registry.AuditApproval, registry.AuditActor{}, a, registry.AuditDenied, string(a.State))
	}
	return k.cfg.Store.SettleApproval(ctx, ref.Tenant, ref.ID)
}
