package registrytest

import (
	"fmt"
	"slices"
	"time"

	"github.com/farhand/farhand/registry"
)

var pulseTests = []subtest{
	{name: "a refresh keeps the pulse of a session", run: func(f *fixture) {
		s := f.claim("s1", f.pod("a"))
		e := registry.Entry{Session: s, Tools: []registry.ToolSpec{tool("a", "x")}}
		f.putTools(s, e.Tools...)
		f.wantPulse(s.Key, registry.Pulse{})
		for _, p := range []registry.Pulse{
			registry.NewPulse(time.Now(), 40*time.Millisecond),
			registry.NewPulse(time.Now().Add(time.Second), 300*time.Microsecond),
			registry.NewPulse(time.Now().Add(time.Minute), 0),
		} {
			e.Pulse = p
			f.refresh(e)
			f.wantPulse(s.Key, p)
		}
		kept := e.Pulse
		e.Pulse = registry.Pulse{} // like a refresh without a pong yet, or from an older release
		f.refresh(e)
		f.wantPulse(s.Key, kept)
		s.DeviceName = "renamed"
		f.must(f.store.Update(f.ctx, s))
		f.putTools(s, tool("b", "x"))
		f.wantPulse(s.Key, kept)
	}},
	{name: "a pulse does not outlive its claim", run: func(f *fixture) {
		pod := f.pod("a")
		s := f.claim("s1", pod)
		e := registry.Entry{Session: s, Pulse: registry.NewPulse(time.Now(), time.Second)}
		f.refresh(e)
		next := f.claim("s1", pod)
		f.wantPulse(s.Key, registry.Pulse{})
		_, _, err := f.store.Refresh(f.ctx, []registry.Entry{e})
		f.must(err)
		f.wantPulse(s.Key, registry.Pulse{})
		f.must(errOf(f.store.Release(f.ctx, next, 0)))
		f.claim("s1", pod)
		f.wantPulse(s.Key, registry.Pulse{})
	}},
	{name: "a restore writes the pulse", run: func(f *fixture) {
		s := f.claim("s1", f.pod("a"))
		e := registry.Entry{Session: s, Pulse: registry.NewPulse(time.Now(), time.Second)}
		f.must(errOf(f.store.Restore(f.ctx, e)))
		f.wantPulse(s.Key, e.Pulse)
	}},
	{name: "paired devices are found while they are connected", run: func(f *fixture) {
		pod := f.pod("a")
		bound := func(device string) func(*registry.Session) {
			return func(s *registry.Session) { s.DeviceID, s.Bound = device, true }
		}
		f.claim("old", pod, bound("cam:{1}*"))
		newest := f.claim("new", pod, bound("cam:{1}*"))
		f.claim("other", pod, bound("cam-2"))
		f.claim("pretends", pod, device("cam-3")) // not the device of its credential
		f.must(errOf(f.store.Release(f.ctx, f.claim("gone", pod, bound("cam-4")), 0)))
		lapsed := f.claim("lapsed", "dead-"+f.id, bound("cam-5"))
		f.refresh(registry.Entry{Session: newest, Pulse: registry.NewPulse(time.Now(), time.Second)})

		online, err := f.store.OnlineDevices(f.ctx, f.tenant,
			[]string{"cam:{1}*", "cam-2", "cam-3", "cam-4", lapsed.DeviceID, "nobody", ""})
		f.must(err)
		if len(online) != 2 || online["cam:{1}*"].Session.Key.Session != "new" ||
			online["cam:{1}*"].Pulse.RoundTrip != time.Second || online["cam-2"].Session.Key.Session != "other" {
			f.Errorf("online: %+v", online)
		}
		for what, ids := range map[string][]string{"of another tenant": {"cam-2"}, "of none": nil} {
			tenant := f.tenant
			if len(ids) > 0 {
				tenant += "x"
			}
			if online, err := f.store.OnlineDevices(f.ctx, tenant, ids); err != nil || len(online) != 0 {
				f.Errorf("%s: %+v, %v", what, online, err)
			}
		}
	}},
	{name: "many devices are looked up at once", run: func(f *fixture) {
		const devices = 450 // more than one query reads
		pod, ids := f.pod("a"), make([]string, devices)
		together(devices, func(i int) {
			ids[i] = fmt.Sprint("cam-", i)
			if i%3 == 0 {
				f.claim(fmt.Sprint("s", i), pod, func(s *registry.Session) { s.DeviceID, s.Bound = ids[i], true })
			}
		})
		online, err := f.store.OnlineDevices(f.ctx, f.tenant, ids)
		f.must(err)
		for i, id := range ids {
			if e, ok := online[id]; ok != (i%3 == 0) || ok && e.Session.Key.Session != fmt.Sprint("s", i) {
				f.Fatalf("%s: online %t, %+v", id, ok, e.Session)
			}
		}
	}},
}

// refresh refreshes a session that the store has.
func (f *fixture) refresh(e registry.Entry) {
	f.Helper()
	missing, lost, err := f.store.Refresh(f.ctx, []registry.Entry{e})
	f.must(err)
	if all := slices.Concat(missing, lost); len(all) > 0 {
		f.Fatalf("the store does not have %v", all)
	}
}

// wantPulse checks the pulse of a session, read alone and in a list.
func (f *fixture) wantPulse(key registry.Key, want registry.Pulse) {
	f.Helper()
	e, err := f.store.Entry(f.ctx, key)
	f.must(err)
	listed := f.list(registry.Query{Target: registry.Target{SessionID: key.Session}})
	if len(listed) != 1 || e.Pulse != want || listed[0].Pulse != want {
		f.Errorf("pulse %+v, in the list %+v, want %+v", e.Pulse, listed, want)
	}
}
