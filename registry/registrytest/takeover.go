package registrytest

import (
	"fmt"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/routing"
)

// takeoverTests check which devices may take a session, and whose answers count.
var takeoverTests = []subtest{
	{name: "ids that apps choose are taken as they are", run: func(f *fixture) {
		a, b := f.startPod("a"), f.startPod("b")
		for _, id := range []string{
			"android:1", "user@host", "user+tag@host.example", "YWJj==", "a:b:c", "a~b", "5d1f-ok_.x",
		} {
			l := NewDevice(nil).Connect(f, a, f.session(id), tool("echo", "x"))
			if res, err := f.call(b, id, "echo", `{"id":1}`, testTimeout); err != nil || res.Output != `{"id":1}` {
				f.Errorf("%s: %+v, %v", id, res, err)
			}
			f.wantList(registry.Query{}, id+"(echo)")
			l.Close(f.ctx)
			f.wantList(registry.Query{}, "")
		}
	}},
	{name: "an answer counts from who was asked", run: func(f *fixture) {
		for i, tc := range []struct {
			asked  string
			proofs []string
			counts bool
		}{
			{"p1", []string{"p1"}, true}, {"p1", []string{"p2", "p1"}, true}, {"p1", []string{"p2"}, false},
			{"p1", []string{}, false},
			{"p1", []string{"p11", "xp1"}, false}, {"p1", nil, true}, {"", []string{"p2"}, true}, {"", nil, true},
		} {
			answer := f.change(registry.EventSucceed)
			answer.Proofs = tc.proofs
			durable := f.create(f.record(fmt.Sprintf("durable-%d", i)))
			f.move(durable.CallID, registry.EventDeliver, registry.Change{Owner: "a", Proof: tc.asked})
			kept := f.record(fmt.Sprintf("kept-%d", i))
			kept.State, kept.Dispatched, kept.Proof = registry.StateTimedOut, registry.DispatchedYes, tc.asked
			f.keep(kept)
			for _, id := range []string{durable.CallID, kept.CallID} {
				if got := f.read(id).Proof; got != tc.asked {
					f.Errorf("%s: proof %q, want %q", id, got, tc.asked)
				}
				moved, err := f.store.MoveCall(f.ctx, f.tenant, id, registry.EventSucceed, answer)
				if counted := err == nil && moved.Applied; counted != tc.counts {
					f.Errorf("%s asked of %q, answered with %q: %v, %v", id, tc.asked, tc.proofs, moved.Applied, err)
				}
				if !tc.counts && !registry.IsCallNotFound(err) {
					f.Errorf("%s: %v", id, err)
				}
			}
		}
	}},
	{name: "a later definition of a name is not preferred", run: func(f *fixture) {
		a, b := f.startPod("a"), f.startPod("b")
		phone := func(session string) registry.Session {
			proofs := []string{registry.Proof("", session)}
			return registry.Session{Key: f.key(session), DeviceID: "phone", Proofs: proofs}
		}
		real := NewDevice(nil).Connect(f, a, phone("real"), tool("camera", "real"))
		f.clockPasses(real)
		NewDevice(nil).Connect(f, b, phone("fake"), tool("camera", "fake"), tool("own", "fake"))
		resolve := func(want string, target registry.Target, sel registry.Select) {
			f.Helper()
			for _, pod := range []*routing.Pod{a, b} {
				route, err := pod.Router.Resolve(f.ctx, f.tenant, "camera", target, sel)
				if err != nil || route.Session.Key.Session != want {
					f.Errorf("%+v, %q: %s, %v, want %s", target, sel, route.Session.Key.Session, err, want)
				}
			}
		}
		target := registry.Target{DeviceID: "phone"}
		_, err := a.Router.Resolve(f.ctx, f.tenant, "camera", target, registry.SelectNone)
		f.wantCode(err, registry.CodeAmbiguousTarget)
		resolve("real", target, registry.SelectNewest)
		resolve("real", target, registry.SelectAny)
		resolve("real", registry.Target{}, registry.SelectNewest)
		NewDevice(nil).Connect(f, b, f.session("twin"), tool("camera", "real"))
		resolve("twin", registry.Target{}, registry.SelectNewest)
		resolve("real", target, registry.SelectNewest)

		// The device that reconnects counts as always connected, if it proves to be the same.
		real.Close(f.ctx)
		back := NewDevice(nil).Connect(f, b, registry.Session{
			Key: f.key("real"), DeviceID: "phone", Proofs: []string{registry.Proof("", "next")},
		}, tool("camera", "real"))
		back.Introduce(registry.Introduction{DeviceID: "phone", Token: "real"})
		f.must(back.Update(f.ctx, func(*registry.Session) {}))
		resolve("real", target, registry.SelectNewest)

		// A session that names the device later is younger, however long it has been connected.
		lens := registry.Target{DeviceID: "lens-1"}
		early := NewDevice(nil).Connect(f, a, f.session("early"), tool("lens", "early"))
		late := NewDevice(nil).Connect(f, a, f.session("late", device("lens-1")), tool("lens", "late"))
		f.clockPasses(late)
		f.must(early.Update(f.ctx, func(s *registry.Session) { s.DeviceID = "lens-1" }))
		route, err := b.Router.Resolve(f.ctx, f.tenant, "lens", lens, registry.SelectNewest)
		if err != nil || route.Session.Key.Session != "late" {
			f.Errorf("chosen: %s, %v", route.Session.Key.Session, err)
		}
	}},
	{name: "a crowd that came while the device was away is not preferred", run: func(f *fixture) {
		a, b := f.startPod("a"), f.startPod("b")
		key := registry.Session{Key: f.key("real"), DeviceID: "phone", Proofs: []string{registry.Proof("", "first")}}
		real := NewDevice(nil).Connect(f, a, key, tool("camera", "real"))
		f.clockPasses(real)
		real.Close(f.ctx)
		for i := range 30 {
			fake := f.session(fmt.Sprintf("fake-%d", i), device("phone"))
			NewDevice(nil).Connect(f, b, fake, tool("camera", fmt.Sprintf("fake %d", i%3)))
		}
		key.Proofs = []string{registry.Proof("", "second")}
		back := NewDevice(nil).Connect(f, a, key)
		back.Introduce(registry.Introduction{DeviceID: "phone", Token: "first"})
		f.must(back.Update(f.ctx, func(*registry.Session) {}))
		f.must(back.PutTools(f.ctx, []registry.ToolSpec{tool("camera", "real")}, nil))
		if specs, err := f.store.Definitions(f.ctx, f.tenant, "camera"); err != nil || len(specs) != 4 ||
			specs[0] != tool("camera", "real").Hash() {
			f.Errorf("definitions: %v, %v", specs, err)
		}
		for _, target := range []registry.Target{{}, {DeviceID: "phone"}} {
			route, err := b.Router.Resolve(f.ctx, f.tenant, "camera", target, registry.SelectNewest)
			if err != nil || route.Session.Key.Session != "real" {
				f.Errorf("%+v: %s, %v", target, route.Session.Key.Session, err)
			}
		}

		// With more sessions than are compared, none is chosen as the one device that is meant.
		for i := range 180 {
			fake := f.session(fmt.Sprintf("more-%d", i), device("phone"))
			NewDevice(nil).Connect(f, b, fake, tool("camera", "fake 1"))
		}
		phone := registry.Target{DeviceID: "phone"}
		_, err := a.Router.Resolve(f.ctx, f.tenant, "camera", phone, registry.SelectAny)
		f.wantCode(err, registry.CodeAmbiguousTarget)

		// A tool that no session offers any more has no definition.
		back.Close(f.ctx)
		if specs, err := f.store.Definitions(f.ctx, f.tenant, "camera"); err != nil || len(specs) != 3 {
			f.Errorf("definitions of the rest: %v, %v", specs, err)
		}
		route, err := b.Router.Resolve(f.ctx, f.tenant, "camera", registry.Target{}, registry.SelectNewest)
		if err != nil || route.Spec.Hash() == tool("camera", "real").Hash() {
			f.Errorf("of the rest: %s, %v", route.Session.Key.Session, err)
		}
	}},
}

// clockPasses waits until a session that connects now is younger than l: seniority counts in milliseconds.
func (f *fixture) clockPasses(l *routing.LocalSession) {
	f.Helper()
	f.eventually("the store's clock has moved on", func() bool {
		return f.claim("probe", f.pod("c")).ConnectedAt.After(l.Session().Seniority())
	})
}
