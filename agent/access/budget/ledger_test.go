package budget_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/access/budget"
	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
	"github.com/farhand/farhand/registry/registrytest"
)

// counting is a store that may be away, and counts the requests that wait for it.
type counting struct {
	*memory.Store
	outage registrytest.Outage
	adds   atomic.Int64
}

func (c *counting) AddSpent(ctx context.Context, charges ...registry.TenantCharge) []registry.Charged {
	c.adds.Add(1)
	if err := c.outage.Err(); err != nil {
		return slices.Repeat([]registry.Charged{{Error: err}}, len(charges))
	}
	return c.Store.AddSpent(ctx, charges...)
}

func (c *counting) TenantsOf(ctx context.Context, names ...string) ([]registry.Tenant, error) {
	if err := c.outage.Err(); err != nil {
		return nil, err
	}
	return c.Store.TenantsOf(ctx, names...)
}

// notes collects audit entries.
type notes struct {
	mu   sync.Mutex
	list []string
}

func (n *notes) Note(e registry.AuditEntry) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.list = append(n.list, e.Action+": "+e.Reason)
}

// fleet is some pods with one store.
type fleet struct {
	*testing.T
	store *counting
	notes *notes
	pods  []*budget.Ledger
}

var ann, ben = share.Owner{Tenant: "acme", Identity: "user:ann"}, share.Owner{Tenant: "acme", Identity: "user:ben"}

func newFleet(t *testing.T, pods int, b registry.DayBudget, prices *budget.Prices) *fleet {
	f := &fleet{T: t, store: &counting{Store: memory.New(memory.Options{})}, notes: new(notes)}
	f.set(b)
	for range pods {
		f.pods = append(f.pods, budget.New(budget.Config{Store: f.store, Audit: f.notes, Prices: prices}))
	}
	synctest.Wait()
	return f
}

func (f *fleet) set(b registry.DayBudget) {
	f.Helper()
	_, err := f.store.ChangeTenant(f.Context(), ann.Tenant, func(t *registry.Tenant) error { t.Budget = b; return nil })
	if err != nil {
		f.Fatal(err)
	}
}

func (f *fleet) close() {
	for _, p := range f.pods {
		if err := p.Close(context.Background()); err != nil {
			f.Error(err)
		}
	}
}

// call calls until a pod refuses, at most so many times, and returns how many calls passed.
func (f *fleet) call(pod int, who share.Owner, most int) (passed int, refusal *registry.Error) {
	f.Helper()
	for range most {
		if err := f.pods[pod].Call(f.Context(), who); err != nil {
			return passed, registry.AsError(err)
		}
		passed++
	}
	return passed, nil
}

// What one pod has spent, another refuses at once, and no call too many passes.
func TestABudgetHoldsOnAllPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2, registry.DayBudget{Tenant: registry.Spent{Calls: 10}}, nil)
		defer f.close()
		first, _ := f.call(0, ann, 6)
		second, refused := f.call(1, ben, 100)
		if first != 6 || second != 4 || refused == nil || refused.Code != registry.CodeBudgetExceeded ||
			refused.RetryAfter <= 0 || refused.Rule != "budget.tenant.calls" || refused.Retryable() {
			t.Errorf("%d and %d calls, %+v", first, second, refused)
		}
		if passed, _ := f.call(0, ben, 100); passed != 0 {
			t.Errorf("%d more", passed)
		}
	})
}

// Most calls ask no store, and over many pods the overshoot is a hundredth per pod at most.
func TestMostCallsAskNoStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit, pods = 100_000, 4
		f := newFleet(t, pods, registry.DayBudget{Tenant: registry.Spent{Calls: limit}}, nil)
		defer f.close()
		for i := range pods { // all know the sum of the morning
			f.call(i, ann, 1)
		}
		before := f.store.adds.Load()
		sum := pods
		for i := range pods { // in turn, and none reports to the others in between
			passed, _ := f.call(i, ann, 2*limit)
			sum += passed
		}
		if over := sum - limit; over < 0 || over > pods*limit/100 {
			t.Errorf("%d calls passed", sum)
		}
		if asked := f.store.adds.Load() - before; asked > 3000 {
			t.Errorf("%d calls asked the store %d times", sum, asked)
		}
	})
}

// An identity that has spent its budget does not stop others, and a new connection of it has no new budget.
func TestAnIdentityHasABudgetOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1, registry.DayBudget{Identity: registry.Spent{Calls: 5}}, nil)
		passed, refused := f.call(0, ann, 100)
		if passed != 5 || refused.Rule != "budget.identity.calls" {
			t.Errorf("%d, %+v", passed, refused)
		}
		if passed, _ := f.call(0, ben, 100); passed != 5 {
			t.Errorf("another identity: %d", passed)
		}
		f.close()
		f.pods[0] = budget.New(budget.Config{Store: f.store}) // a pod that has just started
		defer f.close()
		if passed, _ := f.call(0, ann, 100); passed != 0 {
			t.Errorf("after a restart: %d", passed)
		}
		if passed, _ := f.call(0, share.Owner{Tenant: "globex", Identity: "user:ann"}, 100); passed != 100 {
			t.Errorf("a tenant without a budget: %d", passed)
		}
	})
}

// At midnight UTC by the store's clock, budgets begin anew.
func TestABudgetBeginsAnewEachDay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2, registry.DayBudget{Tenant: registry.Spent{Calls: 5}, Identity: registry.Spent{Calls: 3}},
			nil)
		defer f.close()
		f.call(0, ann, 100)
		passed, refused := f.call(1, ben, 100)
		if passed != 2 {
			t.Fatalf("%d passed", passed)
		}
		if passed, _ := f.call(1, ben, 1); passed != 0 {
			t.Fatal("the budget is not spent")
		}
		time.Sleep(refused.RetryAfter - time.Second)
		if passed, _ := f.call(1, ben, 1); passed != 0 {
			t.Error("a second before midnight a call passes")
		}
		time.Sleep(2 * time.Second)
		if passed, _ := f.call(0, ann, 100); passed != 3 {
			t.Errorf("the next day: %d", passed)
		}
		if passed, _ := f.call(1, ben, 100); passed != 2 {
			t.Errorf("the next day, another identity: %d", passed)
		}
	})
}

// Bytes are known when a call has ended: then they stop further calls, on other pods within a second.
func TestBytesStopCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2, registry.DayBudget{Tenant: registry.Spent{Bytes: 1000}}, nil)
		defer f.close()
		f.call(0, ann, 1)
		f.call(1, ann, 1)
		f.pods[0].CallEnded(ann, 1100)
		if _, refused := f.call(0, ben, 1); refused == nil || refused.Rule != "budget.tenant.bytes" {
			t.Errorf("%+v", refused)
		}
		time.Sleep(2 * time.Second)
		f.call(1, ann, 1) // this pod has not heard of it
		time.Sleep(2 * time.Second)
		if _, refused := f.call(1, ann, 1); refused == nil {
			t.Error("another pod lets calls pass")
		}
		if err := f.pods[0].Model(t.Context(), ann); err != nil {
			t.Errorf("a model has not spent its budget: %v", err)
		}
	})
}

// Tokens and money stop requests to models, and not calls.
func TestMoneyStopsModels(t *testing.T) {
	prices := openPrices(t, "version: 1\nmodels: {big: {input: 3000000, output: 15000000}}\n")
	defer prices.Close()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1, registry.DayBudget{Identity: registry.Spent{Tokens: 1_000_000, Micros: 10_000}}, prices)
		defer f.close()
		p := f.pods[0]
		for i := range 3 {
			if err := p.Model(t.Context(), ann); err != nil {
				t.Fatal(i, err)
			}
			p.ModelAnswered(ann, "big", 1000, 100) // 4500 millionths
		}
		err := p.Model(t.Context(), ann)
		if !errors.Is(err, registry.CodeBudgetExceeded) || registry.AsError(err).Rule != "budget.identity.money" {
			t.Error(err)
		}
		if err := p.Model(t.Context(), ben); err != nil {
			t.Error(err)
		}
		if passed, _ := f.call(0, ann, 1); passed != 1 {
			t.Error("calls cost no money")
		}
		standing, err := p.Of(t.Context(), auth.Identity{Tenant: "acme", User: "ann"})
		if err != nil || len(standing) != 1 || standing[0].Spent.Micros != 13_500 || standing[0].Spent.Tokens != 3300 ||
			standing[0].Per != "identity" {
			t.Errorf("%+v, %v", standing, err)
		}
		if n := p.Stats().Refused["money"]; n != 1 {
			t.Errorf("%d refused", n)
		}
	})
}

// Each limit is warned of once in the fleet, and reported once when it is spent.
func TestTheFleetWarnsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 3, registry.DayBudget{Tenant: registry.Spent{Calls: 30}, WarnPercent: 50}, nil)
		for n := range 60 {
			f.call(n%3, ann, 1)
			time.Sleep(100 * time.Millisecond)
		}
		f.close()
		want := []string{"budget.warning: the tenant has spent 50 % of the day's budget of 30 calls",
			"budget.spent: the tenant has spent the day's budget of 30 calls"}
		if !slices.Equal(f.notes.list, want) {
			t.Errorf("%q", f.notes.list)
		}
	})
}

// A new budget is in force on all pods soon, and what was spent before counts.
func TestABudgetChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2, registry.DayBudget{}, nil)
		defer f.close()
		f.call(0, ann, 50)
		time.Sleep(10 * time.Second)
		f.set(registry.DayBudget{Tenant: registry.Spent{Calls: 60}})
		time.Sleep(2 * time.Second)
		if passed, _ := f.call(1, ben, 100); passed != 10 {
			t.Errorf("%d", passed)
		}
		f.set(registry.DayBudget{})
		time.Sleep(2 * time.Second)
		if passed, _ := f.call(1, ben, 100); passed != 100 {
			t.Errorf("without a budget: %d", passed)
		}
	})
}

// While the store is away, what has a budget, or may have one, is refused when the store must be asked, or passes if
// that is set. What is not written is written later.
func TestTheStoreIsAway(t *testing.T) {
	for _, open := range []bool{false, true} {
		t.Run(fmt.Sprint("open ", open), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, 0, registry.DayBudget{Tenant: registry.Spent{Calls: 50}}, nil)
				f.pods = append(f.pods, budget.New(budget.Config{Store: f.store, Open: open}))
				synctest.Wait()
				f.call(0, ann, 10)
				f.store.outage.Set(true)
				passed, refused := f.call(0, ann, 10)
				unknown, _ := f.call(0, share.Owner{Tenant: "unknown", Identity: "user:ann"}, 10)
				if unknown != passed {
					t.Errorf("%d calls of a tenant whose budget was not read passed", unknown)
				}
				if open && passed != 10 || !open && (passed > 0 || refused.Code != registry.CodeStoreUnavailable) {
					t.Errorf("%d passed, %v", passed, refused)
				}
				f.store.outage.Set(false)
				f.close()
				day := registry.UsageDay(time.Now())
				sums, err := f.store.ReadSpent(t.Context(), registry.SpentDay{Tenant: "acme", Day: day},
					registry.SpentDay{Tenant: "unknown", Day: day})
				if err != nil || sums[0].Calls != int64(10+passed) || sums[1].Calls != int64(unknown) {
					t.Errorf("%+v, %v", sums, err)
				}
			})
		})
	}
}

// Tenants are listed when their credentials are used.
func TestTenantsAreListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2, registry.DayBudget{}, nil)
		defer f.close()
		for i := range 1000 {
			f.pods[i%2].Seen(fmt.Sprint("t", i%300))
		}
		time.Sleep(2 * time.Second)
		page, next, err := f.store.Tenants(t.Context(), "", 1000)
		if err != nil || len(page) != 301 || next != "" {
			t.Errorf("%d listed, %v", len(page), err)
		}
	})
}
