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
	effectNames   = []string{"changes", "destructive", "open world", "unknown"}
	effectsByName = map[string]Effects{
		"changes": Changes, "destructive": Destructive, "open world": OpenWorld, "unknown": Unknown,
	}
	sourceNames = map[string]Source{"remote": Remote, "builtin": Builtin, "mcp": MCP}
)

// toolRules reads the section "tools".
func (r *fileReader) toolRules(n *yaml.Node) {
	r.rulesOf(n, func(n *yaml.Node) {
		if n.Kind != yaml.MappingNode {
			r.wrong(n, "a rule must be a mapping of keys to values")
			return
		}
		r.rules.tools = append(r.rules.tools, r.toolRule(n))
		r.places = append(r.places, place{n.Line, n.Column})
	})
}

func (r *fileReader) toolRule(n *yaml.Node) toolRule {
	rule := toolRule{id: lineID(n)}
	for i := 0; i+1 < len(n.Content); i += 2 { // first, because limits and demands use it
		if n.Content[i].Value == "id" {
			rule.id = r.id(n.Content[i+1])
		}
	}
	fields := []field{
		{"id", func(*yaml.Node) {}},
		{"names", func(n *yaml.Node) { rule.names = r.denials(n) }},
		{"levels", func(n *yaml.Node) {
			r.each(n, func(n *yaml.Node) {
				rule.levels = append(rule.levels, oneOf(&r.reader, n, "security level", levels))
			})
		}},
		{"effects", func(n *yaml.Node) { rule.effects = r.effects(n) }},
		{"sources", func(n *yaml.Node) { rule.sources = r.sources(n) }},
		{"for", func(n *yaml.Node) { r.fields(n, "for", r.askerFields(&rule.who, true)...) }},
		{"level", func(n *yaml.Node) { rule.level = oneOf(&r.reader, n, "security level", levels) }},
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
func (r *fileReader) settable(n *yaml.Node) *Effects {
	var e Effects
	var names []string
	r.each(n, func(n *yaml.Node) {
		name := oneOf(&r.reader, n, "effect", append([]string{effectNone, effectReads}, effectNames...))
		names = append(names, name)
		e |= effectsByName[name]
	})
	reads := slices.Contains(names, effectReads)
	switch {
	case slices.Contains(names, effectNone) && len(names) > 1:
		r.wrong(n, "none says that the tool only answers, so no other effect can stand beside it")
	case reads && e&^OpenWorld != 0:
		r.wrong(n, "reads says that the tool changes nothing, so only open world can stand beside it")
	}
	if e&Destructive != 0 || e&OpenWorld != 0 && !reads {
		e |= Changes
	}
	return &e
}

// effects reads the effects by which a rule selects tools.
func (r *fileReader) effects(n *yaml.Node) (e Effects) {
	r.each(n, func(n *yaml.Node) { e |= effectsByName[oneOf(&r.reader, n, "effect", effectNames)] })
	return e
}

func (r *fileReader) sources(n *yaml.Node) (list []Source) {
	r.each(n, func(n *yaml.Node) {
		if name := oneOf(&r.reader, n, "source", []string{"remote", "builtin", "mcp"}); name != "" {
			list = append(list, sourceNames[name])
		}
	})
	return list
}

// maxDestination bounds a pointer to a parameter, in bytes.
const maxDestination = 200

// destinations reads the parameters that say where something goes.
func (r *fileReader) destinations(n *yaml.Node) (list []string) {
	r.each(n, func(n *yaml.Node) {
		pointer := r.text(n)
		if len(pointer) < 2 || pointer[0] != '/' || len(pointer) > maxDestination {
			r.wrong(n, "the place of a parameter must stand here, as /to, or /messages/*/to for each of a list")
			return
		}
		list = append(list, pointer)
	})
	return list
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

// demands reads the conditions under which a person is asked, or a call is refused: a condition, a mapping with one, or
// a list of both.
func (r *fileReader) demands(n *yaml.Node, id string, approval bool) (list []demand) {
	r.each(n, func(n *yaml.Node) {
		d := demand{Demand: Demand{Rule: id}}
		if n.Kind != yaml.MappingNode {
			r.condition(n, &d, approval)
		} else {
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
				r.wrong(n, "when: must say under which condition")
			}
			r.checkTerms(n, &d)
		}
		list = append(list, d)
	})
	return list
}

// checkTerms records terms of an approval that can never apply.
func (r *fileReader) checkTerms(n *yaml.Node, d *demand) {
	if d.never && (d.By != "" || d.Within > 0 || d.Grant > 0) {
		r.wrong(n, "by, within and grant never apply: nobody is asked with when: never")
	}
	if d.By == registry.ApproveTwo && d.Grant > 0 {
		r.wrong(n, "grant never applies: with by: two, two people look at each call")
	}
}

// termFields are the fields with the terms of an approval.
func (r *fileReader) termFields(d *demand) []field {
	return []field{
		{"grant", func(n *yaml.Node) { d.Grant = r.duration(n) }},
		{"by", func(n *yaml.Node) {
			d.By = oneOf(&r.reader, n, "approver", []registry.ApproveBy{
				registry.ApproveAnyone, registry.ApproveOther, registry.ApproveTwo,
			})
		}},
		{"within", func(n *yaml.Node) {
			if d.Within = r.duration(n); d.Within > maxWithin {
				r.wrong(n, "a time of at most %v must stand here", maxWithin)
			}
		}},
	}
}

// maxWithin bounds a person's time to answer.
const maxWithin = 24 * time.Hour

// condition reads one condition.
func (r *fileReader) condition(n *yaml.Node, d *demand, approval bool) {
	known := []string{whenAlways, whenOutsideMain, whenModel, whenDirect, whenOverMCP, whenUntrusted, whenForeign}
	if approval {
		known = slices.Insert(known, 1, whenNever)
	}
	yes, no := true, false
	d.When = oneOf(&r.reader, n, "condition", known)
	switch d.When {
	case whenNever:
		d.never = true
	case whenOutsideMain:
		d.outsideMain = true
	case whenModel:
		d.model = &yes
	case whenDirect:
		d.model = &no
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

// programs reads the programs that a tool may run.
func (r *fileReader) programs(n *yaml.Node, id string) *Programs {
	p := new(Programs)
	r.fields(n, "programs",
		field{"security", func(n *yaml.Node) { p.Security = oneOf(&r.reader, n, "mode", Securities()) }},
		field{"allow", func(n *yaml.Node) {
			r.each(n, func(n *yaml.Node) { p.Allow = append(p.Allow, r.program(n)) })
		}},
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

// program reads a program's name with the first arguments that it must have. Names are not paths: the environment in
// which the program runs decides which file it is.
func (r *fileReader) program(n *yaml.Node) string {
	words := strings.Fields(r.text(n))
	if len(words) == 0 || len(n.Value) > maxProgram || strings.ContainsAny(words[0], "/\\*?[]$`'\"") {
		r.wrong(n, "the name of a program must stand here, as ls, or one with its first arguments, as git status")
	}
	return strings.Join(words, " ")
}

const maxProgram = 256 // bytes of a program and its first arguments

// resources reads the resources that one call may use.
func (r *fileReader) resources(n *yaml.Node) (res Resources) {
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
