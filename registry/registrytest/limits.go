package registrytest

import (
	"strings"
	"sync/atomic"
	"time"

	"github.com/farhand/farhand/registry"
)

var limitTests = []subtest{
	{name: "exactly the limit, whoever asks at once", run: func(f *fixture) {
		w := registry.Window{Name: "a", Limit: 60, Period: time.Minute}
		var passed atomic.Int64
		together(8, func(int) {
			for range 50 {
				if wait, _ := f.take(w); wait == 0 {
					passed.Add(1)
				} else if wait > time.Minute {
					f.Errorf("a wait of %v", wait)
				}
			}
		})
		if n := passed.Load(); n != 60 {
			f.Errorf("%d of 60", n)
		}
	}},
	{name: "the window slides", run: func(f *fixture) {
		w := registry.Window{Name: "a", Limit: 5, Period: 200 * time.Millisecond}
		var times []time.Time // earliest time of each charge
		for deadline := time.Now().Add(1500 * time.Millisecond); time.Now().Before(deadline); {
			begin := time.Now()
			wait, _ := f.take(w)
			if wait == 0 {
				times = append(times, begin)
				continue
			}
			f.pause(wait)
			if again, _ := f.take(w); again == 0 {
				times = append(times, time.Now())
			} else if again > wait {
				f.Errorf("after %v another %v", wait, again)
			}
		}
		if len(times) < 10 {
			f.Errorf("%d charges", len(times))
		}
	}},
	{name: "room is there when it was said to be", run: func(f *fixture) {
		w := registry.Window{Name: "a", Limit: 1, Period: 2 * time.Second}
		f.take(w)
		for range 3 {
			wait, _ := f.take(w)
			if wait <= 0 || wait > w.Period {
				f.Fatalf("a wait of %v", wait)
			}
			f.pause(wait)
			if wait, _ = f.take(w); wait != 0 {
				f.Errorf("no room after the wait: %v more", wait)
			}
		}
	}},
	{name: "all windows or none", run: func(f *fixture) {
		small := registry.Window{Name: "small", Limit: 2, Period: time.Minute}
		large := registry.Window{Name: "large", Limit: 3, Period: time.Hour}
		f.wantTaken(large, small)
		f.wantTaken(small, large)
		if wait, full := f.take(large, small); wait == 0 || full != 1 {
			f.Errorf("wait %v, full %d", wait, full)
		}
		f.wantTaken(large) // the refused call did not count
		if wait, full := f.take(small, large); wait < 50*time.Minute || full != 1 {
			f.Errorf("wait %v, full %d: the longest counts", wait, full)
		}
	}},
	{name: "a limit that changes", run: func(f *fixture) {
		of := func(limit int) registry.Window { return registry.Window{Name: "a", Limit: limit, Period: time.Minute} }
		for range 10 {
			f.wantTaken(of(10))
		}
		f.wantFull(of(10))
		f.wantFull(of(5))
		for range 5 {
			f.wantTaken(of(15))
		}
		f.wantFull(of(15))
		f.wantFull(of(1))
		f.wantTaken(registry.Window{Name: "a", Limit: 1, Period: time.Second}) // another period has its own count
	}},
	{name: "names are told apart, tenants too", run: func(f *fixture) {
		for _, name := range []string{
			"", "a", "a/b", "a}b", "{", "a\x00", "A", "ä", strings.Repeat("n", 100_000), strings.Repeat("n", 100_001),
		} {
			w := registry.Window{Name: name, Limit: 1, Period: time.Minute}
			f.wantTaken(w)
			f.wantFull(w)
			if wait, _, err := f.store.Take(f.ctx, f.tenant+"x", []registry.Window{w}); wait != 0 || err != nil {
				f.Errorf("%.20q of another tenant: %v, %v", name, wait, err)
			}
		}
	}},
	{name: "nothing to charge", run: func(f *fixture) { f.wantTaken() }},
	{name: "the largest window", run: func(f *fixture) {
		w := registry.Window{Name: "a", Limit: registry.MaxWindowLimit, Period: time.Minute}
		together(8, func(int) {
			for range registry.MaxWindowLimit / 8 {
				f.wantTaken(w)
			}
		})
		f.wantFull(w)
	}},
	{name: "impossible windows are refused", run: func(f *fixture) {
		good := registry.Window{Name: "a", Limit: 1, Period: time.Minute}
		for _, windows := range [][]registry.Window{
			{{Name: "a", Limit: 0, Period: time.Minute}}, {{Name: "a", Limit: 1}}, {good, good},
			{{Name: "a", Limit: registry.MaxWindowLimit + 1, Period: time.Minute}},
			{{Name: "a", Limit: 1, Period: registry.MaxWindowPeriod + 1}},
			make([]registry.Window, registry.MaxWindows+1),
		} {
			_, _, err := f.store.Take(f.ctx, f.tenant, windows)
			f.wantCode(err, registry.CodeInvalidRequest)
		}
		f.wantTaken(good)
	}},
}

func (f *fixture) take(windows ...registry.Window) (time.Duration, int) {
	f.Helper()
	wait, full, err := f.store.Take(f.ctx, f.tenant, windows)
	if err != nil {
		f.Error(err)
	}
	return wait, full
}

func (f *fixture) wantTaken(windows ...registry.Window) {
	f.Helper()
	if wait, full := f.take(windows...); wait != 0 {
		f.Errorf("no room for %v in window %d", wait, full)
	}
}

func (f *fixture) wantFull(w registry.Window) {
	f.Helper()
	if wait, _ := f.take(w); wait <= 0 || wait > w.Period {
		f.Errorf("%d in %v: a wait of %v", w.Limit, w.Period, wait)
	}
}

// pause waits for the store's wait time, and a little longer, because the two clocks differ.
func (f *fixture) pause(d time.Duration) {
	timer := time.NewTimer(d + 2*time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-f.ctx.Done():
	}
}
