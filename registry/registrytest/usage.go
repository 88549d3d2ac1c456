package registrytest

import (
	"fmt"
	"slices"
	"strconv"
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
