package registrytest

import (
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/farhand/farhand/registry"
)

var usageTests = []subtest{
	{name: "rows add up", run: func(f *fixture) {
		u := registry.Usage{
			Calls: 1, Failures: 2, Milliseconds: 3, BytesIn: 4, BytesOut: 1 << 40, InputTokens: 6, OutputTokens: 7,
		}
		row := func(user, tool string) registry.UsageRow {
			return registry.UsageRow{Tenant: f.tenant, Day: "2026-11-22", User: user, Tool: tool, Usage: u}
		}
		f.must(f.store.AddUsage(f.ctx, []registry.UsageRow{row("ann", "t"), row("ann", "t"), row("", "t")}))
		f.must(f.store.AddUsage(f.ctx, []registry.UsageRow{row("ann", "t"), row("ü \x00{}", registry.UsageModels)}))
		three := u.Plus(u).Plus(u)
		f.wantUsage("2026-11-22", fmt.Sprint(" t ", u), fmt.Sprint("ann t ", three),
			fmt.Sprint("ü \x00{} (models) ", u))
		f.wantUsage("2026-11-23")
	}},
	{name: "keys without a user have rows of their own", run: func(f *fixture) {
		row := registry.UsageRow{Tenant: f.tenant, Day: "2026-11-22", Tool: "t", Usage: registry.Usage{Calls: 1}}
		keyed := row
		keyed.Key = "ci (key:1)"
		f.must(f.store.AddUsage(f.ctx, []registry.UsageRow{keyed, row, keyed}))
		rows, err := f.store.ReadUsage(f.ctx, f.tenant, "2026-11-22")
		f.must(err)
		calls := make(map[string]int64)
		for _, r := range rows {
			calls[r.User+"|"+r.Key+"|"+r.Tool] = r.Calls
		}
		if len(rows) != 2 || calls["|ci (key:1)|t"] != 2 || calls["||t"] != 1 {
			f.Errorf("%+v", rows)
		}
	}},
	{name: "days and tenants have rows of their own", run: func(f *fixture) {
		u := registry.Usage{Calls: 1}
		f.must(f.store.AddUsage(f.ctx, []registry.UsageRow{
			{Tenant: f.tenant, Day: "2026-11-22", Usage: u}, {Tenant: f.tenant, Day: "2026-11-23", Usage: u},
			{Tenant: f.tenant + "x", Day: "2026-11-22", Usage: u},
		}))
		f.wantUsage("2026-11-22", fmt.Sprint("  ", u))
		f.wantUsage("2026-11-23", fmt.Sprint("  ", u))
	}},
	{name: "rows are capped, and nothing is lost", limits: registry.Limits{UsageRows: 50}, run: func(f *fixture) {
		for from := 0; from < 1000; from += 100 {
			var rows []registry.UsageRow
			for i := from; i < from+100; i++ {
				rows = append(rows, registry.UsageRow{
					Tenant: f.tenant, Day: "2026-11-22", User: strconv.Itoa(i), Usage: registry.Usage{Calls: 1},
				})
			}
			f.must(f.store.AddUsage(f.ctx, rows))
		}
		rows, err := f.store.ReadUsage(f.ctx, f.tenant, "2026-11-22")
		f.must(err)
		var calls, other int64
		for _, r := range rows {
			calls += r.Calls
			if r.User == registry.UsageOther && r.Tool == registry.UsageOther {
				other = r.Calls
			}
		}
		if len(rows) != 51 || calls != 1000 || other != 950 {
			f.Errorf("%d rows, %d calls, %d of others", len(rows), calls, other)
		}
	}},
	{name: "many add at once", run: func(f *fixture) {
		together(8, func(int) {
			for range 50 {
				f.must(f.store.AddUsage(f.ctx, []registry.UsageRow{
					{Tenant: f.tenant, Day: "2026-11-22", Usage: registry.Usage{Calls: 1, BytesIn: 10}},
				}))
			}
		})
		f.wantUsage("2026-11-22", fmt.Sprint("  ", registry.Usage{Calls: 400, BytesIn: 4000}))
	}},
	{name: "many rows", run: func(f *fixture) {
		var rows []registry.UsageRow
		for i := range 3000 {
			rows = append(rows, registry.UsageRow{
				Tenant: f.tenant, Day: "2026-11-22", Tool: strconv.Itoa(i), Usage: registry.Usage{Calls: 1},
			})
		}
		f.must(f.store.AddUsage(f.ctx, rows))
		got, err := f.store.ReadUsage(f.ctx, f.tenant, "2026-11-22")
		f.must(err)
		if len(got) != 3000 {
			f.Errorf("%d rows", len(got))
		}
	}},
	{name: "a day is forgotten", limits: registry.Limits{UsageTTL: 300 * time.Millisecond}, run: func(f *fixture) {
		f.must(f.store.AddUsage(f.ctx, []registry.UsageRow{{Tenant: f.tenant, Day: "2026-11-22"}}))
		f.eventually("the day is gone", func() bool {
			rows, err := f.store.ReadUsage(f.ctx, f.tenant, "2026-11-22")
			return err == nil && len(rows) == 0
		})
	}},
}

// wantUsage checks the rows of a day by users, tools and numbers.
func (f *fixture) wantUsage(day string, want ...string) {
	f.Helper()
	rows, err := f.store.ReadUsage(f.ctx, f.tenant, day)
	f.must(err)
	var got []string
	for _, r := range rows {
		if r.Tenant != f.tenant || r.Day != day {
			f.Errorf("a row of %s, %s", r.Tenant, r.Day)
		}
		got = append(got, fmt.Sprint(r.User, " ", r.Tool, " ", r.Usage))
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		f.Errorf("%s: got %q, want %q", day, got, want)
	}
}

var budgetTests = []subtest{
	{name: "half of a budget is there at once", run: func(f *fixture) {
		b := registry.Budget{Bytes: 2000, Over: time.Hour}
		for _, n := range []int64{400, 600} {
			if wait := f.spend("a", n, b); wait != 0 {
				f.Errorf("%d bytes: wait %v", n, wait)
			}
		}
		if wait := f.spend("a", 500, b); wait < 29*time.Minute || wait > 31*time.Minute {
			f.Errorf("what is spent is back in %v, want half an hour", wait)
		}
		if wait := f.spend("a", 1, b); wait < time.Second || wait > 10*time.Second {
			f.Errorf("a byte is back in %v, want 3.6 s", wait)
		}
		if wait := f.spend("b", 1000, b); wait != 0 {
			f.Errorf("another budget: wait %v", wait)
		}
		if wait, err := f.store.Spend(f.ctx, f.tenant+"x", "a", 1000, b); wait != 0 || err != nil {
			f.Errorf("the budget of another tenant: %v, %v", wait, err)
		}
	}},
	{name: "a budget fills up again", run: func(f *fixture) {
		b := registry.Budget{Bytes: 2_000_000, Over: 2 * time.Second}
		if wait := f.spend("a", 1_000_000, b); wait != 0 {
			f.Fatalf("wait %v", wait)
		}
		f.eventually("the budget is there again", func() bool { return f.spend("a", 900_000, b) == 0 })
		f.spend("a", 1_000_000, b)
		f.eventually("a full budget is enough for everything", func() bool { return f.spend("a", 1<<40, b) == 0 })
	}},
	{name: "what is overdrawn comes back first", run: func(f *fixture) {
		b := registry.Budget{Bytes: 2000, Over: time.Hour}
		for range 2 { // first from the budget, then from nothing
			if err := f.store.Overdraw(f.ctx, f.tenant, "a", 750, b); err != nil {
				f.Fatal(err)
			}
		}
		if wait := f.spend("a", 500, b); wait < 59*time.Minute || wait > 61*time.Minute {
			f.Errorf("500 bytes beside as many that are owed are there in %v, want an hour", wait)
		}
		for range 5 {
			if err := f.store.Overdraw(f.ctx, f.tenant, "a", 1<<40, b); err != nil {
				f.Fatal(err)
			}
		}
		if wait := f.spend("a", 1000, b); wait < 119*time.Minute || wait > 121*time.Minute {
			f.Errorf("a full budget is there in %v, want two hours: it owes no more than it has when full", wait)
		}
	}},
	{name: "of a budget that many spend nothing is spent twice", run: func(f *fixture) {
		b := registry.Budget{Bytes: 20_000, Over: time.Hour}
		var wg sync.WaitGroup
		var spent atomic.Int64
		for range racers {
			wg.Go(func() {
				for range 10 {
					if f.spend("a", 100, b) == 0 {
						spent.Add(100)
					}
				}
			})
		}
		wg.Wait()
		if n := spent.Load(); n < 10_000 || n > 10_100 {
			f.Errorf("%d bytes of 10,000 were spent", n)
		}
	}},
}

func (f *fixture) spend(name string, n int64, b registry.Budget) time.Duration {
	f.Helper()
	wait, err := f.store.Spend(f.ctx, f.tenant, name, n, b)
	if err != nil {
		f.Errorf("spend: %v", err)
	}
	return wait
}
