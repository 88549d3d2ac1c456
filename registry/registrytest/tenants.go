package registrytest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/farhand/farhand/registry"
)

// change changes a tenant.
func (f *fixture) changeTenant(name string, change func(*registry.Tenant) error) registry.Tenant {
	f.Helper()
	t, err := f.store.ChangeTenant(f.ctx, name, change)
	f.must(err)
	return t
}

// allTenants reads the list, page by page, and returns the names with a prefix.
func (f *fixture) allTenants(prefix string, limit int) (names []string, pages int) {
	f.Helper()
	for after := ""; ; pages++ {
		page, next, err := f.store.Tenants(f.ctx, after, limit)
		f.must(err)
		if len(page) > limit {
			f.Fatalf("a page of %d", len(page))
		}
		for _, t := range page {
			if strings.HasPrefix(t.Name, prefix) {
				names = append(names, t.Name)
			}
		}
		if next == "" {
			return names, pages + 1
		}
		after = next
	}
}

var tenantTests = []subtest{
	{name: "tenants are listed once, by name, and page by page", run: func(f *fixture) {
		var want []string
		for i := range 25 {
			want = append(want, fmt.Sprintf("%s-%02d", f.tenant, i))
		}
		f.must(f.store.NoteTenants(f.ctx, append(slices.Clone(want), want...)...))
		f.must(f.store.NoteTenants(f.ctx, want[3]))
		for _, limit := range []int{1, 2, 7, 1000} {
			if names, _ := f.allTenants(f.tenant+"-", limit); !slices.Equal(names, want) {
				f.Errorf("pages of %d: %v", limit, names)
			}
		}
	}},
	{name: "a list that grows between two pages loses and repeats no tenant", run: func(f *fixture) {
		var want []string
		for i := range 12 {
			want = append(want, fmt.Sprintf("%s-m%02d", f.tenant, i))
		}
		f.must(f.store.NoteTenants(f.ctx, want...))
		var got []string
		after := ""
		for round := 0; ; round++ {
			page, next, err := f.store.Tenants(f.ctx, after, 3)
			f.must(err)
			for _, t := range page {
				if strings.HasPrefix(t.Name, f.tenant+"-m") {
					got = append(got, t.Name)
				}
			}
			if next == "" {
				break
			}
			after = next
			f.must(f.store.NoteTenants(f.ctx, fmt.Sprintf("%s-a%02d", f.tenant, round%20))) // before all of them
		}
		if !slices.Equal(got, want) {
			f.Errorf("%v", got)
		}
	}},
	{name: "a used tenant stays used, and its budget too", run: func(f *fixture) {
		made := f.changeTenant(f.tenant, func(*registry.Tenant) error { return nil })
		if made.Used || made.Since.IsZero() || made.Name != f.tenant {
			f.Errorf("made: %+v", made)
		}
		f.must(f.store.NoteTenants(f.ctx, f.tenant))
		b := registry.DayBudget{Tenant: registry.Spent{Calls: 10}, Identity: registry.Spent{Micros: 5}, WarnPercent: 50}
		f.changeTenant(f.tenant, func(t *registry.Tenant) error { t.Budget = b; return nil })
		f.must(f.store.NoteTenants(f.ctx, f.tenant))
		list, err := f.store.TenantsOf(f.ctx, f.tenant, f.tenant+"x")
		f.must(err)
		if len(list) != 2 || !list[0].Used || list[0].Budget != b || list[1].Name != f.tenant+"x" ||
			list[1].Used || !list[1].Since.IsZero() {
			f.Errorf("%+v", list)
		}
		if _, err := f.store.ChangeTenant(f.ctx, "not/valid", nil); !errors.Is(err, registry.CodeInvalidRequest) {
			f.Errorf("a name that is not valid: %v", err)
		}
	}},
	{name: "the version changes with each budget", run: func(f *fixture) {
		versions := make(map[string]bool)
		for i := range 3 {
			f.changeTenant(f.tenant, func(t *registry.Tenant) error {
				t.Budget.Tenant.Calls = int64(i +
					1)
				return nil
			})
			version, err := f.store.BudgetsVersion(f.ctx)
			f.must(err)
			versions[version] = true
		}
		if len(versions) != 3 || versions[""] {
			f.Errorf("%v", versions)
		}
	}},
	{name: "sessions are counted", run: func(f *fixture) {
		pod := f.pod("a")
		for i := range 3 {
			_, err := f.store.Claim(f.ctx, f.session(fmt.Sprint("s", i), func(s *registry.Session) { s.Pod = pod }))
			f.must(err)
		}
		counts, err := f.store.CountSessions(f.ctx, f.tenant, f.tenant+"x")
		f.must(err)
		if !slices.Equal(counts, []int64{3, 0}) {
			f.Errorf("%v", counts)
		}
	}},
}

// charge makes charges of the fixture's tenant.
func (f *fixture) charge(take bool, charges ...registry.Charge) registry.Charged {
	f.Helper()
	done := f.store.AddSpent(f.ctx, registry.TenantCharge{Tenant: f.tenant, Charges: charges, Take: take})
	f.must(done[0].Error)
	return done[0]
}

var spentTests = []subtest{
	{name: "sums add up by tenant and identity", run: func(f *fixture) {
		more := registry.Spent{Calls: 1, Bytes: 1 << 40, Tokens: 3, Micros: 4}
		for range 2 {
			f.charge(false, registry.Charge{Spent: more}, registry.Charge{Identity: "user:a b\x00ü", Spent: more})
		}
		done := f.charge(false, registry.Charge{Spent: registry.Spent{Calls: -1}},
			registry.Charge{Identity: "user:a b\x00ü"})
		two := more.Plus(more)
		if done.Sums[0] != two.Plus(registry.Spent{Calls: -1}) || done.Sums[1] != two || done.Full {
			f.Errorf("%+v", done)
		}
		if done.Left <= 0 || done.Left > 24*time.Hour {
			f.Errorf("the day ends in %v", done.Left)
		}
		read, err := f.store.ReadSpent(f.ctx, registry.SpentDay{Tenant: f.tenant, Day: done.Day},
			registry.SpentDay{Tenant: f.tenant, Day: "2020-01-01"},
			registry.SpentDay{Tenant: f.tenant + "x", Day: done.Day})
		f.must(err)
		if read[0] != done.Sums[0] || read[1] != (registry.Spent{}) || read[2] != (registry.Spent{}) {
			f.Errorf("%+v", read)
		}
	}},
	{name: "calls are taken from all charges or none", run: func(f *fixture) {
		all, ann := registry.Charge{MaxCalls: 3}, registry.Charge{Identity: "user:ann", MaxCalls: 2}
		for range 2 {
			if done := f.charge(true, all, ann); done.Full {
				f.Errorf("%+v", done)
			}
		}
		ann.Bytes = 7
		done := f.charge(true, all, ann)
		if !done.Full || done.Sums[0].Calls != 2 || done.Sums[1] != (registry.Spent{Calls: 2, Bytes: 7}) {
			f.Errorf("%+v", done)
		}
		ben := registry.Charge{Identity: "user:ben", MaxCalls: 2}
		if done := f.charge(true, all, ben); done.Full || done.Sums[1].Calls != 1 {
			f.Errorf("%+v", done)
		}
		if done := f.charge(true, all); !done.Full {
			f.Errorf("%+v", done)
		}
	}},
	{name: "many take at once, and none too many", run: func(f *fixture) {
		var taken [8]int
		together(len(taken), func(i int) {
			for range 20 {
				if !f.charge(true, registry.Charge{MaxCalls: 100}).Full {
					taken[i]++
				}
			}
		})
		sum := 0
		for _, n := range taken {
			sum += n
		}
		if sum != 100 {
			f.Errorf("%d taken", sum)
		}
	}},
	{name: "many tenants at once", run: func(f *fixture) {
		var charges []registry.TenantCharge
		for i := range 300 {
			charges = append(charges, registry.TenantCharge{
				Tenant:  fmt.Sprint(f.tenant, "-", i),
				Charges: []registry.Charge{{Spent: registry.Spent{Tokens: int64(i)}}},
			})
		}
		for i, done := range f.store.AddSpent(f.ctx, charges...) {
			if done.Error != nil || done.Sums[0].Tokens != int64(i) {
				f.Fatalf("%d: %+v", i, done)
			}
		}
	}},
	{name: "identities beyond the cap share a sum", limits: registry.Limits{UsageRows: 20}, run: func(f *fixture) {
		one := registry.Spent{Calls: 1}
		var charges []registry.Charge
		for i := range 20 {
			charges = append(charges, registry.Charge{Identity: fmt.Sprint("user:", i), Spent: one})
		}
		f.charge(false, charges...)
		done := f.charge(false, registry.Charge{Identity: "user:x", Spent: one},
			registry.Charge{Identity: "user:y", Spent: one}, registry.Charge{Identity: "user:7", Spent: one})
		if done.Sums[1].Calls != 2 || done.Sums[2].Calls != 2 {
			f.Errorf("%+v", done)
		}
	}},
}
