package budget

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/internal/pause"
	"github.com/farhand/farhand/registry"
)

const (
	interval    = time.Second
	slowly      = 5   // tenants without a budget are written every so many intervals
	forgetAfter = 60  // intervals between two looks at which tenants the pod can forget
	batch       = 500 // tenants written at a time
	syncTimeout = 5 * time.Second
	noteEvery   = 12 * time.Hour // how often the list of tenants learns that one is in use
)

// New returns a Ledger that writes to the store until Close.
func New(cfg Config) *Ledger {
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	if cfg.Audit == nil {
		cfg.Audit = auth.NoAudit{}
	}
	ctx, stop := context.WithCancel(context.Background())
	l := &Ledger{cfg: cfg, tenants: make(map[string]*tenant), fresh: make(map[string]time.Time), stop: stop}
	l.done.Go(func() {
		l.follow(ctx)
		for n := 1; pause.For(ctx, interval) == nil; n++ {
			l.follow(ctx)
			_ = l.write(ctx, n%slowly == 0) // logged, and retried
			l.noteTenants(ctx)
			if n%forgetAfter == 0 {
				l.forget()
			}
		}
	})
	return l
}

// Close writes what is left, within ctx. What is spent after Close does not count. Call it once.
func (l *Ledger) Close(ctx context.Context) error {
	l.stop()
	l.done.Wait()
	l.noteTenants(ctx)
	if l.write(ctx, true) != nil {
		return errClosing
	}
	return nil
}

// Seen notes that a credential of a tenant was verified. It does not block.
func (l *Ledger) Seen(tenant string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, known := l.fresh[tenant]; !known && len(l.fresh) < registry.MaxTenants {
		l.fresh[tenant] = time.Time{}
	}
}

// noteTenants lists the tenants that were seen.
func (l *Ledger) noteTenants(ctx context.Context) {
	l.mu.Lock()
	var names []string
	for name, at := range l.fresh {
		switch {
		case at.IsZero():
			names = append(names, name)
		case time.Since(at) > noteEvery: // noted again when it is seen again
			delete(l.fresh, name)
		}
	}
	l.mu.Unlock()
	if len(names) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	if err := l.cfg.Store.NoteTenants(ctx, names...); err != nil {
		l.cfg.Log.Debug("tenants not listed; the pod retries", "tenants", len(names), "error", err)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, name := range names {
		l.fresh[name] = time.Now()
	}
}

// follow reads the budgets of this pod's tenants again if any budget has changed.
func (l *Ledger) follow(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	version, err := l.cfg.Store.BudgetsVersion(ctx)
	if err != nil {
		return // the previous budgets stay in force
	}
	l.mu.Lock()
	l.known, l.version = true, version
	var stale []string
	for name, t := range l.tenants {
		if t.loaded && t.version != version {
			stale = append(stale, name)
		}
	}
	l.mu.Unlock()
	if len(stale) == 0 {
		return
	}
	read, err := l.cfg.Store.TenantsOf(ctx, stale...)
	if err != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range read {
		if t := l.tenants[r.Name]; t != nil {
			t.version, t.budget = version, r.Budget
		}
	}
}

// write adds what is pending to the store's sums: that of tenants with a budget or, if all is set, of all tenants.
func (l *Ledger) write(ctx context.Context, all bool) (err error) {
	var pending []*tenant
	l.mu.Lock()
	for _, t := range l.tenants {
		if t.pending && (all || t.budget != (registry.DayBudget{})) {
			pending = append(pending, t)
		}
	}
	l.mu.Unlock()
	for some := range slices.Chunk(pending, batch) {
		err = cmp.Or(err, l.writeSome(ctx, some))
	}
	return err
}

func (l *Ledger) writeSome(ctx context.Context, some []*tenant) (err error) {
	var tenants []*tenant // of the charges
	var charges []registry.TenantCharge
	l.mu.Lock()
	for _, t := range some {
		t.pending = false
		var spent []string
		for identity, s := range t.sums {
			if s.pending != (registry.Spent{}) {
				spent = append(spent, identity)
			}
		}
		for part := range slices.Chunk(spent, batch) {
			tenants, charges = append(tenants, t), append(charges, t.charge(part, false))
		}
	}
	l.mu.Unlock()
	if len(charges) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	for i, done := range l.cfg.Store.AddSpent(ctx, charges...) {
		l.settle(tenants[i], charges[i], done)
		err = cmp.Or(err, done.Error)
	}
	if err != nil {
		l.cfg.Log.Warn("budgets not written; the pod retries", "tenants", len(charges), "error", err)
	}
	return err
}

// forget drops tenants and the sums of identities that were not used for a while: the store has them. So a pod
// remembers those that spend now, however many there are on a day.
func (l *Ledger) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	for name, t := range l.tenants {
		waits := false
		for identity, s := range t.sums {
			if s.pending != (registry.Spent{}) || s.sent != (registry.Spent{}) {
				waits = true
			} else if identity != "" && now.Sub(s.used) > idleTenant {
				delete(t.sums, identity)
			}
		}
		if !waits && now.Sub(t.used) > idleTenant {
			delete(l.tenants, name)
		}
	}
}
