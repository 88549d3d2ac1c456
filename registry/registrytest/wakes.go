package registrytest

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/farhand/farhand/registry"
)

// wake is a registration of a device.
func (f *fixture) wake(deviceID, user string) registry.WakeRecord {
	return registry.WakeRecord{
		Tenant: f.tenant, DeviceID: deviceID, User: user,
		Wake: registry.Wake{
			Kind: registry.WakeWebhook, URL: "https://example.com/" + deviceID, MinIntervalMS: 1000,
			Quiet: &registry.QuietHours{From: "22:00", To: "07:00", Zone: "Europe/Vienna"},
		},
	}
}

// plan sets the next push of a device.
func (f *fixture) plan(deviceID string, next time.Time) {
	f.Helper()
	f.must(f.store.PlanWake(f.ctx, f.tenant, deviceID, func(r registry.WakeRecord) (registry.WakePlan, bool) {
		r.Plan.Next = next
		return r.Plan, true
	}))
}

// isDue reports whether a device of the fixture's tenant is to be woken.
func (f *fixture) isDue(deviceID string) bool {
	f.Helper()
	due, err := f.store.DueWakes(f.ctx, 10_000)
	f.must(err)
	return slices.Contains(due, registry.WakeRef{Tenant: f.tenant, DeviceID: deviceID})
}

var wakeTests = []subtest{
	{name: "a registration comes back, is replaced and dropped", run: func(f *fixture) {
		f.wantCode(errOf(f.store.WakeOf(f.ctx, f.tenant, "d/1 ü")), registry.CodeNotFound)
		r := f.wake("d/1 ü", "ann")
		f.must(f.store.SetWake(f.ctx, r))
		f.plan(r.DeviceID, time.Now().Add(time.Hour))
		r.Wake.MinIntervalMS = 5000
		f.must(f.store.SetWake(f.ctx, r))
		got, err := f.store.WakeOf(f.ctx, f.tenant, r.DeviceID)
		f.must(err)
		if !got.Wake.Equal(r.Wake) || got.User != "ann" || got.DeviceID != r.DeviceID || got.Plan.Next.IsZero() ||
			time.Since(got.SetAt).Abs() > time.Minute {
			f.Errorf("read %+v", got)
		}
		for _, want := range []bool{true, false} {
			if dropped, err := f.store.DropWake(f.ctx, f.tenant, r.DeviceID); err != nil || dropped != want {
				f.Errorf("dropped %v, %v, want %v", dropped, err, want)
			}
		}
		f.wantCode(f.store.PlanWake(f.ctx, f.tenant, r.DeviceID, nil), registry.CodeNotFound)
	}},
	{name: "another user does not take over a device", run: func(f *fixture) {
		f.must(f.store.SetWake(f.ctx, f.wake("d", "ann")))
		f.wantCode(f.store.SetWake(f.ctx, f.wake("d", "ben")), registry.CodeForbidden)
		f.wantCode(f.store.SetWake(f.ctx, f.wake("d", "")), registry.CodeForbidden)
	}},
	{name: "a device is due when its time comes, earlier if that is planned", run: func(f *fixture) {
		f.must(f.store.SetWake(f.ctx, f.wake("d", "ann")))
		f.plan("d", time.Now().Add(time.Hour))
		if f.isDue("d") {
			f.Error("due an hour early")
		}
		f.plan("d", time.Now().Add(-time.Second))
		f.eventually("the device is due", func() bool { return f.isDue("d") })
		f.plan("d", time.Time{})
		if f.isDue("d") {
			f.Error("due without a plan")
		}
		f.plan("d", time.Now().Add(-time.Second))
		_, err := f.store.DropWake(f.ctx, f.tenant, "d")
		f.must(err)
		if f.isDue("d") {
			f.Error("due without a registration")
		}
	}},
	{name: "of pods that plan at the same time, one wins", run: func(f *fixture) {
		f.must(f.store.SetWake(f.ctx, f.wake("d", "ann")))
		var won atomic.Int64
		var all sync.WaitGroup
		next := time.Now().Add(time.Hour)
		for range 8 {
			all.Go(func() {
				mine := false
				err := f.store.PlanWake(f.ctx, f.tenant, "d", func(r registry.WakeRecord) (registry.WakePlan, bool) {
					mine = r.Plan.Next.IsZero()
					r.Plan.Next = next
					return r.Plan, mine
				})
				if err != nil {
					f.Error(err)
				}
				if mine {
					won.Add(1)
				}
			})
		}
		all.Wait()
		if won.Load() != 1 {
			f.Errorf("%d pods have planned", won.Load())
		}
	}},
	{name: "a user has a limit of registrations", run: func(f *fixture) {
		for i := range registry.MaxWakesOfUser {
			f.must(f.store.SetWake(f.ctx, f.wake(fmt.Sprint("d", i), "ann")))
		}
		f.wantCode(f.store.SetWake(f.ctx, f.wake("more", "ann")), registry.CodeRateLimited)
		f.must(f.store.SetWake(f.ctx, f.wake("more", "ben")))
		f.must(f.store.SetWake(f.ctx, f.wake("d0", "ann"))) // that is there
	}},
}
