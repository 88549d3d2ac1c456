package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/registry"
)

// Ids of what decides without being written in a file.
const (
	RuleScope         = "scope"          // the globs of tools in the credentials
	RuleAdminOnly     = "admin-only"     // the security level admin_only
	RuleRegisterAllow = "register-allow" // the lists of names
	RuleRegisterDeny  = "register-deny"
	RuleCallAllow     = "call-allow"
	RuleCallDeny      = "call-deny"
)

// rules is one policy, compiled. It is immutable.
type rules struct {
	register []nameRule
	calls    []nameRule
	tools    []toolRule
	limits   []Limit // of all tools together
}

// asker selects who asks. Empty lists select everybody.
type asker struct {
	tenants, users globs
	roles          []string
	contexts       []Context
}

// is reports whether somebody is selected. A role is one that the credentials name: admins are not selected as callers.
func (a asker) is(who auth.Identity, in Context) bool {
	return (len(a.tenants) == 0 || a.tenants.match(who.Tenant)) &&
		(len(a.users) == 0 || a.users.match(who.User)) &&
		(len(a.roles) == 0 || slices.ContainsFunc(who.RoleNames(), func(r string) bool {
			return slices.Contains(a.roles, r)
		})) &&
		(len(a.contexts) == 0 || slices.Contains(a.contexts, in))
}

// nameRule allows and denies names.
type nameRule struct {
	id     string
	who    asker
	allow  globs
	deny   denials
	alone  bool   // other rules that allow a name do not count for it
	reason string // why; empty: what the rule says
}

// checkNames returns the rule that forbids a name, nil if none does: one that denies it; or else the first of those
// that allow names to this asker, if none of them allows this name.
func checkNames(rules []nameRule, who auth.Identity, in Context, name *toolName) *nameRule {
	var notAllowed *nameRule // of those that count together
	allowed := false
	for i := range rules {
		r := &rules[i]
		switch {
		case !r.who.is(who, in):
		case r.deny.match(name):
			return r
		case len(r.allow) == 0:
		case r.allow.match(name.name):
			allowed = allowed || !r.alone
		case r.alone:
			return r
		case notAllowed == nil:
			notAllowed = r
		}
	}
	if allowed {
		return nil
	}
	return notAllowed
}

// toolRule says what holds for some tools.
type toolRule struct {
	id      string
	names   denials // a rule about a tool is about what looks like it, too
	levels  []registry.SecurityLevel
	effects Effects // one of these
	sources []Source
	who     asker

	level      registry.SecurityLevel // in place of what the tool says
	setEffects *Effects

	roles     []string // required: one of these
	contexts  []Context
	sandbox   *bool
	approvals []demand
	forbids   []demand
	limits    []Limit
	resources Resources
	programs  *Programs // nil: nothing said
	reason    string

	destinations []string
}

// demand is a Demand, and for whom.
type demand struct {
	Demand
	never       bool     // ends the list: no demand of a later rule counts
	except      []string // roles that are not asked
	outsideMain bool
	model       *bool // only if a model asks, or only if none does
	overMCP     bool
}

func (d *demand) holds(q *Question, in Context) bool {
	return (d.model == nil || *d.model == q.Model) && (!d.overMCP || q.OverMCP) &&
		(!d.outsideMain || in != Main) && !slices.ContainsFunc(d.except, q.Who.HasNamed)
}

// selects reports whether a rule is about a tool, whose level and effects are known as far as d has them.
func (r *toolRule) selects(q *Question, d *Decision, in Context, name *toolName) bool {
	return (len(r.levels) == 0 || slices.Contains(r.levels, d.Level)) &&
		(r.effects == 0 || r.effects&d.Effects != 0) &&
		(len(r.sources) == 0 || slices.Contains(r.sources, q.Source)) &&
		r.who.is(q.Who, in) &&
		(len(r.names.globs) == 0 || r.names.match(name))
}

// decide answers a question. It costs as much as there are rules.
func (r *rules) decide(q *Question) *Decision {
	in, name := Join(q.Context, Context(q.Who.Context)), &toolName{name: q.Tool.Name}
	d := &Decision{Allowed: true, Level: levels[levelRank(q.Tool.SecurityLevel)], Effects: q.effects()}
	r.override(q, d, in, name)
	if !inScope(q.Who, q.Tool.Name) {
		return d.refuse(registry.CodeForbidden, RuleScope, "",
			"Your credentials do not reach as far as the tool %q.", q.Tool.Name)
	}
	if rule := checkNames(r.calls, q.Who, in, name); rule != nil {
		return d.refuse(registry.CodePolicyDenied, rule.id, rule.reason,
			"The policy of this gateway does not allow calls of %q (rule %s).", q.Tool.Name, rule.id)
	}
	if d.Level == registry.SecurityAdminOnly && !q.Who.Admin {
		return d.refuse(registry.CodeForbidden, RuleAdminOnly, "",
			"The tool %q is for admins only, and your credentials are not an admin's.", q.Tool.Name)
	}
	if d.Level == registry.SecurityAdminOnly && q.Model {
		return d.refuse(registry.CodePolicyDenied, RuleAdminOnly, "",
			"The tool %q is for admins only, never for a model.", q.Tool.Name)
	}
	d.Limits = append(d.Limits, r.limits...)
	asks := true
	for i := range r.tools {
		rule := &r.tools[i]
		if !rule.selects(q, d, in, name) {
			continue
		}
		if !rule.admits(q, d, in) {
			return d
		}
		if asks = rule.collect(q, d, in, asks); !d.Allowed {
			return d
		}
	}
	return d
}

// mayRegister decides whether a device may register a name.
func (r *rules) mayRegister(who auth.Identity, name string) *Decision {
	d := &Decision{Allowed: true}
	if !inScope(who, name) {
		return d.refuse(registry.CodeForbidden, RuleScope, "",
			"the credentials of this device do not reach as far as a tool of this name")
	}
	if rule := checkNames(r.register, who, Main, &toolName{name: name}); rule != nil {
		return d.refuse(registry.CodePolicyDenied, rule.id, rule.reason,
			"this gateway does not allow devices to register this name (rule %s)", rule.id)
	}
	return d
}

// override finds what the operator has as the level and the effects of a tool. The first rule that says it counts.
func (r *rules) override(q *Question, d *Decision, in Context, name *toolName) {
	level, effects := false, false
	for i := range r.tools {
		rule := &r.tools[i]
		if rule.level == "" && rule.setEffects == nil || !rule.selects(q, d, in, name) {
			continue
		}
		if rule.level != "" && !level {
			d.Level, level = rule.level, true
		}
		if rule.setEffects != nil && !effects {
			d.Effects, effects = *rule.setEffects, true
		}
	}
}

// admits reports whether a rule lets a call pass that it is about. If not, d says why.
func (r *toolRule) admits(q *Question, d *Decision, in Context) bool {
	switch {
	case len(r.roles) > 0 && !slices.ContainsFunc(r.roles, q.Who.HasNamed):
		d.refuse(registry.CodeForbidden, r.id, r.reason,
			"The tool %q needs the role %s, which your credentials do not have (rule %s).",
			q.Tool.Name, strings.Join(r.roles, " or "), r.id)
	case r.sandbox != nil && !*r.sandbox && in == Sandboxed:
		d.refuse(registry.CodePolicyDenied, r.id, r.reason,
			"The tool %q is not allowed in a sandbox (rule %s).", q.Tool.Name, r.id)
	case len(r.contexts) > 0 && !slices.Contains(r.contexts, in):
		d.refuse(registry.CodePolicyDenied, r.id, r.reason,
			"The tool %q is not allowed in a conversation of the kind %q (rule %s).", q.Tool.Name, string(in), r.id)
	}
	return d.Allowed
}

// collect adds to d what a rule asks for. asks says whether approvals of this rule count, and the answer whether those
// of later ones do.
func (r *toolRule) collect(q *Question, d *Decision, in Context, asks bool) bool {
	for i := range r.approvals {
		a := &r.approvals[i]
		if asks && a.holds(q, in) {
			if a.never {
				asks = false
			} else {
				demand := a.Demand
				demand.Reason = r.reason
				d.Approvals = append(d.Approvals, demand)
			}
		}
	}
	for i := range r.forbids {
		f := &r.forbids[i]
		switch {
		case !f.holds(q, in):
		case f.Marks == 0:
			d.refuse(registry.CodePolicyDenied, r.id, r.reason,
				"The policy of this gateway does not allow this call of %q (rule %s).", q.Tool.Name, r.id)
			return asks
		default:
			d.Forbids = append(d.Forbids, f.Demand)
		}
	}
	for _, l := range r.limits {
		l.Tool = q.Tool.Name
		d.Limits = append(d.Limits, l)
	}
	d.Destinations = append(d.Destinations, r.destinations...)
	d.Resources = d.Resources.min(r.resources)
	d.Programs = d.Programs.and(r.programs)
	return asks
}

// inScope reports whether the globs of the credentials reach a tool.
func inScope(who auth.Identity, tool string) bool {
	return who.Tools == "" || globs(strings.Fields(who.Tools)).match(tool)
}

// refuse turns a decision into a refusal, which asks for nothing else. own is what the operator wrote as the reason.
func (d *Decision) refuse(code registry.Code, rule, own, format string, args ...any) *Decision {
	*d = Decision{Code: code, Rule: rule, Reason: own, Level: d.Level, Effects: d.Effects}
	if own == "" {
		d.Reason = fmt.Sprintf(format, args...)
	}
	return d
}
