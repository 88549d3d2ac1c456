package routing

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/farhand/farhand/internal/cache"
	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
)

// Divisors of a tenant's budget that give a holder's share. An identity gets half, because an app's backend holds the
// conversations of all its users. All sessions of a device that its credential names share the part of one session, and
// those of a user that of an identity: they can have any number of ids.
const (
	sessionShare  = 8
	identityShare = 2
)

// sharedBudget is a budget of each tenant. No holder, a session or an identity, may use more than its share of it.
type sharedBudget struct {
	reserved *reservations
	name     string
	tenant   registry.Budget
	divisor  int64 // a holder's share is the tenant's budget divided by it
}

// account is a tenant's budget, or a holder's share of it.
type account struct {
	tenant, name string
	share        bool
	registry.Budget
}

// accounts returns what a holder spends from: its share and the tenant's budget. An empty holder has no share.
func (b *sharedBudget) accounts(tenant, holder string) []account {
	whole := account{tenant: tenant, name: b.name, Budget: b.tenant}
	if holder == "" {
		return []account{whole}
	}
	return []account{b.shareOf(tenant, holder, b.divisor), whole}
}

// shareOf returns a holder's share: the tenant's budget divided by divisor.
func (b *sharedBudget) shareOf(tenant, holder string, divisor int64) account {
	share := account{tenant: tenant, name: b.name + "/" + holder, share: true, Budget: b.tenant}
	share.Bytes /= divisor
	return share
}

// accountsOf returns what a session of a device spends from. No session id has a slash, so no session has the account
// of a device or a user.
func (b *sharedBudget) accountsOf(s *registry.Session) []account {
	all := b.accounts(s.Tenant, s.Key.Session)
	if s.Bound {
		all = append(all, b.shareOf(s.Tenant, "device/"+s.DeviceID, sessionShare))
	}
	if s.UserID != "" {
		all = append(all, b.shareOfUser(s.Tenant, s.UserID))
	}
	return all
}

func (b *sharedBudget) shareOfUser(tenant, user string) account {
	return b.shareOf(tenant, "user/"+user, identityShare)
}

// spend spends n bytes of all accounts of a holder. It returns zero if it spent them, else the time until a retry.
func (b *sharedBudget) spend(ctx context.Context, tenant, holder string, n int64) time.Duration {
	return b.spendAll(ctx, b.accounts(tenant, holder), n)
}

// spendAll spends n bytes of all these accounts, or of none.
func (b *sharedBudget) spendAll(ctx context.Context, all []account, n int64) time.Duration {
	for i, a := range all {
		if wait := b.reserved.spend(ctx, a, n); wait > 0 {
			for _, spent := range all[:i] {
				b.reserved.giveBack(spent, n)
			}
			return wait
		}
	}
	return 0
}

// overdraw spends n bytes, even if an account has fewer. The deficit is refilled before further bytes can be spent. It
// reports whether bytes were missing.
func (b *sharedBudget) overdraw(ctx context.Context, tenant, holder string, n int64) (over bool) {
	for _, a := range b.accounts(tenant, holder) {
		over = b.reserved.overdraw(ctx, a, n) || over
	}
	return over
}

// takeRest takes at most n bytes of what this pod has reserved: who has overdrawn must not go on with small additions.
func (r *reservations) takeRest(a account, n int64) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	x := r.getLocked(a)
	taken := min(x.remaining, n)
	x.remaining -= taken
	return taken
}

// giveBack returns n bytes that were spent for data that was not stored.
func (b *sharedBudget) giveBack(tenant, holder string, n int64) {
	b.giveAllBack(b.accounts(tenant, holder), n)
}

func (b *sharedBudget) giveAllBack(all []account, n int64) {
	for _, a := range all {
		b.reserved.giveBack(a, n)
	}
}

// spent returns how long the holder's budget is known to stay empty. Zero means that it may have bytes.
func (b *sharedBudget) spent(tenant, holder string) (wait time.Duration) {
	for _, a := range b.accounts(tenant, holder) {
		wait = max(wait, b.reserved.spent(a))
	}
	return wait
}

// Defaults of what a tenant may add while the store keeps it, in bytes.
const (
	DefaultHistoryBytes = 512 << 20 // of conversations
	DefaultNewToolBytes = 64 << 20  // of tool definitions that are new to the pod
)

// ByteBudget limits what tenants and their identities add to the store, across all pods. An identity without a name has
// only its tenant's limit. It is safe for concurrent use.
type ByteBudget struct {
	sharedBudget
	full string // the reason in the error when it is used up
}

func newHistoryBudget(cfg PodConfig, r *reservations) *ByteBudget {
	return newByteBudget(r, "history", registry.Budget{Bytes: cfg.HistoryBytes, Over: cfg.HistoryTTL},
		"Conversations have grown too fast. Retry later, or raise FARHAND_HISTORY_BYTES.")
}

func newApprovalBudget(r *reservations) *ByteBudget {
	kept := registry.Budget{Bytes: registry.MaxApprovalBytes, Over: registry.ApprovalRetained}
	return newByteBudget(r, "approvals", kept, "Too much approval data was added.")
}

func newByteBudget(r *reservations, name string, tenant registry.Budget, full string) *ByteBudget {
	full = fmt.Sprintf("%s A tenant may add %d bytes per %v, half of them at once; one identity may add half of that.",
		full, tenant.Bytes, tenant.Over)
	return &ByteBudget{sharedBudget{r, name, tenant, identityShare}, full}
}

// Begin spends bytes before they are added. It fails with CodeRateLimited if too few are left. The error says when to
// retry.
func (b *ByteBudget) Begin(ctx context.Context, by share.Owner, bytes int) error {
	wait := b.spend(ctx, by.Tenant, by.Identity, int64(bytes))
	if wait == 0 {
		return nil
	}
	return registry.Errorf(registry.CodeRateLimited, "%s Retry in %v.", b.full, wait.Round(time.Second)).RetryIn(wait)
}

// Add counts bytes that were added. It reports whether too few were left: then add nothing more for now. Begin fails
// until they have been refilled.
func (b *ByteBudget) Add(ctx context.Context, by share.Owner, bytes int) (over bool) {
	return b.overdraw(ctx, by.Tenant, by.Identity, int64(bytes))
}

// GiveBack returns bytes that Begin spent but that were not added.
func (b *ByteBudget) GiveBack(by share.Owner, bytes int) {
	b.giveBack(by.Tenant, by.Identity, int64(bytes))
}

const (
	listedTool   = 250 // approximate bytes of a tool in the indexes, for each list that has it
	maxKnownSets = 1 << 15
)

// toolBudget limits what devices add to the store by offering new tools. A limit is needed because definitions and
// lists of them stay in the store for a while after their last session. Definitions and lists that this pod has seen
// lately are free, however many devices offer them. It is safe for concurrent use.
type toolBudget struct {
	sharedBudget
	known *cache.Cache[string, struct{}] // already paid for, by tenant and hash; a look-up does not extend its life
}

func newToolBudget(cfg PodConfig, r *reservations) *toolBudget {
	tenant := registry.Budget{Bytes: cfg.NewToolBytes, Over: 2 * cfg.SessionTTL}
	return &toolBudget{
		sharedBudget: sharedBudget{r, "tools", tenant, sessionShare},
		known:        cache.New[string, struct{}](maxKnownSets, cfg.SessionTTL/2),
	}
}

// admit spends the bytes that these tools add to the store. The error says when to retry.
func (b *toolBudget) admit(ctx context.Context, s *registry.Session, tools []registry.ToolSpec) error {
	cost, fresh := b.cost(s.Tenant, tools)
	if cost == 0 {
		return nil
	}
	if wait := b.spendAll(ctx, b.accountsOf(s), cost); wait > 0 {
		return registry.Errorf(registry.CodeRateLimited, "too many new tool definitions: "+
			"a tenant may add %d bytes per %v, one session or device an eighth of that, and one user half; "+
			"register them again in %v",
			b.tenant.Bytes, b.tenant.Over, wait.Round(time.Second)).RetryIn(wait)
	}
	b.learn(fresh)
	return nil
}

// cost returns how many bytes of a list are new, and the names to learn once they are paid for.
func (b *toolBudget) cost(tenant string, tools []registry.ToolSpec) (cost int64, fresh []string) {
	if len(tools) == 0 {
		return 0, nil
	}
	hashes, list := make([]string, len(tools)), sha256.New()
	for i, t := range tools {
		hashes[i] = t.Hash()
		list.Write([]byte(hashes[i]))
	}
	name := tenant + "/" + string(list.Sum(nil))
	if b.known.Has(name) {
		return 0, nil
	}
	fresh = append(fresh, name)
	for i, t := range tools {
		cost += listedTool
		if name := tenant + "/" + hashes[i]; !b.known.Has(name) {
			cost += int64(t.Size())
			fresh = append(fresh, name)
		}
	}
	return cost, fresh
}

func (b *toolBudget) learn(names []string) {
	for _, name := range names {
		b.known.Put(name, struct{}{}, 1)
	}
}

// Limits of reservations. Beyond maxReserving and maxHolders the least recently used are evicted, with their unspent
// bytes.
const (
	budgetParts  = 64          // of a budget; a pod takes at least one part from the store at a time
	maxReserving = 1 << 14     // tenants whose reservations a pod keeps
	maxHolders   = 1 << 14     // holders of one tenant
	minWait      = time.Second // the shortest time before a pod asks the store again for a spent budget
)

// reservations caches parts of budgets that this pod has taken from the store and not spent yet, so that one store
// request pays for many small additions. While the store is unavailable nothing is rejected, because nothing can be
// added to the store either. It is safe for concurrent use.
type reservations struct {
	store registry.BudgetStore
	log   *slog.Logger

	mu  sync.Mutex                                // guards the contents of each reservation
	all *cache.Cache[string, *tenantReservations] // by tenant
}

// tenantReservations are one tenant's reservations, by name. Holders are unbounded in number, so they have a cache of
// their own. They never evict reservations of the tenant itself, or of another tenant.
type tenantReservations struct {
	own     map[string]*reservation
	holders *cache.Cache[string, *reservation]
}

type reservation struct {
	remaining int64     // bytes taken from the store and not spent
	refused   time.Time // until then the budget is known to have fewer bytes than wanted
	wanted    int64
}

func newReservations(store registry.BudgetStore, log *slog.Logger) *reservations {
	return &reservations{store: store, log: log, all: cache.New[string, *tenantReservations](maxReserving/2, 0)}
}

// spend spends all n bytes or none. It returns zero if it spent them, else the time until a retry.
func (r *reservations) spend(ctx context.Context, a account, n int64) time.Duration {
	n = min(n, a.Burst())
	if wait, known := r.spendKnown(a, n); known {
		return wait
	}
	part := max(n, a.Burst()/budgetParts)
	wait, err := r.store.Spend(ctx, a.tenant, a.name, part, a.Budget)
	if err == nil && wait > 0 && part > n { // the budget lacks a whole part, but maybe not n bytes
		part = n
		wait, err = r.store.Spend(ctx, a.tenant, a.name, part, a.Budget)
	}
	if err != nil {
		r.log.Debug("budget not checked", "tenant", a.tenant, "budget", a.name, "error", err)
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	x := r.getLocked(a)
	if wait > 0 {
		wait = max(wait, minWait)
		x.refused, x.wanted = time.Now().Add(wait), n
		return wait
	}
	x.remaining += part - n
	return 0
}

// spendKnown spends n bytes of this pod's reservation, or finds the budget known to lack them. known is false if the
// store must be asked.
func (r *reservations) spendKnown(a account, n int64) (wait time.Duration, known bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	x := r.getLocked(a)
	if x.remaining >= n {
		x.remaining -= n
		return 0, true
	}
	wait = time.Until(x.refused)
	return max(wait, 0), wait > 0 && n >= x.wanted
}

// overdraw spends n bytes, even if the budget has fewer, and reports whether it lacked some.
func (r *reservations) overdraw(ctx context.Context, a account, n int64) bool {
	if r.spend(ctx, a, n) == 0 {
		return false
	}
	if err := r.store.Overdraw(ctx, a.tenant, a.name, n-r.takeRest(a, n), a.Budget); err != nil {
		r.log.Debug("budget overdraft not recorded", "tenant", a.tenant, "budget", a.name, "error", err)
	}
	return true
}

// giveBack returns n bytes that were spent for data that was not added. While the store is unavailable nothing is taken
// from it, but everything is given back, so the reservation is capped at one burst.
func (r *reservations) giveBack(a account, n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	x := r.getLocked(a)
	x.remaining = min(x.remaining+min(n, a.Burst()), a.Burst())
}

// spent returns how much longer the budget is known to be spent. Zero means that it may have bytes.
func (r *reservations) spent(a account) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return max(time.Until(r.getLocked(a).refused), 0)
}

func (r *reservations) getLocked(a account) *reservation {
	t, ok := r.all.Get(a.tenant)
	if !ok {
		t = &tenantReservations{
			own: make(map[string]*reservation), holders: cache.New[string, *reservation](maxHolders/2, 0),
		}
		r.all.Put(a.tenant, t, 1)
	}
	if !a.share {
		if t.own[a.name] == nil {
			t.own[a.name] = new(reservation)
		}
		return t.own[a.name]
	}
	x, ok := t.holders.Get(a.name)
	if !ok {
		x = new(reservation)
		t.holders.Put(a.name, x, 1)
	}
	return x
}
