package policy

import (
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/legible"
)

// globPattern leaves out character classes: every shell reads [!a] in its own way, and a deny list must not be
// misread. A length in the expression would make it 2.7 MB.
var globPattern = regexp.MustCompile(`^[\p{L}\p{M}\p{Nd}_.*?-]+$`)

const maxGlob = 128 // characters

// CheckGlob reports what is wrong with a pattern of tool names, which would otherwise silently match nothing.
func CheckGlob(glob string) error {
	if !globPattern.MatchString(glob) || utf8.RuneCountInString(glob) > maxGlob {
		return registry.Errorf(registry.CodeInvalidRequest, "the tool name pattern %.80q is malformed: "+
			"it may hold letters, digits, '_', '.', '-', * and ?, %d characters at most", glob, maxGlob)
	}
	return nil
}

// globs are patterns: * matches any run of characters, ? exactly one, anything else itself.
type globs []string

func (g globs) match(s string) bool {
	return slices.ContainsFunc(g, func(glob string) bool { return matchGlob(glob, s) })
}

// matchGlob takes time in proportion to the product of both lengths at most.
func matchGlob(glob, s string) bool { return matches(glob, s, false) }

// matchPattern reports whether a glob matches everything that another glob matches. It may miss some that do.
func matchPattern(glob, other string) bool { return matches(glob, other, true) }

// matches does what matchGlob says. If s is a glob itself, its * is more than a question mark stands for.
func matches(glob, s string, isGlob bool) bool {
	i, j, star, from := 0, 0, -1, 0
	for j < len(s) {
		_, size := utf8.DecodeRuneInString(s[j:])
		switch {
		case i < len(glob) && glob[i] == '*':
			star, from = i, j
			i++
		case i < len(glob) && glob[i] == '?' && !(isGlob && s[j] == '*'):
			i, j = i+1, j+size
		case strings.HasPrefix(glob[i:], s[j:j+size]):
			i, j = i+size, j+size
		case star >= 0: // the last star takes one character more
			_, size := utf8.DecodeRuneInString(s[from:])
			from += size
			i, j = star+1, from
		default:
			return false
		}
	}
	return strings.Trim(glob[i:], "*") == ""
}

// toolName is the name of a tool, and what it looks like.
type toolName struct {
	name      string
	skeletons []string // computed when they are needed
}

// denials are globs that also match what looks like a name they match, in another case or in letters of another
// script: a name is denied for what its readers take it for.
type denials struct {
	globs
	alike globs // of the skeletons
}

func newDenials(patterns []string) denials {
	d := denials{globs: patterns}
	for _, p := range patterns {
		d.alike = append(d.alike, legible.AnySkeletons(p)...)
	}
	return d
}

func (d denials) match(t *toolName) bool {
	if len(d.globs) == 0 {
		return false
	}
	if d.globs.match(t.name) {
		return true
	}
	if t.skeletons == nil {
		t.skeletons = legible.AnySkeletons(t.name)
	}
	return slices.ContainsFunc(t.skeletons, d.alike.match)
}

// Guarded are patterns of the names of tools that something watches. They also match what looks like a name they match:
// what a device calls its tools must be no way around. It does not change.
type Guarded struct{ names denials }

// NewGuarded returns patterns that were checked with CheckGlob. None match nothing.
func NewGuarded(patterns []string) Guarded { return Guarded{newDenials(patterns)} }

// Match reports whether a name matches, or looks like one that does.
func (g Guarded) Match(name string) bool { return g.names.match(&toolName{name: name}) }

// Match reports whether a name matches one of the patterns of tool names.
func Match(patterns []string, name string) bool { return globs(patterns).match(name) }

// Security says which commands may run at all.
type Security string

// The modes, the strictest first.
const (
	Deny      Security = "deny"      // none
	Allowlist Security = "allowlist" // those that consist of allowed programs only
	Full      Security = "full"      // all
)

// Securities returns all modes, the strictest first.
func Securities() []Security { return []Security{Deny, Allowlist, Full} }

// Stricter returns the stricter of two modes. An empty mode says nothing; what is no mode counts as Deny.
func Stricter(a, b Security) Security {
	switch {
	case a == "":
		return b
	case b == "":
		return a
	case slices.Index(Securities(), a) < slices.Index(Securities(), b):
		return known(a)
	default:
		return known(b)
	}
}

func known(s Security) Security {
	if !slices.Contains(Securities(), s) {
		return Deny
	}
	return s
}

// Programs says which programs a tool that runs some may run, and how.
type Programs struct {
	Security  Security // empty: no rule says any, which means Allowlist with nothing allowed
	Rule      string   // the id of the rule whose mode counts; empty: no rule says any
	Allow     []string // for calls in mode Allowlist: programs, each with the first arguments it must have, if any
	Elevated  bool     // with the rights of the gateway's own user, if an approver agrees to that very call
	Sandboxed bool     // in the sandbox, whatever the context

	said bool // a rule says so; else everything above is only what holds if none does
}

// and returns what holds if a rule says more: the stricter mode, the programs that both allow, more rights only if both
// say so, and the sandbox if one does.
func (p Programs) and(rule *Programs) Programs {
	switch {
	case rule == nil:
		return p
	case !p.said:
		p = *rule
		p.said = true
		return p
	}
	both := Programs{
		Security: Stricter(p.Security, rule.Security), Allow: p.Allow, said: true,
		Elevated: p.Elevated && rule.Elevated, Sandboxed: p.Sandboxed || rule.Sandboxed, Rule: p.Rule,
	}
	if both.Security != p.Security {
		both.Rule = rule.Rule
	}
	switch {
	case p.Allow == nil:
		both.Allow = rule.Allow
	case rule.Allow != nil || rule.Security == Allowlist:
		both.Allow = slices.DeleteFunc(slices.Clone(p.Allow), func(allowed string) bool {
			return !slices.Contains(rule.Allow, allowed)
		})
	}
	return both
}
