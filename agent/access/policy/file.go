package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/textsafe"
)

const (
	fileVersion = "1"
	groupPrefix = "group:"
	maxRules    = 2000
	maxReason   = 500 // bytes

	// maxPatterns bounds the patterns of all rules together. A group's patterns count wherever the group is named.
	// Without the bound, a group of thousands in thousands of rules would be millions of patterns, each with its
	// look-alikes.
	maxPatterns = 20_000
)

// reader reads a policy file. It records all problems, not only the first.
type reader struct {
	problems Problems
	groups   map[string]globs
	ids      map[string]int // line by id
	rules    rules

	warnings Problems            // what the file says and may not mean
	patterns int                 // in the rules read so far
	alike    map[string][]string // look-alikes of patterns; computing them is the slowest step
}

// parse reads a policy file that is used with these defaults. Nil: the text is the defaults. The error is Problems.
func parse(text []byte, defaults *rules) (*rules, error) {
	r := readFile(text, defaults)
	if len(r.problems) > 0 {
		return nil, r.problems
	}
	return &r.rules, nil
}

// readFile reads a policy file, like parse. Its rules are valid only if there are no problems.
func readFile(text []byte, defaults *rules) *reader {
	r := &reader{groups: make(map[string]globs), ids: make(map[string]int), alike: make(map[string][]string)}
	top := r.document(text)
	if top != nil {
		r.groupsFirst(top)
		version := ""
		r.fields(top, "a policy file",
			field{"version", func(n *yaml.Node) {
				if version = r.text(n); version != fileVersion {
					r.wrong(n, "version must be %s", fileVersion)
				}
			}},
			field{"groups", func(*yaml.Node) {}},
			field{"register", func(n *yaml.Node) { r.rules.register = r.nameRules(n, false) }},
			field{"calls", func(n *yaml.Node) { r.rules.calls = r.nameRules(n, true) }},
			field{"tools", r.toolRules},
			field{"limits", func(n *yaml.Node) { // of all tools together
				r.fields(n, "limits", field{"calls_per_minute", func(n *yaml.Node) {
					r.rules.limits = r.perMinute(n, "limits")
				}})
			}},
		)
		if version == "" {
			r.wrong(top, "a policy file needs version: %s", fileVersion)
		}
	} else if len(r.problems) == 0 {
		r.problems = Problems{{1, 1, "the file is empty; the least is: version: " + fileVersion}}
	}
	if len(r.problems) == 0 && defaults != nil {
		r.checkReach(defaults)
	}
	for _, list := range []Problems{r.problems, r.warnings} {
		slices.SortStableFunc(list, func(a, b Problem) int { return a.Line - b.Line })
	}
	return r
}

// groupsFirst reads the groups of tools, because rules may name groups that are defined later.
func (r *reader) groupsFirst(top *yaml.Node) {
	all := member(top, "groups")
	if top.Kind != yaml.MappingNode || all == nil {
		return
	}
	if all.Kind != yaml.MappingNode {
		r.wrong(all, "groups must be a mapping of names to lists of tools")
		return
	}
	for j := 0; j+1 < len(all.Content); j += 2 {
		name := all.Content[j]
		if _, twice := r.groups[name.Value]; twice {
			r.wrong(name, "the group %q appears twice", short(name.Value))
		}
		if !registry.ValidToolName(name.Value) {
			r.wrong(name, "the name of a group may have letters, digits, '_', '.' and '-'")
		}
		r.groups[name.Value] = r.tools(all.Content[j+1], false)
	}
}

// tools reads patterns of tool names. With groups, it also reads names of groups.
func (r *reader) tools(n *yaml.Node, groups bool) globs {
	var list globs
	r.each(n, func(n *yaml.Node) {
		glob := r.text(n)
		if name, ok := strings.CutPrefix(glob, groupPrefix); ok && groups {
			members, ok := r.groups[name]
			if !ok && len(r.problems) < maxProblems {
				known := slices.Sorted(maps.Keys(r.groups))
				r.unknown(&yaml.Node{Value: name, Line: n.Line, Column: n.Column}, "group", known)
			}
			list = r.add(n, list, members)
		} else if glob != "" {
			if err := CheckGlob(glob); err != nil {
				r.wrong(n, "%s", registry.AsError(err).Message)
			}
			list = r.add(n, list, globs{glob})
		}
	})
	return list
}

// add adds patterns to a list. Patterns beyond maxPatterns are left out, and reported once.
func (r *reader) add(n *yaml.Node, list, patterns globs) globs {
	before := r.patterns
	r.patterns += len(patterns)
	switch {
	case r.patterns <= maxPatterns:
		return append(list, patterns...)
	case before <= maxPatterns:
		r.wrong(n, "the rules and groups have more than %d tool patterns, counting those of a group at each use; "+
			"write shorter groups, or patterns with *", maxPatterns)
	}
	return patterns[:min(1, len(patterns))] // an empty list would be a problem of its own
}

func (r *reader) denials(n *yaml.Node) denials {
	d := denials{globs: r.tools(n, true)}
	for _, glob := range d.globs {
		alike, known := r.alike[glob]
		if !known {
			alike = textsafe.AnySkeletons(glob)
			r.alike[glob] = alike
		}
		d.alike = append(d.alike, alike...)
	}
	return d
}

func (r *reader) roles(n *yaml.Node) []string {
	return words(r, n, "role", auth.RoleNames())
}

func (r *reader) contexts(n *yaml.Node) []Context {
	return words(r, n, "context", Contexts())
}

func (r *reader) id(n *yaml.Node) string {
	id := r.text(n)
	if id == "" {
		return id
	}
	if line, twice := r.ids[id]; twice {
		r.wrong(n, "the id %q belongs to the rule in line %d", short(id), line)
	}
	if len(id) > 64 || strings.ContainsFunc(id, func(c rune) bool {
		return c > 0x7e || c <= ' ' || strings.ContainsRune(`"'\<>&`, c)
	}) {
		r.wrong(n, "an id may have at most 64 characters of printable ASCII, without spaces and quotes")
	}
	r.ids[id] = n.Line
	return id
}

// reason reads the text for callers that a rule refuses.
func (r *reader) reason(n *yaml.Node) string {
	text := r.text(n)
	if len(text) > maxReason || textsafe.Line(text) != text {
		r.wrong(n, "a reason may have one line of at most %d bytes", maxReason)
		return ""
	}
	return text
}

func lineID(n *yaml.Node) string { return fmt.Sprintf("line-%d", n.Line) }

func (r *reader) rulesOf(n *yaml.Node, read func(*yaml.Node)) {
	if n.Kind != yaml.SequenceNode {
		r.wrong(n, "this must be a list of rules, each beginning with -")
		return
	}
	if len(n.Content) > maxRules {
		r.wrong(n, "there are more than %d rules", maxRules)
		return
	}
	for _, item := range n.Content {
		read(item)
	}
}

func (r *reader) askerFields(a *asker, contexts bool) []field {
	fields := []field{
		{"tenants", func(n *yaml.Node) { a.tenants = list(r, n, r.text) }},
		{"users", func(n *yaml.Node) { a.users = list(r, n, r.text) }},
		{"roles", func(n *yaml.Node) { a.roles = r.roles(n) }},
	}
	if contexts {
		fields = append(fields, field{"contexts", func(n *yaml.Node) { a.contexts = r.contexts(n) }})
	}
	return fields
}

func (r *reader) nameRules(n *yaml.Node, contexts bool) (list []nameRule) {
	r.rulesOf(n, func(n *yaml.Node) {
		rule := nameRule{id: lineID(n), at: placeOf(n)}
		r.fields(n, "a rule", append(r.askerFields(&rule.who, contexts),
			field{"id", func(n *yaml.Node) {
				if rule.id = r.id(n); strings.HasPrefix(rule.id, defaultPrefix) {
					r.wrong(n, "ids of defaults are for rules in tools, where a rule replaces the default with its id")
				}
			}},
			field{"allow", func(n *yaml.Node) { rule.allow = r.tools(n, true) }},
			field{"deny", func(n *yaml.Node) { rule.deny = r.denials(n) }},
			field{"reason", func(n *yaml.Node) { rule.reason = r.reason(n) }},
		)...)
		if len(rule.allow) == 0 && len(rule.deny.globs) == 0 && n.Kind == yaml.MappingNode {
			r.wrong(n, "the rule has neither allow nor deny")
		}
		list = append(list, rule)
	})
	return list
}

// MaxPerMinute bounds a limit of calls per minute. A limit above registry.MaxWindowLimit is split into parts of the
// minute, each at least a second.
const MaxPerMinute = 60 * registry.MaxWindowLimit

// perMinute reads limits: one number per identity, or a number for each kind of counter.
func (r *reader) perMinute(n *yaml.Node, id string) (limits []Limit) {
	add := func(per Per) func(*yaml.Node) {
		return func(n *yaml.Node) {
			limits = append(limits, Limit{Rule: id, Per: per, Calls: r.number(n, MaxPerMinute), Window: time.Minute})
		}
	}
	if n.Kind != yaml.MappingNode {
		add(PerIdentity)(n)
		return limits
	}
	r.fields(n, "calls_per_minute", field{string(PerIdentity), add(PerIdentity)},
		field{string(PerTenant), add(PerTenant)}, field{string(PerDevice), add(PerDevice)})
	return limits
}
