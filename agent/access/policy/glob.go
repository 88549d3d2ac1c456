package policy

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/textsafe"
)

// globPattern excludes character classes: shells differ in how they read [!a], and a deny list must not be misread. A
// length in the expression would make it 2.7 MB.
var globPattern = regexp.MustCompile(`^[\p{L}\p{M}\p{Nd}_.*?-]+$`)

const maxGlob = 128 // characters

// CheckGlob returns an error for a malformed pattern of tool names. Such a pattern would otherwise match nothing.
func CheckGlob(glob string) error {
	if !globPattern.MatchString(glob) || utf8.RuneCountInString(glob) > maxGlob {
		return registry.Errorf(registry.CodeInvalidRequest, "the tool name pattern %.80q is malformed: "+
			"it may have at most %d characters: letters, digits, '_', '.', '-', * and ?", glob, maxGlob)
	}
	return nil
}

// globs are patterns: * matches any run of characters, ? exactly one, all others themselves.
type globs []string

func (g globs) match(s string) bool {
	return slices.ContainsFunc(g, func(glob string) bool { return matches(glob, s, false) })
}

// matches reports whether a glob matches s, in time proportional to the product of both lengths. If s is a glob too, it
// reports whether the first matches all that s matches; it may return false for some that do.
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
		case star >= 0: // the last star matches one more character
			_, size := utf8.DecodeRuneInString(s[from:])
			from += size
			i, j = star+1, from
		default:
			return false
		}
	}
	return strings.Trim(glob[i:], "*") == ""
}

type toolName struct {
	name      string
	skeletons []string // computed on first use
}

// denials are globs that also match look-alikes, in another case or script, of the names they match.
type denials struct {
	globs
	alike globs // of their skeletons
}

func newDenials(patterns []string) denials {
	d := denials{globs: patterns}
	for _, p := range patterns {
		d.alike = append(d.alike, textsafe.AnySkeletons(p)...)
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
		t.skeletons = textsafe.AnySkeletons(t.name)
	}
	return slices.ContainsFunc(t.skeletons, d.alike.match)
}

// Guarded are name patterns of tools that something watches. They also match look-alikes. Guarded is immutable.
type Guarded struct{ names denials }

// NewGuarded returns patterns, which must have passed CheckGlob. No patterns match nothing.
func NewGuarded(patterns []string) Guarded { return Guarded{newDenials(patterns)} }

// Match reports whether a name matches, or looks like a matching name.
func (g Guarded) Match(name string) bool { return g.names.match(&toolName{name: name}) }

// Match reports whether a name matches one of the patterns of tool names.
func Match(patterns []string, name string) bool { return globs(patterns).match(name) }

// Security says which commands may run.
type Security string

// The modes, strictest first.
const (
	Deny      Security = "deny"      // none
	Allowlist Security = "allowlist" // only commands made of allowed programs
	Full      Security = "full"      // all
)

// securities returns all modes, strictest first.
func securities() []Security { return []Security{Deny, Allowlist, Full} }

// Stricter returns the stricter of two modes. An empty mode is ignored. An unknown mode counts as Deny.
func Stricter(a, b Security) Security {
	if a == "" || b == "" {
		return cmp.Or(a, b)
	}
	stricter := min(slices.Index(securities(), a), slices.Index(securities(), b))
	return securities()[max(stricter, 0)]
}

// Programs says which programs a tool may run, and how.
type Programs struct {
	Security  Security // empty: set by no rule, which means Allowlist with nothing allowed
	Rule      string   // id of the rule that set the mode; empty: none
	Allow     []string // in mode Allowlist: programs, each with the first arguments it must have, if any
	Elevated  bool     // with the rights of the gateway's own user, if an approver agrees to the call
	Sandboxed bool     // in the sandbox, in any context

	said bool // set by a rule; otherwise the fields above are defaults
}

// intersect combines p with a rule: the stricter mode, what both allow, Elevated if both set it, Sandboxed if one does.
func (p Programs) intersect(rule *Programs) Programs {
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
