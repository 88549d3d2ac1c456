package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/registry"
)

// Ids of decisions that come from no rule in a file.
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
	written  int     // of tools, come from the file; the defaults follow
}

// asker selects callers. Empty lists select all.
type asker struct {
	tenants, users globs
	roles          []string
	contexts       []Context
}

// matches reports whether a caller is selected. Credentials must name a role: an admin is not selected as a caller.
func (a asker) matches(who auth.Identity, in Context) bool {
	return (len(a.tenants) == 0 || a.tenants.match(who.Tenant)) &&
		(len(a.users) == 0 || a.users.match(who.User)) &&
		(len(a.roles) == 0 || slices.ContainsFunc(who.RoleNames(), func(r string) bool {
			return slices.Contains(a.roles, r)
		})) &&
		(len(a.contexts) == 0 || slices.Contains(a.contexts, in))
}

type nameRule struct {
	id     string
	at     place // in the file
	who    asker
	allow  globs
	deny   denials
	alone  bool   // its allow list is checked separately from other rules'
	reason string // why; empty: the default text
}

// checkNames returns the rule that forbids a name, nil if none does. A rule that denies the name forbids it. If rules
// have allow lists for this asker, one of them must allow the name, or else the first of them forbids it. A rule that
// is alone forbids what its own list does not allow.
func checkNames(rules []nameRule, who auth.Identity, in Context, name *toolName) *nameRule {
	var notAllowed *nameRule // of the rules that count together
	allowed := false
	for i := range rules {
		r := &rules[i]
		switch {
		case !r.who.matches(who, in):
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

type toolRule struct {
	id      string
	at      place   // in the file
	names   denials // also match look-alikes
	levels  []registry.SecurityLevel
	effects Effects // at least one of these
	sources []Source
	who     asker

	level      registry.SecurityLevel // replaces the tool's own level
	setEffects *Effects

	roles     []string // required: one of these
	contexts  []Context
	sandbox   *bool
	approvals []demand
	forbids   []demand
	limits    []Limit
	resources Resources
	programs  *Programs // nil: not set
	reason    string

	destinations []string
}

// demand is a Demand and the calls that it covers.
type demand struct {
	Demand
	never       bool     // ends the list: demands of later rules do not count
	except      []string // roles that are exempt
	outsideMain bool
	model       *bool // only if a model asks, or only if none does
	overMCP     bool
}

func (d *demand) applies(q *Question, in Context) bool {
	return (d.model == nil || *d.model == q.Model) && (!d.overMCP || q.OverMCP) &&
		(!d.outsideMain || in != Main) && !slices.ContainsFunc(d.except, q.Who.HasNamed)
}

// selects reports whether a rule is about a call. It uses the level and effects in d.
func (r *toolRule) selects(q *Question, d *Decision, in Context, name *toolName) bool {
	return (len(r.levels) == 0 || slices.Contains(r.levels, d.Level)) &&
		(r.effects == 0 || r.effects&d.Effects != 0) &&
		(len(r.sources) == 0 || slices.Contains(r.sources, q.Source)) &&
		r.who.matches(q.Who, in) &&
		(len(r.names.globs) == 0 || r.names.match(name))
}

// decide answers a question. Its cost grows with the number of rules.
func (r *rules) decide(q *Question) *Decision {
	in, name := Join(q.Context, Context(q.Who.Context)), &toolName{name: q.Tool.Name}
	d := &Decision{Allowed: true, Level: levels[levelRank(q.Tool.SecurityLevel)], Effects: q.effects()}
	r.override(q, d, in, name)
	if !inScope(q.Who, q.Tool.Name) {
		return d.refuse(registry.CodeForbidden, RuleScope, "",
			"Your credentials do not allow the tool %q.", q.Tool.Name)
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

func (r *rules) mayRegister(who auth.Identity, name string) *Decision {
	d := &Decision{Allowed: true}
	if !inScope(who, name) {
		return d.refuse(registry.CodeForbidden, RuleScope, "",
			"the credentials of this device do not allow a tool with this name")
	}
	if rule := checkNames(r.register, who, Main, &toolName{name: name}); rule != nil {
		return d.refuse(registry.CodePolicyDenied, rule.id, rule.reason,
			"this gateway does not allow devices to register this name (rule %s)", rule.id)
	}
	return d
}

// override sets the operator's level and effects of a tool. The first rule that sets each one counts.
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

// admits reports whether a rule lets a call pass. If not, d has the reason.
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

// collect adds a rule's demands, limits and resources to d. asks says whether its approvals count, the result whether
// those of later rules do.
func (r *toolRule) collect(q *Question, d *Decision, in Context, asks bool) bool {
	for i := range r.approvals {
		a := &r.approvals[i]
		if asks && a.applies(q, in) {
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
		case !f.applies(q, in):
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
	d.Programs = d.Programs.intersect(r.programs)
	return asks
}

func inScope(who auth.Identity, tool string) bool {
	return who.Tools == "" || globs(strings.Fields(who.Tools)).match(tool)
}

// refuse turns a decision into a refusal without any other demands. own is the operator's reason.
func (d *Decision) refuse(code registry.Code, rule, own, format string, args ...any) *Decision {
	*d = Decision{Code: code, Rule: rule, Reason: own, Level: d.Level, Effects: d.Effects}
	if own == "" {
		d.Reason = fmt.Sprintf(format, args...)
	}
	return d
}
