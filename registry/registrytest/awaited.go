package registrytest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/routing"
)

var awaitedTests = []subtest{
	{name: "what a device that is expected back offered is known until it registers", run: func(f *fixture) {
		a, b := f.pod("a"), f.pod("b")
		s := f.claim("s1", a, device("d1"), func(s *registry.Session) {
			s.UserID, s.Labels = "u1", map[string]string{"site": "b"}
		})
		f.putTools(s, tool("camera", "x"), tool("lamp", "x"))
		f.wantAwaited("camera", registry.Target{}, "")
		f.must(errOf(f.store.Release(f.ctx, s, registry.ReturnWait)))
		f.wantList(registry.Query{}, "")
		f.wantGroups(registry.OfferedToolQuery{}, nil) // also removes expired data
		site := func(at string) map[string]string { return map[string]string{"site": at} }
		everywhere := func(want string) {
			f.Helper()
			for _, target := range []registry.Target{
				{}, {SessionID: "s1"}, {DeviceID: "d1"}, {UserID: "u1"}, {Viewer: "u1"}, {Labels: site("b")},
				{SessionID: "s1", DeviceID: "d1", UserID: "u1", Labels: site("b"), Viewer: "u1"},
			} {
				f.wantAwaited("camera", target, want)
			}
			for _, target := range []registry.Target{
				{SessionID: "s2"}, {DeviceID: "d2"}, {UserID: "u2"}, {Viewer: "u2"}, {Labels: site("a")},
				{SessionID: "s1", Viewer: "u2"}, {DeviceID: "d1", Viewer: "u2"},
			} {
				f.wantAwaited("camera", target, "")
			}
			f.wantAwaited("oven", registry.Target{}, "")
			f.wantAwaited("oven", registry.Target{SessionID: "s1"}, "")
		}
		everywhere("s1(camera,lamp) away")
		user := func(s *registry.Session) { s.UserID = "u1" }
		s = f.claim("s1", b, user) // the device has not introduced itself yet
		everywhere("s1(camera,lamp)")
		f.must(f.store.Update(f.ctx, s))
		f.must(errOf(f.store.Release(f.ctx, s, registry.ReturnWait)))
		everywhere("s1(camera,lamp) away")
		s = f.claim("s1", a, user, device("d1"))
		f.putTools(s, tool("lamp", "x")) // the first of several frames
		found, err := f.store.Awaited(f.ctx, f.awaiting("camera", registry.Target{}))
		if err != nil || len(found) != 1 || found[0].Left > registry.SettleWait || found[0].Left <= 0 {
			f.Errorf("after it began to register: %+v, %v", found, err)
		}
		f.eventually("nothing is expected any more",
			func() bool { return f.awaited("camera", registry.Target{}) == "" })
	}},
	{name: "a claim that replaces another one is expected to offer the same", run: func(f *fixture) {
		f.putTools(f.claim("s1", f.pod("a"), device("d1")), tool("camera", "x"))
		f.claim("s1", f.pod("b"))
		for _, target := range []registry.Target{{}, {SessionID: "s1"}, {DeviceID: "d1"}} {
			f.wantAwaited("camera", target, "s1(camera)")
		}
		f.wantList(registry.Query{Tool: "camera"}, "")
		f.wantAwaited("camera", registry.Target{}, "s1(camera)")
	}},
	{name: "of a device that left for good nothing is expected", run: func(f *fixture) {
		a := f.pod("a")
		s := f.claim("s1", a)
		f.putTools(s, tool("camera", "x"))
		f.must(errOf(f.store.Release(f.ctx, s, registry.ReturnWait)))
		s = f.claim("s1", a)
		f.wantRelease(s, true)
		f.wantAwaited("camera", registry.Target{}, "")
		f.wantAwaited("camera", registry.Target{SessionID: "s1"}, "")
		f.claim("s1", a)
		f.wantAwaited("camera", registry.Target{}, "")
	}},
	{name: "nothing is expected for longer than was said", run: func(f *fixture) {
		s := f.claim("s1", f.pod("a"))
		f.putTools(s, tool("camera", "x"))
		f.must(errOf(f.store.Release(f.ctx, s, 300*time.Millisecond)))
		f.wantCode(errOf(f.store.Entry(f.ctx, s.Key)), registry.CodeNotConnected)
		f.eventually("it is expected no longer", func() bool { return f.awaited("camera", registry.Target{}) == "" })
		f.wantCode(errOf(f.store.Entry(f.ctx, s.Key)), registry.CodeNotConnected)
	}},
	{name: "the sessions of a dead pod are expected back",
		limits: registry.Limits{SessionTTL: time.Minute, PodLease: 400 * time.Millisecond}, run: func(f *fixture) {
			f.putTools(f.claim("s1", f.pod("a"), device("d1")), tool("camera", "x"))
			f.eventually("the session is not listed", func() bool { return len(f.list(registry.Query{})) == 0 })
			f.wantAwaited("camera", registry.Target{}, "s1(camera) away")
			f.wantAwaited("camera", registry.Target{DeviceID: "d1"}, "s1(camera) away")
			f.eventually("the pod is swept", func() bool {
				f.must(errOf(f.store.Sweep(f.ctx)))
				return f.gone("s1")
			})
			f.wantAwaited("camera", registry.Target{}, "s1(camera) away")
			f.wantAwaited("camera", registry.Target{DeviceID: "d1"}, "s1(camera) away")
		}},
	{name: "calls wait for a device that moves", run: func(f *fixture) {
		a, b, c := f.startPod("a"), f.startPod("b"), f.startPod("c")
		session := f.session("s1", device("d1"))
		l := NewDevice(nil).Connect(f, b, session, tool("echo", "x"))
		for round := range 3 {
			l.Leave(f.ctx, registry.ReturnWait)
			answers := make(chan error)
			targets := []registry.Target{{}, {SessionID: "s1"}, {DeviceID: "d1"}}
			for _, pod := range []*routing.Pod{a, b, c} {
				for _, target := range targets {
					go func() { answers <- f.echo(pod, target) }()
				}
			}
			f.eventually("the calls wait", func() bool {
				return a.Stats().Returns+b.Stats().Returns+c.Stats().Returns == int64(3*len(targets))
			})
			l = NewDevice(nil).Connect(f, []*routing.Pod{c, a, b}[round], session, tool("echo", "x"))
			for range 3 * len(targets) {
				f.must(Receive(f, "the answer", answers))
			}
		}
		for _, pod := range []*routing.Pod{a, b, c} {
			if n := pod.Stats().Returns; n != 0 {
				f.Errorf("%d calls wait still", n)
			}
		}
	}},
	{name: "a call does not wait for a device that does not come back longer than it may", run: func(f *fixture) {
		a, b := f.startPod("a"), f.startPod("b")
		NewDevice(nil).Connect(f, b, f.session("s1"), tool("echo", "x")).Leave(f.ctx, registry.ReturnWait)
		for _, target := range []registry.Target{{}, {SessionID: "s1"}} {
			ctx, cancel := context.WithTimeout(f.ctx, 3*time.Second)
			_, err := a.Router.Resolve(ctx, f.tenant, "echo", target, registry.SelectNone)
			cancel()
			f.wantCode(err, registry.CodeNotConnected, registry.DispatchedNo)
			if e := registry.AsError(err); e.RetryAfter <= 0 || !e.Retryable() {
				f.Errorf("%+v is not to be tried again", e)
			}
		}
	}},
	{name: "several devices that move are as ambiguous as they were", run: func(f *fixture) {
		a, b := f.startPod("a"), f.startPod("b")
		for _, id := range []string{"s1", "s2"} {
			NewDevice(nil).Connect(f, b, f.session(id), tool("echo", "x")).Leave(f.ctx, registry.ReturnWait)
		}
		_, err := a.Router.Resolve(f.ctx, f.tenant, "echo", registry.Target{}, registry.SelectNone)
		f.wantCode(err, registry.CodeAmbiguousTarget, registry.DispatchedNo)
		if e := registry.AsError(err); len(e.Candidates) != 2 {
			f.Errorf("candidates %+v", e.Candidates)
		}
	}},
	{name: "another user's device that moves does not exist", run: func(f *fixture) {
		a, b := f.startPod("a"), f.startPod("b")
		session := f.session("s1", device("d1"), func(s *registry.Session) { s.UserID = "u1" })
		NewDevice(nil).Connect(f, b, session, tool("echo", "x")).Leave(f.ctx, registry.ReturnWait)
		for target, want := range map[string]registry.Code{
			"": registry.CodeToolNotFound, "s1": registry.CodeSessionNotFound,
		} {
			_, err := a.Router.Resolve(f.ctx, f.tenant, "echo",
				registry.Target{SessionID: target, Viewer: "u2"}, registry.SelectNone)
			f.wantCode(err, want, registry.DispatchedNo)
		}
	}},
	{name: "a paired device that is away is not connected", run: func(f *fixture) {
		a := f.startPod("a")
		f.issue(f.pairedDevice("k1", "cam 1"))
		resolve := func(target registry.Target) error {
			return errOf(a.Router.Resolve(f.ctx, f.tenant, "camera", target, registry.SelectNone))
		}
		f.wantCode(resolve(registry.Target{DeviceID: "cam 1"}), registry.CodeNotConnected, registry.DispatchedNo)
		f.wantCode(resolve(registry.Target{DeviceID: "cam 2"}), registry.CodeSessionNotFound, registry.DispatchedNo)
		other := registry.Target{DeviceID: "cam 1", UserID: "another"}
		f.wantCode(resolve(other), registry.CodeSessionNotFound, registry.DispatchedNo)
	}},
}

// echo calls the tool echo by a target, as agent.Invoker does.
func (f *fixture) echo(pod *routing.Pod, target registry.Target) error {
	route, err := pod.Router.Resolve(f.ctx, f.tenant, "echo", target, registry.SelectNone)
	for attempt := int64(0); err == nil; attempt++ {
		call := newCall(route, `{}`, testTimeout)
		call.Attempt = attempt
		if _, err = pod.Router.Call(f.ctx, call); !errors.Is(err, registry.CodeStaleRoute) {
			return err
		}
		route, err = pod.Router.ResolveAgain(f.ctx, route)
	}
	return err
}

func (f *fixture) awaiting(tool string, target registry.Target) registry.Query {
	return registry.Query{Tenant: f.tenant, Tool: tool, Target: target}
}

// awaited renders the sessions expected to offer a tool, as names does.
func (f *fixture) awaited(tool string, target registry.Target) string {
	f.Helper()
	all, err := f.store.Awaited(f.ctx, f.awaiting(tool, target))
	f.must(err)
	var parts []string
	for _, a := range all {
		part := names([]registry.Entry{{Session: a.Session, Tools: a.Tools}})
		if a.Away() {
			part += " away"
		}
		if a.Left <= 0 {
			part += " with no time left"
		}
		parts = append(parts, part)
	}
	slices.Sort(parts)
	return strings.Join(parts, "; ")
}

func (f *fixture) wantAwaited(tool string, target registry.Target, want string) {
	f.Helper()
	if got := f.awaited(tool, target); got != want {
		f.Errorf("%q at %+v: awaited %q, want %q", tool, target, got, want)
	}
}

// gone reports whether a session is known but has no connection.
func (f *fixture) gone(session string) bool {
	f.Helper()
	_, err := f.store.Entry(f.ctx, f.key(session))
	return errors.Is(err, registry.CodeNotConnected)
}
