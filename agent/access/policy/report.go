package policy

import (
	"cmp"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/registry"
)

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

// names returns the effects' names in policy files.
func (e Effects) names() []string {
	names := []string{}
	for _, n := range []struct {
		name string
		is   Effects
	}{{"changes", Changes}, {"destructive", Destructive}, {"open world", OpenWorld}, {"unknown", Unknown}} {
		if e&n.is != 0 {
			names = append(names, n.name)
		}
	}
	return names
}
