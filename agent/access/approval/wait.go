package approval

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/farhand/farhand/internal/pause"
	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
)

const (
	// pollPause is the interval between two reads of all awaited verdicts. Verdicts are polled and not announced, so
	// none can be lost. One read serves all waiting callers of a pod.
	pollPause = 250 * time.Millisecond
	pollBatch = 500 // verdicts per read

	// askCost is the approximate size of an approval in the store, in bytes, without its arguments and the request. The
	// request contains the arguments a second time.
	askCost = 2 << 10

	maxWaiting   = 10_000                 // callers that wait for approvals on a pod
	expiryMargin = 100 * time.Millisecond // after an expiry, by the pod's clock, the store is asked a last time
)

var errManyWait = registry.Errorf(registry.CodeBusy,
	"Too many calls wait for approvals on this pod. Retry in a moment.").
	With(registry.DispatchedNo)

// Ask implements agent.Approvals.
func (k *Service) Ask(
	ctx context.Context, a registry.Approval, life time.Duration, request []byte,
) (registry.Approval, error) {
	a.Approvers = k.approvers(ctx, a)
	by, cost := share.Owner{Tenant: a.Tenant, Identity: a.Requester.Key()}, askCost+2*a.Args.Len()+len(request)
	if k.cfg.Budget != nil {
		if err := k.cfg.Budget.Begin(ctx, by, cost); err != nil {
			return a, registry.AsError(err).With(registry.DispatchedNo)
		}
	}
	asked, err := k.cfg.Store.CreateApproval(ctx, a, life, request)
	if refused, ok := errors.AsType[*registry.Error](err); ok && k.cfg.Budget != nil &&
		refused.Code != registry.CodeStoreUnavailable { // otherwise the store may still have it
		k.cfg.Budget.GiveBack(by, cost)
	}
	if err == nil {
		k.noteAsked(asked.Ref())
		k.note(registry.ActivityApprovalRequested, asked)
		k.cfg.Requested(asked)
		by := a.Requester
		who := registry.AuditActor{User: by.User, Credential: by.Credential, Name: by.Name}
		k.audit(registry.AuditApprovalAsk, who, asked, registry.AuditAllowed, a.Reason)
	}
	return asked, err
}

// Await implements agent.Approvals.
func (k *Service) Await(ctx context.Context, a registry.Approval) (registry.Approval, error) {
	defer k.noteEnded(a.Ref())
	v, final, err := k.waitForVerdict(ctx, a.Ref(), a.ExpiresAt.Sub(a.CreatedAt)+expiryMargin)
	switch {
	case err != nil:
		k.withdraw(ctx, a, registry.ApprovalWithdrawn)
		return a, err
	case final:
		a.Verdict = v
		return a, nil
	case ctx.Err() == nil && k.ctx.Err() == nil:
		return k.withdraw(ctx, a, registry.ApprovalExpired), nil
	default:
		return k.withdraw(ctx, a, registry.ApprovalWithdrawn), ctx.Err()
	}
}

// waitForVerdict waits for the verdict of an approval, at most for limit. final is false if there is none by then, or
// if ctx or the Service ends first. It fails if too many callers wait.
func (k *Service) waitForVerdict(
	ctx context.Context, ref registry.ApprovalRef, limit time.Duration,
) (v registry.Verdict, final bool, err error) {
	verdicts, leave, err := k.subscribe(ref)
	if err != nil {
		return v, false, err
	}
	defer leave()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case v = <-verdicts:
		return v, true, nil
	case <-timer.C:
	case <-ctx.Done():
	case <-k.ctx.Done():
	}
	return v, false, nil
}

// withdraw ends an unanswered question. A decision in the store counts. If the store fails, the call must not run.
func (k *Service) withdraw(ctx context.Context, a registry.Approval, state registry.ApprovalState) registry.Approval {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	final, first, err := k.cfg.Store.DecideApproval(
		ctx, a.Tenant, a.ID, registry.Vote{}, "", registry.Verdict{State: state})
	if err != nil {
		k.cfg.Log.Warn("end of an approval not stored; the call does not run", "approval", a.ID, "error", err)
		a.Verdict = registry.Verdict{State: state}
		return a
	}
	if first || final.State == registry.ApprovalExpired {
		k.note(registry.ActivityApprovalDecided, final)
		k.audit(registry.AuditApproval, registry.AuditActor{}, final, registry.AuditDenied, string(final.State))
	}
	a.Verdict = final.Verdict
	return a
}

// Withdraw withdraws the question about a call that has ended.
func (k *Service) Withdraw(ctx context.Context, tenant, id string) {
	defer k.noteEnded(registry.ApprovalRef{Tenant: tenant, ID: id})
	k.withdraw(ctx, registry.Approval{Tenant: tenant, ID: id}, registry.ApprovalWithdrawn)
	signal(k.sweep)
}

// CountWrongAnswer counts an answer that was no decision, on all pods. Zero: the question is no longer open.
func (k *Service) CountWrongAnswer(ctx context.Context, tenant, id string) (int, error) {
	return k.cfg.Store.CountWrongAnswer(ctx, tenant, id)
}

// subscribe returns a channel that gets the verdict of an approval when it is final. leave must be called.
func (k *Service) subscribe(ref registry.ApprovalRef) (verdicts <-chan registry.Verdict, leave func(), err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.count >= maxWaiting {
		return nil, nil, errManyWait
	}
	c := make(chan registry.Verdict, 1)
	k.subscribers[ref] = append(k.subscribers[ref], c)
	k.count++
	signal(k.polls)
	return c, func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		left := slices.DeleteFunc(k.subscribers[ref], func(other chan registry.Verdict) bool { return other == c })
		k.count--
		if k.subscribers[ref] = left; len(left) == 0 {
			delete(k.subscribers, ref)
		}
	}, nil
}

// deliver sends the final verdict of an approval to the callers that wait for it on this pod.
func (k *Service) deliver(ref registry.ApprovalRef, v registry.Verdict) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, c := range k.subscribers[ref] {
		select {
		case c <- v:
		default: // it already has the verdict
		}
	}
}

// poll reads the awaited verdicts every pollPause, as long as callers wait on this pod.
func (k *Service) poll() {
	for pause.For(k.ctx, pollPause) == nil {
		k.mu.Lock()
		refs := slices.Collect(maps.Keys(k.subscribers))
		k.mu.Unlock()
		if len(refs) > 0 {
			k.pollOnce(refs)
			continue
		}
		select {
		case <-k.polls:
		case <-k.ctx.Done():
		}
	}
}

func (k *Service) pollOnce(refs []registry.ApprovalRef) {
	for batch := range slices.Chunk(refs, pollBatch) {
		ctx, cancel := context.WithTimeout(k.ctx, storeTimeout)
		verdicts, err := k.cfg.Store.Verdicts(ctx, batch)
		cancel()
		if err != nil {
			k.cfg.Log.Debug("verdicts not read; the pod retries", "error", err)
			return
		}
		for i, v := range verdicts {
			switch {
			case v.State == "": // the store lost it, so it cannot have been allowed
				k.deliver(batch[i], registry.Verdict{State: registry.ApprovalWithdrawn})
			case v.Final():
				k.deliver(batch[i], v)
			}
		}
	}
}
