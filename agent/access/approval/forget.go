package approval

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/internal/pause"
	"github.com/farhand/farhand/registry"
)

const (
	// revocationDelay is the maximum time until a revocation reaches every pod. A grant created within it may come from
	// a pod that did not know of the revocation.
	revocationDelay = 2 * time.Second

	maxRevoked  = 10_000      // pending revocations; beyond it, the oldest are dropped
	revokePause = time.Second // before a retry, when the store failed
)

// CredentialsChanged schedules the removal of grants that a revoked identity gave or got. It does not block. Every pod
// does it: the last removal comes after the last pod has stopped taking decisions of the identity.
func (k *Service) CredentialsChanged(changes []registry.CredentialChange) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, c := range changes {
		if c.Revoked && c.Kind != registry.ChangeJWT { // grants of a JWT name its user
			k.revoked = append(k.revoked, c)
		}
	}
	if n := len(k.revoked) - maxRevoked; n > 0 {
		k.revoked = k.revoked[n:]
		k.cfg.Log.Warn("grants of revoked identities may remain; check farhand approve grants", "revocations", n)
	}
	signal(k.revocations)
}

// dropRevokedGrants drops the grants that CredentialsChanged has scheduled.
func (k *Service) dropRevokedGrants() {
	for {
		select {
		case <-k.revocations:
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
				k.cfg.Log.Warn("grants of a revoked identity not removed; the pod retries", "error", err)
				if pause.For(k.ctx, revokePause) != nil {
					return
				}
				k.CredentialsChanged(changes)
			}
		}
	}
}

// dropGrants drops the grants of a tenant that revocations end. Other pods may do the same concurrently.
func (k *Service) dropGrants(tenant string, changes []registry.CredentialChange) error {
	ctx, cancel := context.WithTimeout(k.ctx, storeTimeout)
	defer cancel()
	grants, err := k.cfg.Store.Grants(ctx, tenant)
	if err != nil {
		return err
	}
	for _, g := range grants {
		i := slices.IndexFunc(changes, func(c registry.CredentialChange) bool { return endsGrant(c, g) })
		if i < 0 {
			continue
		}
		err := k.cfg.Store.RevokeGrant(ctx, g)
		switch {
		case err == nil:
			k.auditRevoke(registry.AuditActor{}, g, string(changes[i].Kind)+" "+changes[i].ID+" was revoked")
		case !errors.Is(err, registry.ErrNoGrant):
			return err
		}
	}
	return nil
}

// endsGrant reports whether a revocation ends a grant: the revoked user, device or credential gave it, got it, or has
// its device. Grants that were created more than revocationDelay later stay, because the identity is trusted again.
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
		if c.Device != "" && (g.GrantedBy == byDevice(c.Device) || g.DeviceID == c.Device) {
			return true
		}
		for _, kind := range []registry.CredentialKind{registry.CredentialKey, registry.CredentialDevice} {
			name := auth.CredentialName(kind, c.ID)
			if g.GrantedBy == name || g.GivenWith == name || g.Requester.User == "" && g.Requester.Credential == name {
				return true
			}
		}
	}
	return false
}

const (
	// sweepPause is the interval between two searches for final deferred approvals. The pod that takes a decision
	// searches immediately. The others find what it left if it died.
	sweepPause = 2 * time.Second
	sweepLimit = 100 // approvals per sweep
)

// sweepDue starts or ends the calls of final deferred approvals, of all pods.
func (k *Service) sweepDue(starter Starter) {
	ticker := time.NewTicker(sweepPause)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-k.sweep:
		case <-k.ctx.Done():
			return
		}
		k.sweepOnce(starter)
		k.forgetDecided()
	}
}

func (k *Service) sweepOnce(starter Starter) {
	ctx, cancel := context.WithTimeout(k.ctx, storeTimeout)
	due, err := k.cfg.Store.DueApprovals(ctx, sweepLimit)
	cancel()
	if err != nil {
		k.cfg.Log.Debug("due approvals not read; the pod retries", "error", err)
		return
	}
	for _, ref := range due {
		if k.ctx.Err() != nil {
			return
		}
		if err := k.settle(ref, starter); err != nil {
			k.cfg.Log.Warn("call of an approval not started or ended; the pod retries",
				"approval", ref.ID, "error", err)
		}
	}
}

// settle starts or ends one deferred call. Several pods may settle the same approval: the record of the call decides
// which pod starts it.
func (k *Service) settle(ref registry.ApprovalRef, starter Starter) error {
	ctx, cancel := context.WithTimeout(k.ctx, storeTimeout)
	defer cancel()
	a, request, err := k.cfg.Store.ApprovalRequest(ctx, ref.Tenant, ref.ID)
	gone := errors.Is(err, registry.ErrNoApproval)
	switch {
	case gone || err == nil && a.Final() && len(request) == 0: // another pod has already settled it
		return k.cfg.Store.SettleApproval(ctx, ref.Tenant, ref.ID)
	case err != nil || !a.Final():
		return err
	}
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
