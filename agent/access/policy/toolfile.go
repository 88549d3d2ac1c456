package policy

import (
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/farhand/farhand/registry"
)

var (
	levels = []registry.SecurityLevel{
		registry.SecuritySafe, registry.SecurityUserConfirm, registry.SecurityAdminOnly,
	}
	effectNames = []string{"changes", "destructive", "open world", "unknown"} // by the bit in Effects
	sourceNames = []string{Remote: "remote", Builtin: "builtin", MCP: "mcp"}
)

func (r *reader) toolRules(n *yaml.Node) {
	r.rulesOf(n, func(n *yaml.Node) {
		if n.Kind != yaml.MappingNode {
			r.wrong(n, "a rule must be a mapping of keys to values")
			return
		}
		r.rules.tools = append(r.rules.tools, r.toolRule(n))
	})
}

func (r *reader) toolRule(n *yaml.Node) toolRule {
	rule := toolRule{id: lineID(n), at: placeOf(n)}
	if id := member(n, "id"); id != nil { // first, because limits and demands use it
		rule.id = r.id(id)
	}
	fields := []field{
		{"id", func(*yaml.Node) {}},
		{"names", func(n *yaml.Node) { rule.names = r.denials(n) }},
		{"levels", func(n *yaml.Node) { rule.levels = words(r, n, "security level", levels) }},
		{"effects", func(n *yaml.Node) { rule.effects = r.effects(n) }},
		{"sources", func(n *yaml.Node) { rule.sources = r.sources(n) }},
		{"for", func(n *yaml.Node) { r.fields(n, "for", r.askerFields(&rule.who, true)...) }},
		{"level", func(n *yaml.Node) { rule.level = oneOf(r, n, "security level", levels) }},
		{"set_effects", func(n *yaml.Node) { rule.setEffects = r.settable(n) }},
		{"roles", func(n *yaml.Node) { rule.roles = r.roles(n) }},
		{"contexts", func(n *yaml.Node) { rule.contexts = r.contexts(n) }},
		{"sandbox", func(n *yaml.Node) { rule.sandbox = r.flag(n) }},
		{"approval", func(n *yaml.Node) { rule.approvals = r.demands(n, rule.id, true) }},
		{"forbid", func(n *yaml.Node) { rule.forbids = r.demands(n, rule.id, false) }},
		{"calls_per_minute", func(n *yaml.Node) { rule.limits = r.perMinute(n, rule.id) }},
		{"resources", func(n *yaml.Node) { rule.resources = r.resources(n) }},
		{"programs", func(n *yaml.Node) { rule.programs = r.programs(n, rule.id) }},
		{"destinations", func(n *yaml.Node) { rule.destinations = r.destinations(n) }},
		{"reason", func(n *yaml.Node) { rule.reason = r.reason(n) }},
	}
	r.fields(n, "a rule", fields...)
	if (rule.level != "" || rule.setEffects != nil) && (len(rule.levels) > 0 || rule.effects != 0) {
		r.wrong(n, "a rule that sets level or effects cannot select tools by them")
	}
	return rule
}

// Values of set_effects for a tool that changes nothing.
const (
	effectNone  = "none"  // it only returns a result
	effectReads = "reads" // it changes nothing, but may reach strangers
)

// settable reads set_effects. A tool that destroys something or reaches strangers also changes something: sending a
// mail is an effect. Only "reads" with "open world" avoids that, for a tool that fetches and sends nothing.
func (r *reader) settable(n *yaml.Node) *Effects {
	names := words(r, n, "effect", append([]string{effectNone, effectReads}, effectNames...))
	e := effectsNamed(names)
	reads := slices.Contains(names, effectReads)
	switch {
	case slices.Contains(names, effectNone) && len(names) > 1:
		r.wrong(n, "none says that the tool has no effects, so it cannot be combined with others")
	case reads && e&^OpenWorld != 0:
		r.wrong(n, "reads says that the tool changes nothing, so only open world can be combined with it")
	}
	if e&Destructive != 0 || e&OpenWorld != 0 && !reads {
		e |= Changes
	}
	return &e
}

// effects reads the effects by which a rule selects tools.
func (r *reader) effects(n *yaml.Node) Effects {
	return effectsNamed(words(r, n, "effect", effectNames))
}

func effectsNamed(names []string) (e Effects) {
	for bit, name := range effectNames {
		if slices.Contains(names, name) {
			e |= 1 << bit
		}
	}
	return e
}

func (r *reader) sources(n *yaml.Node) []Source {
	return list(r, n, func(n *yaml.Node) Source {
		return Source(max(0, slices.Index(sourceNames, oneOf(r, n, "source", sourceNames))))
	})
}

// maxDestination bounds a pointer to a parameter, in bytes.
const maxDestination = 200

// destinations reads the parameters that say where something goes.
func (r *reader) destinations(n *yaml.Node) []string {
	return list(r, n, func(n *yaml.Node) string {
		pointer := r.text(n)
		if len(pointer) < 2 || pointer[0] != '/' || len(pointer) > maxDestination {
			r.wrong(n, "this must be the path of a parameter, such as /to, or /messages/*/to for each item of a list")
		}
		return pointer
	})
}

// Conditions of approval: and forbid:.
const (
	whenAlways      = "always"
	whenNever       = "never"
	whenOutsideMain = "outside main"
	whenModel       = "asked by a model"
	whenDirect      = "asked directly"
	whenOverMCP     = "over MCP"
	whenUntrusted   = "after untrusted content"
	whenForeign     = "argument from outside"
)

// demands reads conditions of asking a person, or of refusing a call: a condition, a mapping with one, or a list.
func (r *reader) demands(n *yaml.Node, id string, approval bool) []demand {
	return list(r, n, func(n *yaml.Node) demand {
		d := demand{Demand: Demand{Rule: id}}
		if n.Kind != yaml.MappingNode {
			r.condition(n, &d, approval)
			return d
		}
		fields := []field{
			{"when", func(n *yaml.Node) { r.condition(n, &d, approval) }},
			{"except", func(n *yaml.Node) { d.except = r.roles(n) }},
		}
		if approval {
			fields = append(fields, r.termFields(&d)...)
		}
		r.fields(n, "a condition", fields...)
		if d.When == "" && (d.By != "" || d.Within > 0) {
			d.When = whenAlways
		}
		if d.When == "" {
			r.wrong(n, "when: is required")
		}
		if d.never && (d.By != "" || d.Within > 0 || d.Grant > 0) {
			r.wrong(n, "by, within and grant have no effect with when: never")
		}
		if d.By == registry.ApproveTwo && d.Grant > 0 {
			r.wrong(n, "grant has no effect with by: two, because two people decide each call")
		}
		return d
	})
}

func (r *reader) termFields(d *demand) []field {
	approvers := []registry.ApproveBy{registry.ApproveAnyone, registry.ApproveOther, registry.ApproveTwo}
	return []field{
		{"grant", func(n *yaml.Node) { d.Grant = r.duration(n) }},
		{"by", func(n *yaml.Node) { d.By = oneOf(r, n, "approver", approvers) }},
		{"within", func(n *yaml.Node) {
			if d.Within = r.duration(n); d.Within > maxWithin {
				r.wrong(n, "this must be at most %v", maxWithin)
			}
		}},
	}
}

const maxWithin = 24 * time.Hour // a person's time to answer

func (r *reader) condition(n *yaml.Node, d *demand, approval bool) {
	known := []string{whenAlways, whenOutsideMain, whenModel, whenDirect, whenOverMCP, whenUntrusted, whenForeign}
	if approval {
		known = slices.Insert(known, 1, whenNever)
	}
	d.When = oneOf(r, n, "condition", known)
	switch d.When {
	case whenNever:
		d.never = true
	case whenOutsideMain:
		d.outsideMain = true
	case whenModel:
		d.model = new(true)
	case whenDirect:
		d.model = new(false)
	case whenOverMCP:
		d.overMCP = true
	case whenUntrusted:
		d.Marks = Untrusted
	case whenForeign:
		d.Marks = ForeignArgument
	}
}

// Upper bounds of the resources that a rule may set.
const (
	maxFiles      = 1_000_000
	maxSizeMB     = 1 << 20
	maxProcesses  = 10_000
	maxRuntimeSec = 24 * 60 * 60
)

func (r *reader) programs(n *yaml.Node, id string) *Programs {
	p := new(Programs)
	r.fields(n, "programs",
		field{"security", func(n *yaml.Node) { p.Security = oneOf(r, n, "mode", securities()) }},
		field{"allow", func(n *yaml.Node) { p.Allow = list(r, n, r.program) }},
		field{"elevated", func(n *yaml.Node) { p.Elevated = isTrue(r.flag(n)) }},
		field{"sandboxed", func(n *yaml.Node) { p.Sandboxed = isTrue(r.flag(n)) }},
	)
	if p.Security != "" {
		p.Rule = id
	}
	if len(p.Allow) > 0 && p.Security != Allowlist && p.Security != Full {
		r.wrong(n, "allow: needs security: allowlist, or full for calls that ask for the allowlist")
	}
	return p
}

func isTrue(flag *bool) bool { return flag != nil && *flag }

// program reads a program's name, which is no path, with the first arguments that it must have.
func (r *reader) program(n *yaml.Node) string {
	words := strings.Fields(r.text(n))
	if len(words) == 0 || len(n.Value) > maxProgram || strings.ContainsAny(words[0], "/\\*?[]$`'\"") {
		r.wrong(n, "this must be the name of a program, such as ls, or a name with first arguments, such as git status")
	}
	return strings.Join(words, " ")
}

const maxProgram = 256 // bytes of a program and its first arguments

func (r *reader) resources(n *yaml.Node) (res Resources) {
	r.fields(n, "resources",
		field{"maxFiles", func(n *yaml.Node) { res.MaxFiles = r.number(n, maxFiles) }},
		field{"maxSizeMB", func(n *yaml.Node) { res.MaxBytes = int64(r.number(n, maxSizeMB)) << 20 }},
		field{"maxProcesses", func(n *yaml.Node) { res.MaxProcesses = r.number(n, maxProcesses) }},
		field{"maxRuntimeSec", func(n *yaml.Node) {
			res.MaxRuntime = time.Duration(r.number(n, maxRuntimeSec)) * time.Second
		}},
	)
	return res
}
