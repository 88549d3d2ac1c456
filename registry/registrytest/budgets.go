package registrytest

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/farhand/farhand/registry"
)

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
