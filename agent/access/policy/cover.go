package policy

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/registry"
)

// cells is a set of combinations of a context and a source, one bit each.
type cells uint16

const numSources = int(MCP) + 1

// allCells has every combination.
const allCells cells = 1<<(3*numSources) - 1

// cellsOf returns the combinations of some contexts and some sources. An empty list means all.
func cellsOf(contexts []Context, sources []Source) (set cells) {
	for _, c := range Contexts() {
		for s := Remote; s <= MCP; s++ {
			if (len(contexts) == 0 || slices.Contains(contexts, c)) &&
				(len(sources) == 0 || slices.Contains(sources, s)) {
				set |= 1 << (rank(c)*numSources + int(s))
			}
		}
	}
	return set
}

func (r *toolRule) cells() cells { return cellsOf(r.who.contexts, r.sources) }

// refused returns the cells in which a rule refuses every call that it is about.
func (r *toolRule) refused() cells {
	set := r.excludedCells()
	for i := range r.forbids {
		if f := &r.forbids[i]; f.unconditional() {
			set |= f.cells()
		}
	}
	return set & r.cells()
}

// excludedCells returns the cells in which the contexts of a rule refuse every call.
func (r *toolRule) excludedCells() (set cells) {
	if len(r.contexts) > 0 {
		set = allCells &^ cellsOf(r.contexts, nil)
	}
	if r.sandbox != nil && !*r.sandbox {
		set |= cellsOf([]Context{Sandboxed}, nil)
	}
	return set & r.cells()
}

// cells returns the cells in which a demand's condition can hold.
func (d *demand) cells() cells {
	if d.outsideMain {
		return allCells &^ cellsOf([]Context{Main}, nil)
	}
	return allCells
}

// unconditional reports whether a demand applies for every call in its cells.
func (d *demand) unconditional() bool {
	return len(d.except) == 0 && (d.When == whenAlways || d.When == whenNever || d.When == whenOutsideMain)
}

// appliesWith reports whether a demand applies, in its cells, whenever other does.
func (d *demand) appliesWith(other *demand) bool {
	return (d.When == whenAlways || d.When == whenOutsideMain || d.When == other.When) &&
		!slices.ContainsFunc(d.except, func(role string) bool { return !slices.Contains(other.except, role) })
}

// maxComparisons bounds the pattern comparisons when searching for rules that cover others. In a larger file, some
// rules that never apply are not found.
const maxComparisons = 2_000_000

// coverage finds rules that cover all calls of other rules. Its positive answers are correct; it may miss some.
type coverage struct{ comparisons int }

// globs reports whether patterns match everything that others match. No patterns match everything.
func (c *coverage) globs(all, some globs) bool {
	switch {
	case len(all) == 0:
		return true
	case len(some) == 0:
		return slices.Contains(all, "*")
	}
	if c.comparisons += len(all) * len(some); c.comparisons > maxComparisons {
		return false
	}
	return !slices.ContainsFunc(some, func(one string) bool {
		return !slices.ContainsFunc(all, func(glob string) bool { return matches(glob, one, true) })
	})
}

// askers reports whether a rule selects every caller that another rule selects. Contexts are not compared.
func (c *coverage) askers(all, some asker) bool {
	return subset(some.roles, all.roles) && c.globs(all.tenants, some.tenants) && c.globs(all.users, some.users)
}

// subset reports whether a selection is part of another. The empty selection selects everything.
func subset[T comparable](some, all []T) bool {
	return len(all) == 0 ||
		len(some) > 0 && !slices.ContainsFunc(some, func(one T) bool { return !slices.Contains(all, one) })
}

// covering returns the rules that cover all tools and callers of rule i, in the cells that they select. It also returns
// the levels that the tools of rule i can have.
func (c *coverage) covering(rules []toolRule, i int) (over []int, possible []registry.SecurityLevel) {
	rule := &rules[i]
	open := rule.cells() // where no rule so far has set the level
	for j := range rules {
		other := &rules[j]
		if j != i && !(c.askers(other.who, rule.who) && c.globs(other.names.globs, rule.names.globs)) {
			if other.level != "" && open != 0 {
				possible = append(possible, other.level) // it may cover some of the tools
			}
			continue
		}
		if j != i {
			over = append(over, j)
		}
		if other.level != "" && open != 0 {
			possible = append(possible, other.level)
			open &^= other.cells()
		}
	}
	if open != 0 {
		possible = levels
	}
	if len(rule.levels) > 0 {
		possible = slices.DeleteFunc(slices.Clone(possible), func(l registry.SecurityLevel) bool {
			return !slices.Contains(rule.levels, l)
		})
	}
	over = slices.DeleteFunc(over, func(j int) bool {
		other := &rules[j]
		return !subset(possible, other.levels) ||
			other.effects != 0 && (rule.effects == 0 || rule.effects&^other.effects != 0)
	})
	return over, possible
}

func (u *unreachable) demands() {
	for k := range u.rule.approvals {
		if a := &u.rule.approvals[k]; !a.never {
			what := fmt.Sprintf("approval: %s never applies", a.When)
			reach := u.rule.cells() & a.cells() &^ u.rule.excludedCells()
			if !u.neverHolds(a, reach, what) && !u.neverAsked(k, reach, what) {
				u.terms(k, reach)
				u.hardlyHolds(a, "approval", "asks")
			}
		}
	}
	for k := range u.rule.forbids {
		f := &u.rule.forbids[k]
		if !u.neverHolds(f, u.rule.cells()&f.cells(), fmt.Sprintf("forbid: %s never applies", f.When)) {
			u.hardlyHolds(f, "forbid", "refuses")
		}
	}
}

// neverHolds finds a demand whose condition contradicts its rule. reach has the cells where it could hold.
func (u *unreachable) neverHolds(d *demand, reach cells, what string) bool {
	switch {
	case reach == 0:
		u.wrong("%s: the rule covers only calls in the context main", what)
	case d.model != nil && *d.model && u.adminsOnly():
		u.wrong("%s: models may not call these tools, because their level is admin_only", what)
	case u.alwaysExcept(d):
		u.wrong("%s: all callers allowed to make these calls have a role in except:", what)
	default:
		return false
	}
	return true
}

func (u *unreachable) adminsOnly() bool {
	return !slices.ContainsFunc(u.possible, func(l registry.SecurityLevel) bool {
		return l != registry.SecurityAdminOnly
	})
}

// alwaysExcept reports whether every caller that passes the rule has a role that a demand exempts, as admins have.
func (u *unreachable) alwaysExcept(d *demand) bool {
	if len(d.except) == 0 {
		return false
	}
	except := append(slices.Clone(d.except), auth.NameAdmin)
	return u.adminsOnly() ||
		len(u.rule.who.roles) > 0 && subset(u.rule.who.roles, except) ||
		len(u.rule.roles) > 0 && subset(u.rule.roles, except)
}

// neverAsked finds an approval that an earlier rule ends, or whose calls are refused. where is where it could apply.
func (u *unreachable) neverAsked(k int, where cells, what string) bool {
	d, ended, refused := &u.rule.approvals[k], hiding{rest: where}, hiding{rest: where}
	for _, j := range slices.Sorted(slices.Values(append(slices.Clone(u.over), u.at))) {
		other := &u.rules[j]
		before := other.approvals
		if j == u.at {
			before = before[:k]
		}
		for i := range before {
			if a := &before[i]; j <= u.at && a.never && a.unconditional() {
				ended.add(j, other.cells())
			}
		}
		for i := range other.forbids {
			if f := &other.forbids[i]; f.appliesWith(d) {
				refused.add(j, other.cells()&f.cells())
			}
		}
		refused.add(j, other.excludedCells())
	}
	switch {
	case ended.rest == 0:
		u.wrong("%s: %s comes first and has approval: never for these calls. Move this rule above it",
			what, u.ruleName(ended.by[0]))
	case refused.rest == 0:
		u.wrong("%s: %s refuses such calls. Remove this, or change that rule", what, u.ruleName(refused.by[0]))
	default:
		return false
	}
	return true
}

// hardlyHolds finds the condition "argument from outside" on tools that change nothing: it checks only their URLs.
func (u *unreachable) hardlyHolds(d *demand, field, does string) {
	if d.Marks != ForeignArgument || u.effects == nil ||
		slices.ContainsFunc(u.effects, func(e Effects) bool { return !e.OnlyReads() }) {
		return
	}
	u.warn("%s: %s %s only for URLs, because set_effects says that these tools change nothing: addresses, names and "+
		"amounts pass. Correct set_effects, or use another condition", field, d.When, does)
}

// terms finds by and within settings that never apply, because another rule about the same calls is stricter.
func (u *unreachable) terms(k int, where cells) {
	d := &u.rule.approvals[k]
	asks := func(j int) (by registry.ApproveBy, within time.Duration) {
		by = registry.ApproveAnyone
		for i := range u.rules[j].approvals {
			a := &u.rules[j].approvals[i]
			if a.never || !a.appliesWith(d) || u.rules[j].cells()&where&^a.cells() != 0 ||
				u.ended(k, j, i) {
				continue
			}
			if strictness(a.By) > strictness(by) {
				by = a.By
			}
			within = least(within, a.Within)
		}
		return by, within
	}
	if d.By != "" {
		u.hidden(where, fmt.Sprintf("by: %s", d.By),
			"%[1]s covers the same calls with by: %[2]s, and the strictest applies",
			func(j int, _ *toolRule) (any, verdict) {
				by, _ := asks(j)
				return cmp.Or(by, "unset, which is stricter"), sets(strictness(by) > strictness(d.By), true)
			})
	}
	if d.Within > 0 {
		u.hidden(where, fmt.Sprintf("within: %v", d.Within),
			"%[1]s covers the same calls with within: %[2]v, and the shortest applies",
			func(j int, _ *toolRule) (any, verdict) {
				_, within := asks(j)
				return within, sets(within > 0 && within < d.Within, true)
			})
	}
}

// ended reports whether approval: never may stand between demand k of the rule and demand i of rule j, so that one may
// apply without the other.
func (u *unreachable) ended(k, j, i int) bool {
	for at := u.at; at <= j; at++ {
		for n := range u.rules[at].approvals {
			if u.rules[at].approvals[n].never && (at > u.at || n > k) && (at < j || n < i) {
				return true
			}
		}
	}
	return false
}

type hiding struct {
	rest cells // cells that no rule hides
	by   []int // the rules, in order
}

func (h *hiding) add(j int, where cells) {
	if where&h.rest != 0 {
		h.by = append(h.by, j)
		h.rest &^= where
	}
}
