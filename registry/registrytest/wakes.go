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

// wakeOf names a device of ann.
func (f *fixture) wakeOf(deviceID string) registry.WakeRef {
	return registry.WakeRef{Tenant: f.tenant, User: "ann", DeviceID: deviceID}
}

// plan sets the next push of a device of ann.
func (f *fixture) plan(deviceID string, next time.Time) {
	f.Helper()
	f.planOf(f.wakeOf(deviceID), next)
}

func (f *fixture) planOf(ref registry.WakeRef, next time.Time) {
	f.Helper()
	f.must(f.store.PlanWake(f.ctx, ref, func(r registry.WakeRecord) (registry.WakePlan, bool) {
		r.Plan.Next = next
		return r.Plan, true
	}))
}

func (f *fixture) dueWakes(limit int) []registry.WakeRef {
	f.Helper()
	due, err := f.store.DueWakes(f.ctx, limit)
	f.must(err)
	return due
}

// dropWake forgets what users registered for the device d.
func (f *fixture) dropWake(users ...string) {
	f.Helper()
	for _, user := range users {
		if dropped, err := f.store.DropWake(f.ctx, f.wake("d", user).Ref()); err != nil || !dropped {
			f.Errorf("dropped %v, %v", dropped, err)
		}
	}
}

// isDue reports whether a device of ann is to be woken.
func (f *fixture) isDue(deviceID string) bool {
	f.Helper()
	return slices.Contains(f.dueWakes(10_000), f.wakeOf(deviceID))
}

var wakeTests = []subtest{
	{name: "a registration comes back, is replaced and dropped", run: func(f *fixture) {
		f.wantCode(errOf(f.store.WakeOf(f.ctx, f.wakeOf("d/1 ü"))), registry.CodeNotFound)
		r := f.wake("d/1 ü", "ann")
		f.must(f.store.SetWake(f.ctx, r))
		f.plan(r.DeviceID, time.Now().Add(time.Hour))
		r.Wake.MinIntervalMS = 5000
		f.must(f.store.SetWake(f.ctx, r))
		got, err := f.store.WakeOf(f.ctx, r.Ref())
		f.must(err)
		if !got.Wake.Equal(r.Wake) || got.User != "ann" || got.DeviceID != r.DeviceID || got.Plan.Next.IsZero() ||
			time.Since(got.SetAt).Abs() > time.Minute {
			f.Errorf("read %+v", got)
		}
		for _, want := range []bool{true, false} {
			if dropped, err := f.store.DropWake(f.ctx, r.Ref()); err != nil || dropped != want {
				f.Errorf("dropped %v, %v, want %v", dropped, err, want)
			}
		}
		f.wantCode(f.store.PlanWake(f.ctx, r.Ref(), nil), registry.CodeNotFound)
	}},
	{name: "each user has a registration of its own for a device id", run: func(f *fixture) {
		users := []string{"ann", "ben", "", "1:a/b"}
		for i, user := range users {
			r := f.wake("d", user)
			r.Wake.MinIntervalMS += int64(i)
			f.must(f.store.SetWake(f.ctx, r))
			f.planOf(r.Ref(), time.Now().Add(-time.Second))
		}
		all, err := f.store.WakesOf(f.ctx, f.tenant, "d")
		f.must(err)
		if len(all) != len(users) || all[0].User != "ann" || all[0].DeviceID != "d" {
			f.Errorf("registered: %+v", all)
		}
		for i, user := range users {
			ref := f.wake("d", user).Ref()
			got, err := f.store.WakeOf(f.ctx, ref)
			f.must(err)
			if got.User != user || got.Wake.MinIntervalMS != 1000+int64(i) || got.Ref() != ref {
				f.Errorf("of %q: %+v", user, got)
			}
			f.eventually("the device is due", func() bool { return slices.Contains(f.dueWakes(10_000), ref) })
		}
		f.dropWake("ann") // the others keep theirs, and a change of theirs stays theirs
		f.wantCode(errOf(f.store.WakeOf(f.ctx, f.wakeOf("d"))), registry.CodeNotFound)
		r := f.wake("d", "ben")
		r.Wake.MinIntervalMS = 7000
		f.must(f.store.SetWake(f.ctx, r))
		f.must(f.store.SetWake(f.ctx, f.wake("d", "ann")))
		if all, err := f.store.WakesOf(f.ctx, f.tenant, "d"); err != nil || len(all) != len(users) {
			f.Errorf("registered: %+v, %v", all, err)
		}
		_, err = f.store.EraseOf(f.ctx, f.tenant, "ben", registry.PersonalWakes)
		f.must(err)
		f.dropWake("ann", "", "1:a/b")
		if all, err := f.store.WakesOf(f.ctx, f.tenant, "d"); err != nil || len(all) != 0 {
			f.Errorf("left: %+v, %v", all, err)
		}
	}},
	{name: "no tenant and no user is behind the many due devices of another", run: func(f *fixture) {
		other := registry.WakeRef{Tenant: f.tenant + "-b", User: "ben", DeviceID: "phone"}
		greedy, first := 60, time.Now().Add(-time.Hour)
		for i := range greedy {
			r := f.wake(fmt.Sprint("d", i), "eve")
			f.must(f.store.SetWake(f.ctx, r))
			f.planOf(r.Ref(), first)
		}
		f.must(f.store.SetWake(f.ctx, f.wake("phone", "ann")))
		f.plan("phone", time.Now())
		r := f.wake("phone", "ben")
		r.Tenant = other.Tenant
		f.must(f.store.SetWake(f.ctx, r))
		f.planOf(other, time.Now())
		for _, ref := range []registry.WakeRef{f.wakeOf("phone"), other} {
			tries := 0 // other tests also have due devices
			f.eventually("the device is found", func() bool { tries++; return slices.Contains(f.dueWakes(10), ref) })
			if tries > greedy/2 {
				f.Errorf("%v was found after %d searches", ref, tries)
			}
		}
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
		_, err := f.store.DropWake(f.ctx, f.wakeOf("d"))
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
				err := f.store.PlanWake(f.ctx, f.wakeOf("d"), func(r registry.WakeRecord) (registry.WakePlan, bool) {
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
