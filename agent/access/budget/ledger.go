// Package budget holds tenants and their identities to what they may spend on a day (UTC): calls, bytes, tokens of
// models and money for them, over all pods of a fleet.
//
// Each pod adds up what it admits, and adds it to the sums of the store each second. Until then it admits at most a
// hundredth of what the store last said is left (share); beyond that it asks the store first, which takes a call only
// if it fits. So most calls make no request of their own, and the calls of a day exceed a budget by at most a hundredth
// per pod. What a call or an answer of a model costs besides is known when it has ended: so what runs when a budget is
// spent still ends, and counts.
//
// Start with Ledger.Call. report.go warns, prices.go has the prices of models.
package budget

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
)

const (
	leftShare  = 100 // a pod admits a hundredth of what is left on its own
	storeWait  = time.Second
	maxSums    = 10_000           // identities of a tenant that a pod counts one by one
	idleTenant = 10 * time.Minute // after which a pod forgets a tenant, and the sum of an identity
)

// Store is the part of registry.Store that a Ledger needs.
type Store interface {
	registry.SpendingStore
	NoteTenants(ctx context.Context, names ...string) error
	TenantsOf(ctx context.Context, names ...string) ([]registry.Tenant, error)
	BudgetsVersion(ctx context.Context) (string, error)
}

// Config configures a Ledger. Store is required.
type Config struct {
	Store  Store
	Prices *Prices      // nil: models cost nothing
	Open   bool         // while the store is unavailable, what has a budget passes instead of being refused
	Audit  auth.Auditor // default: no audit
	Warn   func(Event)  // called for each Event, once in the fleet; must not block; default: none
	Log    *slog.Logger // default: discard
}

// Ledger counts what a pod's tenants spend, and refuses what exceeds their budgets. It is safe for concurrent use.
type Ledger struct {
	cfg      Config
	warned   atomic.Int64
	exceeded atomic.Int64
	refused  [len(registry.SpentKinds)]atomic.Int64

	mu      sync.Mutex
	known   bool   // version was read
	version string // of the budgets; empty: there are none
	tenants map[string]*tenant
	fresh   map[string]time.Time // tenants to note, or when they were noted

	stop context.CancelFunc
	done sync.WaitGroup
}

// tenant is a tenant that spends on this pod. The Ledger's lock guards it.
type tenant struct {
	name    string
	loaded  bool
	version string // of the budgets when budget was read
	budget  registry.DayBudget
	sums    map[string]*sum // by identity; the tenant's own is ""
	pending bool            // some sum may have something pending
	used    time.Time
}

// sum is one sum of a tenant's day.
type sum struct {
	known   registry.Spent // that the store last returned
	day     string         // of known; empty: the store was not asked yet
	until   time.Time      // when the day ends
	sent    registry.Spent // that is on its way to the store
	pending registry.Spent // that was not sent yet
	used    time.Time
}

// limitsOf returns the limits of a sum.
func (t *tenant) limitsOf(identity string) registry.Spent {
	if identity == "" {
		return t.budget.Tenant
	}
	return t.budget.Identity
}

// sumsOf returns the names of the sums that count an identity: the tenant's and, if it has limits, its own.
func (t *tenant) sumsOf(identity string) []string {
	if identity == "" || t.budget.Identity == (registry.Spent{}) {
		return []string{""}
	}
	if t.sums[identity] == nil && len(t.sums) >= maxSums {
		identity = registry.SpenderOther
	}
	return []string{"", identity}
}

func (t *tenant) sum(identity string) *sum {
	s := t.sums[identity]
	if s == nil {
		s = new(sum)
		t.sums[identity] = s
	}
	s.used = time.Now()
	return s
}

// Indexes of registry.SpentKinds.
const (
	kindCalls = iota
	kindBytes
	kindTokens
	kindMoney
)

// What a call and an answer of a model are refused for.
var (
	ofCalls  = []int{kindCalls, kindBytes}
	ofModels = []int{kindTokens, kindMoney}
)

// verdict is what a pod knows about one more use of a sum.
type verdict int

const (
	fits  verdict = iota
	ask           // the store must be asked
	spent         // the budget is spent
)

// judge decides about a call (take), or an answer of a model, by the amounts in kinds. It returns the first amount that
// is spent.
func (s *sum) judge(limits registry.Spent, kinds []int, take bool, now time.Time) (verdict, int) {
	if limits == (registry.Spent{}) {
		return fits, 0
	}
	most, known, mine := limits.Amounts(), s.known.Amounts(), s.sent.Plus(s.pending).Amounts()
	if s.day == "" || !now.Before(s.until) {
		return ask, 0
	}
	if take {
		mine[kindCalls]++
	}
	v := fits
	for _, kind := range kinds {
		switch left := most[kind] - known[kind]; {
		case most[kind] == 0:
		case left <= 0:
			return spent, kind
		case mine[kind] > left/leftShare:
			v = ask
		}
	}
	return v, 0
}

// Call admits a call of an identity and counts it. It fails with CodeBudgetExceeded if the calls or bytes of the tenant
// or the identity are spent, and with CodeStoreUnavailable if that cannot be known.
func (l *Ledger) Call(ctx context.Context, who share.Owner) error {
	return l.admit(ctx, who, ofCalls, true)
}

// Model admits a request to a model, like Call, by the tokens and the money.
func (l *Ledger) Model(ctx context.Context, who share.Owner) error {
	return l.admit(ctx, who, ofModels, false)
}

func (l *Ledger) admit(ctx context.Context, who share.Owner, kinds []int, take bool) error {
	t, err := l.tenant(ctx, who.Tenant)
	if err != nil {
		return l.unavailable(who, take, err)
	}
	l.mu.Lock()
	now := time.Now()
	names, answer := t.sumsOf(who.Identity), fits
	for _, name := range names {
		s := t.sum(name)
		v, kind := s.judge(t.limitsOf(name), kinds, take, now)
		if v == spent {
			err := l.refuse(t, name, kind, s.until.Sub(now))
			l.mu.Unlock()
			return err
		}
		answer = max(answer, v)
	}
	if answer == fits && take {
		t.count(names, registry.Spent{Calls: 1})
	}
	l.mu.Unlock()
	if answer == fits {
		return nil
	}
	return l.ask(ctx, t, who, kinds, take)
}

// count adds to sums. The lock is held.
func (t *tenant) count(names []string, more registry.Spent) {
	t.pending = true
	for _, name := range names {
		s := t.sum(name)
		s.pending = s.pending.Plus(more)
	}
}

// ask adds what is pending of an identity's sums to the store's, and decides by its answer.
func (l *Ledger) ask(ctx context.Context, t *tenant, who share.Owner, kinds []int, take bool) error {
	l.mu.Lock()
	names := t.sumsOf(who.Identity)
	charge := t.charge(names, take)
	l.mu.Unlock()
	done := l.charged(ctx, t, charge)
	if done.Error != nil {
		return l.unavailable(who, take, done.Error)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, name := range names {
		sums, most := done.Sums[i].Amounts(), t.limitsOf(name).Amounts()
		for _, kind := range kinds {
			reached := sums[kind] >= most[kind]
			if take && kind == kindCalls { // the store has decided
				reached = done.Full && reached
			}
			if most[kind] > 0 && reached {
				return l.refuse(t, name, kind, done.Left)
			}
		}
	}
	return nil
}

// charged makes a charge, and settles it. It is not abandoned with its caller: whether it was made would be unknown.
func (l *Ledger) charged(ctx context.Context, t *tenant, charge registry.TenantCharge) registry.Charged {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeWait)
	defer cancel()
	done := l.cfg.Store.AddSpent(ctx, charge)[0]
	l.settle(t, charge, done)
	return done
}

// charge takes what is pending of some sums, for the store. The lock is held.
func (t *tenant) charge(names []string, take bool) registry.TenantCharge {
	charge := registry.TenantCharge{Tenant: t.name, Take: take}
	for _, name := range names {
		s := t.sum(name)
		charge.Charges = append(charge.Charges, registry.Charge{
			Identity: name, Spent: s.pending, MaxCalls: t.limitsOf(name).Calls,
		})
		s.sent, s.pending = s.sent.Plus(s.pending), registry.Spent{}
	}
	return charge
}

// settle notes the answer of the store to a charge. If the store failed, the charge is pending again: it may count
// twice, but never not at all.
func (l *Ledger) settle(t *tenant, charge registry.TenantCharge, done registry.Charged) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, c := range charge.Charges {
		s := t.sum(c.Identity)
		s.sent = s.sent.Plus(negative(c.Spent))
		if done.Error != nil {
			s.pending, t.pending = s.pending.Plus(c.Spent), true
			continue
		}
		added := c.Spent
		if charge.Take && !done.Full {
			added.Calls++
		}
		l.report(t, c.Identity, done.Sums[i].Plus(negative(added)), done.Sums[i])
		switch {
		case done.Day > s.day:
			s.known, s.day, s.until = done.Sums[i], done.Day, time.Now().Add(done.Left)
		case done.Day == s.day:
			s.known = largest(s.known, done.Sums[i]) // answers may overtake each other
		}
	}
}

func negative(s registry.Spent) registry.Spent {
	return registry.Spent{Calls: -s.Calls, Bytes: -s.Bytes, Tokens: -s.Tokens, Micros: -s.Micros}
}

func largest(a, b registry.Spent) registry.Spent {
	return registry.Spent{
		Calls: max(a.Calls, b.Calls), Bytes: max(a.Bytes, b.Bytes), Tokens: max(a.Tokens, b.Tokens),
		Micros: max(a.Micros, b.Micros),
	}
}

// CallEnded counts the bytes of a call.
func (l *Ledger) CallEnded(who share.Owner, bytes int64) { l.add(who, registry.Spent{Bytes: bytes}) }

// ModelAnswered counts the tokens of an answer, and what they cost.
func (l *Ledger) ModelAnswered(who share.Owner, model string, input, output int) {
	more := registry.Spent{Tokens: int64(input) + int64(output)}
	if l.cfg.Prices != nil {
		price, _ := l.cfg.Prices.Of(model)
		more.Micros = price.Cost(input, output)
	}
	l.add(who, more)
}

func (l *Ledger) add(who share.Owner, more registry.Spent) {
	if more == (registry.Spent{}) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if t := l.entry(who.Tenant); t != nil {
		t.count(t.sumsOf(who.Identity), more)
	}
}

// entry returns the entry of a tenant, nil if the pod counts for too many tenants. The lock is held.
func (l *Ledger) entry(name string) *tenant {
	t := l.tenants[name]
	if t == nil {
		if len(l.tenants) >= registry.MaxTenants {
			return nil
		}
		t = &tenant{name: name, sums: make(map[string]*sum)}
		l.tenants[name] = t
	}
	t.used = time.Now()
	return t
}

// errTooMany is the error if a pod counts for too many tenants.
var errTooMany = registry.Errorf(registry.CodeBusy, "This pod serves too many tenants at a time. Retry in a minute.")

// tenant returns the entry of a tenant with its budget. It asks the store for the budget only if there are budgets, and
// the pod has not read this one.
func (l *Ledger) tenant(ctx context.Context, name string) (*tenant, error) {
	l.mu.Lock()
	t := l.entry(name)
	if t != nil && !t.loaded && l.known && l.version == "" {
		t.loaded = true
	}
	loaded, version := t != nil && t.loaded, l.version
	l.mu.Unlock()
	switch {
	case t == nil:
		return nil, errTooMany
	case loaded:
		return t, nil
	}
	ctx, cancel := context.WithTimeout(ctx, storeWait)
	defer cancel()
	read, err := l.cfg.Store.TenantsOf(ctx, name)
	if err != nil {
		return t, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	t.loaded, t.version, t.budget = true, version, read[0].Budget
	return t, nil
}
