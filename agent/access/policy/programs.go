package policy

import "slices"

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
