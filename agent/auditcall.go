package agent

import "github.com/farhand/farhand/registry"

// noteDecision notes in the audit log that a call may run, or why not.
func (i *Invoker) noteDecision(req *Request, p *prepared, err error) {
	e := registry.AuditEntry{
		Tenant: req.Caller.Tenant, Actor: req.Caller.Actor(), Action: registry.AuditCall, Rule: ruleOf(&p.inv),
		Tool: req.Tool, SessionID: p.route.Session.Key.Session, DeviceID: p.route.Session.DeviceID,
		CallID: req.CallID, Turn: req.Turn, Args: p.inv.Args,
	}
	if e.Decide(err); err == nil {
		e.Reason = p.consent
	}
	i.cfg.Audit.Note(e)
}

// ruleOf returns the rule that let a call through, as long as nothing refuses it: the one by which somebody approved
// it, otherwise the one that allowed it.
func ruleOf(inv *Invocation) string {
	switch {
	case inv.Demand != nil:
		return inv.Demand.Rule
	case inv.Policy != nil:
		return inv.Policy.Rule
	default:
		return ""
	}
}
