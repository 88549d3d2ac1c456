package registrytest

import (
	"fmt"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/routing"
)

// takeoverTests are about who may have a session, and whose answers count.
var takeoverTests = []subtest{
	{name: "ids that apps choose are taken as they are", run: func(f *fixture) {
		a, b := f.startPod("a"), f.startPod("b")
		for _, id := range []string{"android:1", "user@host", "user+tag@host.example", "YWJj==", "a:b:c", "a~b", "5d1f-ok_.x"} {
			l := NewDevice(nil).Connect(f, a, registry.Session{Key: f.key(id)}, tool("echo", "x"))
			if res, err := f.call(b, id, "echo", `{"id":1}`, patience); err != nil || res.Output != `{"id":1}` {
				f.Errorf("%s: %+v, %v", id, res, err)
			}
			if got := names(f.list(registry.Query{})); got != id+"(echo)" {
				f.Errorf("%s is listed as %s", id, got)
			}
			l.Close(f.ctx)
			if got := names(f.list(registry.Query{})); got != "" {
				f.Errorf("%s left: %s", id, got)
			}
		}
	}},
	{name: "an answer counts from who was asked", run: func(f *fixture) {
		for i, tc := range []struct {
			asked  string
			proofs []string
			counts bool
		}{
			{"p1", []string{"p1"}, true}, {"p1", []string{"p2", "p1"}, true}, {"p1", []string{"p2"}, false}, {"p1", []string{}, false},
			{"p1", []string{"p11", "xp1"}, false}, {"p1", nil, true}, {"", []string{"p2"}, true}, {"", nil, true},
		} {
			answer := registry.Change{Session: f.key("s1"), Result: &registry.Result{Output: "x", Success: true}, Proofs: tc.proofs}
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
			return registry.Session{Key: f.key(session), DeviceID: "phone", Proofs: []string{registry.Proof(session)}}
		}
		real := NewDevice(nil).Connect(f, a, phone("real"), tool("camera", "real"))
		clock := func(after *routing.LocalSession) { // seniority counts in milliseconds
			f.eventually("the store's clock has moved on", func() bool {
				return f.claim("probe", f.pod("c")).ConnectedAt.After(after.Session().Seniority())
			})
		}
		clock(real)
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
		device := registry.Target{DeviceID: "phone"}
		_, err := a.Router.Resolve(f.ctx, f.tenant, "camera", device, registry.SelectNone)
		f.wantCode(err, registry.CodeAmbiguousTarget)
		resolve("real", device, registry.SelectNewest)
		resolve("real", device, registry.SelectAny)
		resolve("real", registry.Target{}, registry.SelectNewest)
		NewDevice(nil).Connect(f, b, registry.Session{Key: f.key("twin")}, tool("camera", "real"))
		resolve("twin", registry.Target{}, registry.SelectNewest)
		resolve("real", device, registry.SelectNewest)

		// The device that comes back has been there all the time, if it proves to be the same.
		real.Close(f.ctx)
		back := NewDevice(nil).Connect(f, b, registry.Session{
			Key: f.key("real"), DeviceID: "phone", Proofs: []string{registry.Proof("next")},
		}, tool("camera", "real"))
		back.Introduce(registry.Introduction{DeviceID: "phone", Token: "real"})
		if err := back.Update(f.ctx, func(*registry.Session) {}); err != nil {
			f.Fatal(err)
		}
		resolve("real", device, registry.SelectNewest)

		// Who names the device later is younger, however long it has been connected.
		early := NewDevice(nil).Connect(f, a, registry.Session{Key: f.key("early")}, tool("lens", "early"))
		late := NewDevice(nil).Connect(f, a, registry.Session{Key: f.key("late"), DeviceID: "lens-1"}, tool("lens", "late"))
		clock(late)
		if err := early.Update(f.ctx, func(s *registry.Session) { s.DeviceID = "lens-1" }); err != nil {
			f.Fatal(err)
		}
		route, err := b.Router.Resolve(f.ctx, f.tenant, "lens", registry.Target{DeviceID: "lens-1"}, registry.SelectNewest)
		if err != nil || route.Session.Key.Session != "late" {
			f.Errorf("chosen: %s, %v", route.Session.Key.Session, err)
		}
	}},
	{name: "a crowd that came while the device was away is not preferred", run: func(f *fixture) {
		a, b := f.startPod("a"), f.startPod("b")
		key := registry.Session{Key: f.key("real"), DeviceID: "phone", Proofs: []string{registry.Proof("first")}}
		NewDevice(nil).Connect(f, a, key, tool("camera", "real")).Close(f.ctx)
		for i := range 30 {
			fake := registry.Session{Key: f.key(fmt.Sprintf("fake-%d", i)), DeviceID: "phone"}
			NewDevice(nil).Connect(f, b, fake, tool("camera", fmt.Sprintf("fake %d", i%3)))
		}
		key.Proofs = []string{registry.Proof("second")}
		back := NewDevice(nil).Connect(f, a, key)
		back.Introduce(registry.Introduction{DeviceID: "phone", Token: "first"})
		if err := back.Update(f.ctx, func(*registry.Session) {}); err != nil {
			f.Fatal(err)
		}
		if err := back.PutTools(f.ctx, []registry.ToolSpec{tool("camera", "real")}, nil); err != nil {
			f.Fatal(err)
		}
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

		// Of more sessions than are compared, none is chosen as the one device that is meant.
		for i := range 180 {
			NewDevice(nil).Connect(f, b, registry.Session{Key: f.key(fmt.Sprintf("more-%d", i)), DeviceID: "phone"}, tool("camera", "fake 1"))
		}
		_, err := a.Router.Resolve(f.ctx, f.tenant, "camera", registry.Target{DeviceID: "phone"}, registry.SelectAny)
		f.wantCode(err, registry.CodeAmbiguousTarget)

		// What nobody offers any more is no definition.
		back.Close(f.ctx)
		if specs, err := f.store.Definitions(f.ctx, f.tenant, "camera"); err != nil || len(specs) != 3 {
			f.Errorf("definitions of those who are left: %v, %v", specs, err)
		}
		route, err := b.Router.Resolve(f.ctx, f.tenant, "camera", registry.Target{}, registry.SelectNewest)
		if err != nil || route.Spec.Hash() == tool("camera", "real").Hash() {
			f.Errorf("of those who are left: %s, %v", route.Session.Key.Session, err)
		}
	}},
}
