package budget

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
)

// Event says that a sum has reached a share of its limit.
type Event struct {
	Tenant   string
	Identity string // empty: the sum is the tenant's
	Kind     string // one of registry.SpentKinds
	Limit    int64  // of the day
	Percent  int64  // of the limit that was reached; 100: the budget is spent
}

// Text describes the event for people.
func (e Event) Text() string {
	whose := "the tenant"
	if e.Identity != "" {
		whose = e.Identity
	}
	if e.Percent >= 100 {
		return fmt.Sprintf("%s has spent the day's budget of %s", whose, AmountText(e.Kind, e.Limit))
	}
	return fmt.Sprintf("%s has spent %d %% of the day's budget of %s", whose, e.Percent, AmountText(e.Kind, e.Limit))
}

// Money is the kind whose amounts are millionths.
const Money = "money"

// AmountText describes an amount of a kind for people.
func AmountText(kind string, n int64) string {
	if kind == Money {
		return fmt.Sprintf("%s %d.%06d", kind, n/million, n%million)
	}
	return strconv.FormatInt(n, 10) + " " + kind
}

// Text describes a budget for people.
func Text(b registry.DayBudget) string {
	var parts []string
	for _, of := range []struct {
		name   string
		limits registry.Spent
	}{{"tenant", b.Tenant}, {"identity", b.Identity}} {
		for i, limit := range of.limits.Amounts() {
			if limit > 0 {
				parts = append(parts, of.name+" "+AmountText(registry.SpentKinds[i], limit))
			}
		}
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, "; ")
}

// report reports the limits that a sum has reached by growing from before to after. The store adds in one order, so one
// pod sees each limit being reached. The lock is held.
func (l *Ledger) report(t *tenant, identity string, before, after registry.Spent) {
	was, is, most := before.Amounts(), after.Amounts(), t.limitsOf(identity).Amounts()
	share := t.budget.WarnPercent
	if share == 0 {
		share = registry.DefaultWarnPercent
	}
	for kind, limit := range most {
		if limit == 0 {
			continue
		}
		early := limit/100*share + limit%100*share/100
		switch e := (Event{t.name, identity, registry.SpentKinds[kind], limit, share}); {
		case was[kind] < limit && limit <= is[kind]:
			e.Percent = 100
			l.exceeded.Add(1)
			l.note(e, registry.AuditBudgetSpent)
		case was[kind] < early && early <= is[kind]:
			l.warned.Add(1)
			l.note(e, registry.AuditBudgetWarning)
		}
	}
}

func (l *Ledger) note(e Event, action string) {
	l.cfg.Log.Warn("budget", "tenant", e.Tenant, "about", e.Text())
	l.cfg.Audit.Note(registry.AuditEntry{
		Tenant: e.Tenant, Action: action, Outcome: registry.AuditSeen, Target: e.Identity, Reason: e.Text(),
	})
	if l.cfg.Warn != nil {
		l.cfg.Warn(e)
	}
}

// refuse returns the error for a sum that is spent.
func (l *Ledger) refuse(t *tenant, identity string, kind int, left time.Duration) error {
	l.refused[kind].Add(1)
	whose, per := "your tenant", "tenant"
	if identity != "" {
		whose, per = "you", "identity"
	}
	name := registry.SpentKinds[kind]
	limit := AmountText(name, t.limitsOf(identity).Amounts()[kind])
	left = max(left, time.Second).Round(time.Second)
	e := registry.Errorf(registry.CodeBudgetExceeded, "The day's budget of %s for %s is spent. It begins anew at "+
		"midnight UTC, in %v. A fleet operator can raise it.", limit, whose, left)
	e.Rule, e.RetryAfter = "budget."+per+"."+name, left
	return e
}

// unavailable returns the refusal of what cannot be checked, or nil if it passes. A call (take) that passes counts.
func (l *Ledger) unavailable(who share.Owner, take bool, err error) error {
	if l.cfg.Open {
		if take {
			l.add(who, registry.Spent{Calls: 1})
		}
		l.cfg.Log.Warn("budget not checked; the call passes (FARHAND_LIMITS_FAIL=open)", "tenant", who.Tenant,
			"error", err)
		return nil
	}
	e := *registry.AsError(err)
	if e.Code == registry.CodeStoreUnavailable {
		e.Message = "The gateway cannot check the budget of this call without its store, and rejects it " +
			"(FARHAND_LIMITS_FAIL=closed). Retry in a moment."
	}
	return &e
}

// Standing is a budget and what is spent of it.
type Standing struct {
	Per    string // tenant or identity
	Limits registry.Spent
	Spent  registry.Spent
	Left   time.Duration // until it begins anew
}

// Of returns the budgets of an identity, as the store knows them.
func (l *Ledger) Of(ctx context.Context, who auth.Identity) ([]Standing, error) {
	owner := who.Owner()
	t, err := l.tenant(ctx, owner.Tenant)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	if t.budget.Tenant == (registry.Spent{}) && t.budget.Identity == (registry.Spent{}) {
		l.mu.Unlock()
		return nil, nil
	}
	names := t.sumsOf(owner.Identity)
	charge := t.charge(names, false)
	l.mu.Unlock()
	done := l.charged(ctx, t, charge)
	if done.Error != nil {
		return nil, done.Error
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var list []Standing
	for i, name := range names {
		per := "tenant"
		if name != "" {
			per = "identity"
		}
		if limits := t.limitsOf(name); limits != (registry.Spent{}) {
			list = append(list, Standing{per, limits, done.Sums[i], done.Left})
		}
	}
	return list, nil
}

// Stats has the counters of a Ledger since its start.
type Stats struct {
	Warned, Exceeded int64            // sums that reached the warning share, and the limit; once in the fleet
	Refused          map[string]int64 // calls and requests to models, by the kind of budget
}

// Stats returns the counters.
func (l *Ledger) Stats() Stats {
	s := Stats{l.warned.Load(), l.exceeded.Load(), make(map[string]int64)}
	for i, kind := range registry.SpentKinds {
		s.Refused[kind] = l.refused[i].Load()
	}
	return s
}

// errClosing is the reason that unsent amounts are lost.
var errClosing = errors.New("what was spent in the last second is not counted")
