package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/registry"
)

// unreachable finds settings in a file that can never apply, because another rule about the same calls takes
// precedence. The other rule may be a default. Examples: a mode that a stricter one hides, a demand after approval:
// never, a name that is both allowed and denied. It reports only certain cases, and not all of them: it does not know
// which callers use which tools.
type unreachable struct {
	coverage
	file  *reader
	own   int        // how many rules are the file's; defaults follow
	rules []toolRule // in order of precedence

	// State of the rule being checked:
	at       int
	rule     *toolRule
	over     []int // rules that cover all its calls, in order
	possible []registry.SecurityLevel
	effects  []Effects // that rules set for its tools; nil: other effects are possible
	open     cells     // cells in which no rule refuses all its calls
}

// checkReach records settings as problems if they can never apply together with these defaults.
func (r *reader) checkReach(defaults *rules) {
	for _, rule := range r.rules.tools {
		if strings.HasPrefix(rule.id, defaultPrefix) && !defaults.hasRule(rule.id) {
			var ids []string
			for _, d := range defaults.tools {
				ids = append(ids, d.id)
			}
			r.wrongAt(rule.at, "no default has the id %q; there are: %s",
				short(rule.id), strings.Join(ids, ", "))
		}
	}
	u := unreachable{file: r, own: len(r.rules.tools), rules: slices.Clone(r.rules.tools)}
	for _, d := range defaults.tools {
		if !r.rules.hasRule(d.id) {
			u.rules = append(u.rules, d)
		}
	}
	for i := range u.own {
		u.look(i)
	}
	u.names(r.rules.register)
	u.names(r.rules.calls)
}

const defaultPrefix = "default:"

func (u *unreachable) look(i int) {
	u.at, u.rule = i, &u.rules[i]
	u.over, u.possible = u.covering(u.rules, i)
	if len(u.possible) == 0 {
		u.wrong("the rule never applies: other rules give its tools levels that are not in levels:")
		return
	}
	u.effects = u.possibleEffects()
	if u.rule.effects != 0 && u.effects != nil && len(u.effects) == 0 {
		u.wrong("the rule never applies: other rules give its tools effects that are not in effects:")
		return
	}
	all := u.rule.cells()
	if len(u.rule.contexts) > 0 && u.rule.excludedCells() == all && u.rule.sandbox != nil {
		u.wrong("no call can pass: contexts and sandbox: false exclude each other; write forbid: always to refuse all")
		return
	}
	open := hiding{rest: all}
	for _, j := range u.over {
		open.add(j, u.rules[j].refused())
	}
	if open.rest == 0 && u.rule.refused() == 0 && u.rule.level == "" && u.rule.setEffects == nil {
		by := open.by[0]
		u.wrong("the rule never applies: %s refuses all its calls. %s", u.ruleName(by), u.remedy(by))
		return
	}
	u.open = open.rest &^ u.rule.refused()
	u.openContexts()
	u.overridden()
	u.programs()
	u.numbers()
	u.demands()
}

// possibleEffects returns the effects that rules set for the tools of the rule, limited to effects that it selects.
// Nil: for some of the tools, no rule may set effects.
func (u *unreachable) possibleEffects() []Effects {
	possible, open := []Effects{}, u.rule.cells() // where no rule so far has set the effects
	for j := range u.rules {
		set := u.rules[j].setEffects
		if set == nil || open&u.rules[j].cells() == 0 {
			continue
		}
		if u.rule.effects == 0 || u.rule.effects&*set != 0 {
			possible = append(possible, *set)
		}
		if j == u.at || slices.Contains(u.over, j) { // all others cover at most some of the tools
			open &^= u.rules[j].cells()
		}
	}
	if open != 0 {
		return nil
	}
	return possible
}

// openContexts finds contexts that the rule requires and another rule refuses.
func (u *unreachable) openContexts() {
	for _, c := range u.rule.contexts {
		in := cellsOf([]Context{c}, nil) & u.rule.cells()
		for _, j := range u.over {
			if in != 0 && u.rules[j].excludedCells()&in == in {
				u.wrong("contexts: %s never applies: %s refuses calls in that context. %s",
					c, u.ruleName(j), u.remedy(j))
				break
			}
		}
	}
}

// overridden finds a level, or effects, that an earlier rule already sets.
func (u *unreachable) overridden() {
	if level := u.rule.level; level != "" {
		u.hidden(u.rule.cells(), fmt.Sprintf("level: %s", level),
			"%[1]s gives these tools the level %[2]s, and the first rule applies",
			func(j int, other *toolRule) (any, verdict) {
				return other.level, sets(j < u.at && other.level != "", other.level != level)
			})
	}
	if effects := u.rule.setEffects; effects != nil {
		u.hidden(u.rule.cells(), "set_effects", "%[1]s sets the effects of these tools, and the first rule applies",
			func(j int, other *toolRule) (any, verdict) {
				has := j < u.at && other.setEffects != nil
				return nil, sets(has, has && *other.setEffects != *effects)
			})
	}
}

// verdict is how another rule affects a setting of this rule.
type verdict int

const (
	silent verdict = iota // does not affect it
	same                  // sets the same value
	hides                 // takes precedence
)

// sets returns the verdict of a rule: whether it sets the value, and whether its value differs.
func sets(says, differs bool) verdict {
	switch {
	case !says:
		return silent
	case differs:
		return hides
	default:
		return same
	}
}

// hidden records a problem if a setting applies in none of the cells in where. In each cell, other rules must hide it,
// set the same value, or refuse all calls, and at least one must hide it. rival returns the value of another rule. why
// is formatted with the name (%[1]s) and value (%[2]v) of the first rule that hides it.
func (u *unreachable) hidden(
	where cells, setting, why string, rival func(j int, other *toolRule) (value any, v verdict),
) {
	if where == 0 {
		return
	}
	first, instead, rest := -1, any(nil), where
	for _, j := range u.over {
		other := &u.rules[j]
		value, v := rival(j, other)
		if v == hides && first < 0 && other.cells()&where != 0 {
			first, instead = j, value
		}
		if v != silent {
			rest &^= other.cells()
		}
	}
	if rest == 0 && first >= 0 {
		u.wrong("%s never applies: %s. %s", setting, fmt.Sprintf(why, u.ruleName(first), instead), u.remedy(first))
	}
}

// programs finds programs settings, which only the gateway's own tools use, that stricter ones of other rules hide.
func (u *unreachable) programs() {
	p := u.rule.programs
	if p == nil {
		return
	}
	builtin := cellsOf(nil, []Source{Builtin})
	if u.rule.cells()&builtin == 0 {
		u.wrong("programs never applies: only built-in tools run programs, and sources: excludes them")
		return
	}
	where := u.open & builtin
	if p.Security != "" {
		u.hidden(where, fmt.Sprintf("security: %s", p.Security),
			"%[1]s has security: %[2]s for these calls, and the stricter mode applies",
			func(_ int, other *toolRule) (any, verdict) {
				if other.programs == nil || other.programs.Security == "" {
					return nil, silent
				}
				o := other.programs.Security
				return o, sets(o == p.Security || Stricter(o, p.Security) == o, o != p.Security)
			})
	}
	if p.Elevated {
		u.hidden(where, "elevated: true", "%[1]s does not set it for these calls, and every rule must",
			func(_ int, other *toolRule) (any, verdict) {
				return nil, sets(other.programs != nil, other.programs != nil && !other.programs.Elevated)
			})
	}
	for _, program := range p.Allow {
		u.hidden(where, fmt.Sprintf("allow: %q", short(program)),
			"it is not in the list of %[1]s, and it must be in every list",
			func(_ int, other *toolRule) (any, verdict) {
				lists := other.programs != nil && other.programs.Allow != nil
				return nil, sets(lists, lists && !slices.Contains(other.programs.Allow, program))
			})
	}
}

// numbers finds limits above the limits that other rules set for the same calls.
func (u *unreachable) numbers() {
	builtin := cellsOf(nil, []Source{Builtin})
	for _, b := range []struct {
		name  string
		value func(Resources) int64
		where cells // cells of the tools that use it
	}{
		{"maxFiles", func(r Resources) int64 { return int64(r.MaxFiles) }, builtin},
		{"maxSizeMB", func(r Resources) int64 { return r.MaxBytes >> 20 }, builtin},
		{"maxProcesses", func(r Resources) int64 { return int64(r.MaxProcesses) }, builtin},
		{"maxRuntimeSec", func(r Resources) int64 { return int64(r.MaxRuntime.Seconds()) }, allCells},
	} {
		if own := b.value(u.rule.resources); own > 0 {
			u.hidden(u.open&b.where, fmt.Sprintf("%s: %d", b.name, own),
				"%[1]s has %[2]d for these calls, and the smallest applies",
				func(_ int, other *toolRule) (any, verdict) {
					o := b.value(other.resources)
					return o, sets(o > 0 && o <= own, o < own)
				})
		}
	}
	for _, l := range u.rule.limits {
		u.hidden(u.open, fmt.Sprintf("calls_per_minute: %d for each %s", l.Calls, l.Per),
			"%[1]s has %[2]d for these calls, and all limits apply",
			func(_ int, other *toolRule) (any, verdict) {
				calls := 0
				for _, o := range other.limits {
					if o.Per == l.Per {
						calls = o.Calls
					}
				}
				return calls, sets(calls > 0 && calls <= l.Calls, calls < l.Calls)
			})
	}
}

// names finds rules that allow only names that are denied to the same callers.
func (u *unreachable) names(rules []nameRule) {
	for i := range rules {
		rule, denier := &rules[i], nameRule{}
		denied := func(name string) bool {
			return slices.ContainsFunc(rules, func(other nameRule) bool {
				if len(other.deny.globs) == 0 || !subset(rule.who.contexts, other.who.contexts) ||
					!u.askers(other.who, rule.who) || !u.globs(other.deny.globs, globs{name}) {
					return false
				}
				denier = other
				return true
			})
		}
		if len(rule.allow) > 0 && !slices.ContainsFunc(rule.allow, func(name string) bool { return !denied(name) }) {
			u.file.wrongAt(rule.at, "allow never applies: the rule %s in line %d denies these names, and deny "+
				"takes precedence. Remove them from one of the rules", denier.id, denier.at.line)
		}
	}
}

func (u *unreachable) ruleName(j int) string {
	switch {
	case j == u.at:
		return "the rule itself"
	case j < u.own:
		return fmt.Sprintf("the rule %s in line %d", u.rules[j].id, u.rules[j].at.line)
	default:
		return "the rule " + u.rules[j].id
	}
}

// remedy returns advice on how to fix a setting that rule j hides.
func (u *unreachable) remedy(j int) string {
	if j >= u.own {
		return fmt.Sprintf("To replace it, give a rule the id %s", u.rules[j].id)
	}
	return "Change one of the rules, or remove this"
}

func (u *unreachable) wrong(format string, args ...any) {
	u.file.wrongAt(u.rule.at, format, args...)
}

func (u *unreachable) warn(format string, args ...any) {
	u.file.warnings.add(u.rule.at, format, args...)
}

// Report is a Decision for people and programs.
type Report struct {
	Tool          string                 `json:"tool"`
	Context       Context                `json:"context"`
	Allowed       bool                   `json:"allowed"`
	Rule          string                 `json:"rule,omitempty"`   // that decided
	Reason        string                 `json:"reason,omitempty"` // why not
	SecurityLevel registry.SecurityLevel `json:"security_level"`
	Effects       []string               `json:"effects"`
	Approvals     []DemandReport         `json:"approvals,omitempty"`
	Forbidden     []DemandReport         `json:"forbidden,omitempty"`
	Destinations  []string               `json:"destinations,omitempty"`
	Limits        []LimitReport          `json:"limits,omitempty"`
	Resources     *ResourcesReport       `json:"resources,omitempty"`
	Programs      *ProgramsReport        `json:"programs,omitempty"`
}

// DemandReport is a Demand in a Report.
type DemandReport struct {
	Rule         string `json:"rule"`
	When         string `json:"when"`
	OnlyURLs     bool   `json:"only_urls,omitempty"` // the tool only reads, so only URLs in its arguments count
	GrantSeconds int64  `json:"grant_seconds,omitempty"`

	By            registry.ApproveBy `json:"by,omitempty"`
	WithinSeconds int64              `json:"within_seconds,omitempty"`
}

// LimitReport is a Limit in a Report.
type LimitReport struct {
	Rule          string   `json:"rule"`
	Per           Per      `json:"per"`
	Tool          string   `json:"tool,omitempty"`  // empty: all tools together, unless Tools is set
	Tools         []string `json:"tools,omitempty"` // globs of the tools; each tool is counted separately
	Calls         int      `json:"calls"`
	WindowSeconds int64    `json:"window_seconds"`
}

// ReportLimit returns a LimitReport of a limit.
func ReportLimit(l Limit) LimitReport {
	return LimitReport{Rule: l.Rule, Per: l.Per, Tool: l.Tool, Calls: l.Calls, WindowSeconds: int64(l.Window.Seconds())}
}

// LimitsOf returns the limits for a caller outside of conversations: first the limits of all tools together, then the
// limits in rules about tools. A rule may cover fewer tools than its globs match, for example only tools of one level.
func (p *Policy) LimitsOf(who auth.Identity) (limits []LimitReport) {
	rules := p.state.Load().rules
	for _, l := range rules.limits {
		limits = append(limits, ReportLimit(l))
	}
	for i := range rules.tools {
		rule := &rules.tools[i]
		if !rule.who.matches(who, Join("", Context(who.Context))) {
			continue
		}
		for _, l := range rule.limits {
			report := ReportLimit(l)
			if report.Tools = rule.names.globs; len(report.Tools) == 0 {
				report.Tools = []string{"*"}
			}
			limits = append(limits, report)
		}
	}
	return limits
}

// ResourcesReport is Resources in the terms of the policy file.
type ResourcesReport struct {
	MaxFiles      int   `json:"maxFiles,omitempty"`
	MaxSizeMB     int64 `json:"maxSizeMB,omitempty"`
	MaxProcesses  int   `json:"maxProcesses,omitempty"`
	MaxRuntimeSec int64 `json:"maxRuntimeSec,omitempty"`
}

// ProgramsReport is Programs in the terms of the policy file.
type ProgramsReport struct {
	Security  Security `json:"security"`
	Rule      string   `json:"rule,omitempty"` // that set the mode; a rule that allows more must replace it by id
	Allow     []string `json:"allow,omitempty"`
	Elevated  bool     `json:"elevated,omitempty"`
	Sandboxed bool     `json:"sandboxed,omitempty"`
}

// Report returns the decision about a question as a Report.
func (d *Decision) Report(q Question) Report {
	r := Report{
		Tool: q.Tool.Name, Context: Join(q.Context, Context(q.Who.Context)), Allowed: d.Allowed, Rule: d.Rule,
		Reason: d.Reason, SecurityLevel: d.Level, Effects: d.Effects.names(),
		Approvals: d.demandReports(d.Approvals), Forbidden: d.demandReports(d.Forbids),
		Destinations: d.Destinations,
	}
	for _, l := range d.Limits {
		r.Limits = append(r.Limits, ReportLimit(l))
	}
	if res := d.Resources; !res.IsZero() {
		r.Resources = &ResourcesReport{
			res.MaxFiles, res.MaxBytes >> 20, res.MaxProcesses, int64(res.MaxRuntime.Seconds()),
		}
	}
	if p := d.Programs; p.said {
		r.Programs = &ProgramsReport{cmp.Or(p.Security, Allowlist), p.Rule, p.Allow, p.Elevated, p.Sandboxed}
	}
	return r
}

func (d *Decision) demandReports(demands []Demand) (list []DemandReport) {
	for _, one := range demands {
		list = append(list, DemandReport{
			Rule: one.Rule, When: one.When, OnlyURLs: one.Marks == ForeignArgument && d.Effects.OnlyReads(),
			GrantSeconds: int64(one.Grant.Seconds()), By: one.By, WithinSeconds: int64(one.Within.Seconds()),
		})
	}
	return list
}

func (e Effects) names() []string {
	names := []string{}
	for bit, name := range effectNames {
		if e&(1<<bit) != 0 {
			names = append(names, name)
		}
	}
	return names
}
