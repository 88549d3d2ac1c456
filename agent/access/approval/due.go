package approval

import (
	"context"
	"errors"
	"time"

	"github.com/farhand/farhand/registry"
)

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
