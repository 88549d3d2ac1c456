package policy

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/registry"
)

// demands finds conditions of approvals and refusals that never hold.
func (u *unreachable) demands() {
	for k := range u.rule.approvals {
		if a := &u.rule.approvals[k]; !a.never {
			what := fmt.Sprintf("approval: %s never applies", a.When)
			reach := u.rule.cells() & a.cells() &^ u.rule.keptOut()
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

// neverHolds finds a demand whose condition contradicts its rule. reach is where it could hold.
func (u *unreachable) neverHolds(d *demand, reach cells, what string) bool {
	switch {
	case reach == 0:
		u.wrong("%s: the rule is about calls in the context main only", what)
	case d.model != nil && *d.model && u.adminsOnly():
		u.wrong("%s: the level of these tools is admin_only, and no model may call them", what)
	case u.alwaysExcept(d):
		u.wrong("%s: everybody who may make these calls has a role that except: names", what)
	default:
		return false
	}
	return true
}

// adminsOnly reports whether only admins may call the tools of the rule.
func (u *unreachable) adminsOnly() bool {
	return !slices.ContainsFunc(u.possible, func(l registry.SecurityLevel) bool {
		return l != registry.SecurityAdminOnly
	})
}

// alwaysExcept reports whether everybody who passes the rule has a role that a demand excepts. Admins have all roles.
func (u *unreachable) alwaysExcept(d *demand) bool {
	if len(d.except) == 0 {
		return false
	}
	except := append(slices.Clone(d.except), auth.NameAdmin)
	return u.adminsOnly() ||
		len(u.rule.who.roles) > 0 && subset(u.rule.who.roles, except) ||
		len(u.rule.roles) > 0 && subset(u.rule.roles, except)
}

// neverAsked finds an approval that is not asked for, because a rule before it has ended the list, or because such
// calls are refused. where is where it could be asked for.
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
			if f := &other.forbids[i]; f.holdsWith(d) {
				refused.add(j, other.cells()&f.cells())
			}
		}
		refused.add(j, other.keptOut())
	}
	switch {
	case ended.rest == 0:
		u.wrong("%s: %s says approval: never for these calls before it. Put it above that one",
			what, u.name(ended.by[0]))
	case refused.rest == 0:
		u.wrong("%s: %s refuses such calls. Leave it out, or change that one", what, u.name(refused.by[0]))
	default:
		return false
	}
	return true
}

// hardlyHolds finds a condition that looks at all arguments of a call that changes something, on tools that change
// nothing by the word of the file: of their arguments it looks at URLs only.
func (u *unreachable) hardlyHolds(d *demand, field, does string) {
	if d.Marks != ForeignArgument || u.effects == nil ||
		slices.ContainsFunc(u.effects, func(e Effects) bool { return !e.OnlyReads() }) {
		return
	}
	u.warn("%s: %s %s for URLs only, because set_effects says that these tools change nothing: addresses, names and "+
		"amounts pass. Say there what the tools do, or use another condition", field, d.When, does)
}

// terms finds who may decide, and how long a person has, where a rule that asks about the same calls is stricter.
func (u *unreachable) terms(k int, where cells) {
	d := &u.rule.approvals[k]
	asks := func(j int) (by registry.ApproveBy, within time.Duration) {
		by = registry.ApproveAnyone
		for i := range u.rules[j].approvals {
			a := &u.rules[j].approvals[i]
			if a.never || !a.holdsWith(d) || u.rules[j].cells()&where&^a.cells() != 0 ||
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
	u.hidden(d.By != "", where, func(j int, _ *toolRule) verdict {
		by, _ := asks(j)
		return sets(strictness(by) > strictness(d.By), true)
	}, func(j int) string {
		by, _ := asks(j)
		return fmt.Sprintf("by: %s never applies: %s asks about the same calls with by: %s, and the strictest counts",
			d.By, u.name(j), cmp.Or(string(by), "left out, which is stricter"))
	})
	u.hidden(d.Within > 0, where, func(j int, _ *toolRule) verdict {
		_, within := asks(j)
		return sets(within > 0 && within < d.Within, true)
	}, func(j int) string {
		_, within := asks(j)
		return fmt.Sprintf("within: %v never applies: %s asks about the same calls with within: %v, and the shortest "+
			"counts", d.Within, u.name(j), within)
	})
}

// ended reports whether approval: never may stand between the demand k of the rule and the demand i of rule j, so that
// the one counts without the other.
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

// hiding collects the rules that hide something.
type hiding struct {
	rest cells // where none does
	by   []int // in order
}

func (h *hiding) add(j int, where cells) {
	if where&h.rest != 0 {
		h.by = append(h.by, j)
		h.rest &^= where
	}
}
