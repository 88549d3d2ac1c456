package agent

import (
	"cmp"
	"context"
	"time"

	"github.com/farhand/farhand/agent/access/policy"
	"github.com/farhand/farhand/registry"
)

// ruleDevice is the rule by which a device wants a person to decide about a call, such as the exec approvals of an
// OpenClaw node. No policy has to have it.
const ruleDevice = "device"

// decided reports whether a person decided that the call may run: an approver was asked or has granted such calls, or
// the caller is an approver who makes the call directly. A device that would ask its own person need not.
func (p *prepared) decided() bool {
	return p.approver != "" || !p.inv.Model && p.inv.Caller.Approves()
}

// askForDevice asks a person about a call that its device gave back (registry.AsksPerson). Without an error the call
// may be sent again, as decided, and must end by the time that is returned. A light call waits beyond its timeout, as
// for every approval. The timeout of a durable call is in its record, so its question must be answered before limit.
func (i *Invoker) askForDevice(
	ctx context.Context, p *prepared, why string, durable bool, limit time.Time,
) (time.Time, error) {
	began := time.Now()
	if err := i.decideForDevice(ctx, p, why, durable, limit); err != nil {
		return limit, err
	}
	if !durable {
		limit = limit.Add(time.Since(began))
	}
	if p.remaining = min(p.inv.Timeout, time.Until(limit)); p.remaining <= 0 {
		return limit, registry.TimedOut(p.inv.Timeout, registry.DispatchedNo)
	}
	return limit, nil
}

func (i *Invoker) decideForDevice(ctx context.Context, p *prepared, why string, durable bool, limit time.Time) error {
	if !durable {
		p.rec.Apply(registry.EventReturn, registry.Change{}, time.Now().UTC())
	}
	a, err := i.deviceApproval(p, why)
	if err != nil {
		return err
	}
	granted, err := i.cfg.Approvals.Granted(timed{ctx, limit}, a)
	if err != nil {
		return err
	}
	if granted {
		p.approver = "as granted by an earlier approval"
		return nil
	}
	p.approval = &a
	if durable {
		a.Within = min(cmp.Or(a.Within, i.cfg.ApprovalTimeout), time.Until(limit)*9/10)
		if a.Within <= 0 {
			return registry.TimedOut(p.inv.Timeout, registry.DispatchedNo)
		}
		err = i.waitForApproval(ctx, p)
	} else {
		err = i.waitWithRecord(ctx, p)
	}
	i.noteDecision(p, err)
	return err
}

// deviceApproval returns the approval that a device wants.
func (i *Invoker) deviceApproval(p *prepared, why string) (registry.Approval, error) {
	inv := &p.inv
	inv.Demand = &policy.Demand{Rule: ruleDevice, When: why}
	fail := func(code registry.Code, text string) (registry.Approval, error) {
		e := registry.Errorf(code, "The device wants a person to decide about this call of %q, and %s. It said: %s",
			inv.Spec.Name, text, why).With(registry.DispatchedNo)
		e.Rule = ruleDevice
		return registry.Approval{}, e
	}
	switch n := inv.Args.Len(); {
	case i.cfg.Approvals == nil:
		return fail(registry.CodeApprovalDenied, "this gateway has no approver")
	case p.decided():
		return fail(registry.CodeApprovalDenied, "does not accept the decision of an approver here")
	case n == 0 || n > registry.MaxApprovalArgs: // zero: they were dropped when the device got them, because of their size
		return fail(registry.CodePayloadTooLarge, "its arguments are too large for an approval")
	}
	a := approvalOf(inv)
	a.Rules, a.Reason, a.Pod = ruleDevice, why+" (rule "+ruleDevice+").", i.cfg.Pod
	return a, nil
}
