package agent

import (
	"context"

	"github.com/farhand/farhand/agent/access/policy"
	"github.com/farhand/farhand/registry"
)

// Policy says who may call and register what: the first thing that is asked before a call, and about every
// registration.
type Policy = policy.Policy

// PolicyRules are the lists of names of a policy.
type PolicyRules = policy.Lists

// NewPolicy returns the policy of lists and defaults alone. A malformed pattern is an error.
func NewPolicy(lists PolicyRules) (*Policy, error) { return policy.New(policy.Options{Lists: lists}) }

// decide asks policy about a call whose tool is known.
func (i *Invoker) decide(p *prepared) error {
	by := Asker{Who: p.inv.Caller, Context: p.inv.Context, Model: p.inv.Model, Endpoint: p.inv.Endpoint}
	from := policy.Remote
	if p.local != nil {
		_, from = SourceOf(p.local)
	}
	p.inv.Policy = i.cfg.Policy.Decide(by.question(p.inv.Spec, from))
	return p.inv.Policy.Err()
}

// consent does what policy asks for when everything else has admitted a call: it refuses what must not follow from
// where the call comes from, and finds out whether a person must be asked. Nothing may change the arguments after it.
func (i *Invoker) consent(ctx context.Context, p *prepared) error {
	p.ask = nil
	inv, d := &p.inv, p.inv.Policy
	if len(d.Approvals)+len(d.Forbids) == 0 {
		return nil
	}
	inv.noteMarks()
	if f := d.Forbidden(inv.Marks); f != nil {
		e := registry.Errorf(registry.CodePolicyDenied,
			"The policy of this gateway does not allow this call of %q: %s (rule %s).%s", inv.Spec.Name, f.When, f.Rule,
			inv.because())
		e.Rule = f.Rule
		return e
	}
	if inv.Demand = d.Approval(inv.Marks); inv.Demand == nil {
		return nil
	}
	if i.cfg.Approvals == nil {
		e := registry.Errorf(registry.CodeApprovalDenied,
			"A person must approve this call of %q (rule %s), and this gateway has nobody to ask.%s", inv.Spec.Name,
			inv.Demand.Rule, inv.because())
		e.Rule = inv.Demand.Rule
		return e
	}
	return i.demand(ctx, p)
}
