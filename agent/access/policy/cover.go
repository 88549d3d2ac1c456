package policy

import (
	"slices"

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

// cells returns where a rule holds.
func (r *toolRule) cells() cells { return cellsOf(r.who.contexts, r.sources) }

// refused returns where a rule refuses every call that it is about.
func (r *toolRule) refused() cells {
	set := r.keptOut()
	for i := range r.forbids {
		if f := &r.forbids[i]; f.unconditional() {
			set |= f.cells()
		}
	}
	return set & r.cells()
}

// keptOut returns where the contexts of a rule refuse every call.
func (r *toolRule) keptOut() (set cells) {
	if len(r.contexts) > 0 {
		set = allCells &^ cellsOf(r.contexts, nil)
	}
	if r.sandbox != nil && !*r.sandbox {
		set |= cellsOf([]Context{Sandboxed}, nil)
	}
	return set & r.cells()
}

// cells returns where the condition of a demand can hold.
func (d *demand) cells() cells {
	if d.outsideMain {
		return allCells &^ cellsOf([]Context{Main}, nil)
	}
	return allCells
}

// unconditional reports whether a demand holds for every call in its cells.
func (d *demand) unconditional() bool {
	return len(d.except) == 0 && (d.When == whenAlways || d.When == whenNever || d.When == whenOutsideMain)
}

// holdsWith reports whether a demand holds, in its cells, whenever d does.
func (d *demand) holdsWith(other *demand) bool {
	return (d.When == whenAlways || d.When == whenOutsideMain || d.When == other.When) &&
		!slices.ContainsFunc(d.except, func(role string) bool { return !slices.Contains(other.except, role) })
}

// maxComparisons bounds how many patterns are compared to find rules that cover others. In a larger file some that
// never apply are not found.
const maxComparisons = 2_000_000

// coverage finds out which rules are about all that others are about. What it says is true; it may miss some.
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
		return !slices.ContainsFunc(all, func(glob string) bool { return matchPattern(glob, one) })
	})
}

// askers reports whether a rule is for everybody whom another is for. Contexts do not count.
func (c *coverage) askers(all, some asker) bool {
	return subset(some.roles, all.roles) && c.globs(all.tenants, some.tenants) && c.globs(all.users, some.users)
}

// subset reports whether a selection is part of another. The empty one selects everything.
func subset[T comparable](some, all []T) bool {
	return len(all) == 0 ||
		len(some) > 0 && !slices.ContainsFunc(some, func(one T) bool { return !slices.Contains(all, one) })
}

// covering returns the rules about all tools and callers that the rule i is about, in the cells that they select, and
// the levels that the tools of rule i can have.
func (c *coverage) covering(rules []toolRule, i int) (over []int, possible []registry.SecurityLevel) {
	rule := &rules[i]
	open := rule.cells() // where no rule so far has set the level
	for j := range rules {
		other := &rules[j]
		if j != i && !(c.askers(other.who, rule.who) && c.globs(other.names.globs, rule.names.globs)) {
			if other.level != "" && open != 0 {
				possible = append(possible, other.level) // it may be about some of the tools
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
