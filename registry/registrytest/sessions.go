package registrytest

import (
	"reflect"
	"sync"
	"time"

	"github.com/farhand/farhand/registry"
)

var sessionTests = []subtest{
	{name: "claim stores every attribute", run: func(f *fixture) {
		pod := f.pod("a")
		want := registry.Session{
			Key: f.key("s1"), Pod: pod, Name: "my phone", DeviceID: "d:{1}*", DeviceName: "Pixel 8", UserID: "ünal",
			Platform: "android", Labels: map[string]string{"site": "köln/2", "tier": "a b"},
			Capabilities: []string{"cancel", "drain"},
		}
		claim, err := f.store.Claim(f.ctx, want)
		if err != nil {
			f.Fatal(err)
		}
		if claim.Previous != nil {
			f.Fatalf("previous %+v for a new session", claim.Previous)
		}
		e, err := f.store.Entry(f.ctx, want.Key)
		if err != nil {
			f.Fatal(err)
		}
		if age := time.Since(e.Session.ConnectedAt); age < -time.Minute || age > time.Minute {
			f.Errorf("connected at %v", e.Session.ConnectedAt)
		}
		want.Generation, want.ConnectedAt = claim.Session.Generation, claim.Session.ConnectedAt
		if !reflect.DeepEqual(e.Session, want) || !reflect.DeepEqual(claim.Session, want) {
			f.Errorf("stored  %+v\nclaimed %+v\nwant    %+v", e.Session, claim.Session, want)
		}
	}},
	{name: "every claim has a higher generation and names the one before", run: func(f *fixture) {
		a, b := f.pod("a"), f.pod("b")
		first := f.claim("s1", a)
		claim, err := f.store.Claim(f.ctx, registry.Session{Key: first.Key, Pod: b})
		if err != nil {
			f.Fatal(err)
		}
		if claim.Session.Generation <= first.Generation {
			f.Errorf("generation %d after %d", claim.Session.Generation, first.Generation)
		}
		if p := claim.Previous; p == nil || p.Pod != a || p.Generation != first.Generation {
			f.Errorf("previous %+v", p)
		}
	}},
	{name: "a claim starts without the tools of the one before", run: func(f *fixture) {
		a, b := f.pod("a"), f.pod("b")
		f.putTools(f.claim("s1", a), tool("old", "x"))
		f.putTools(f.claim("s1", b), tool("new", "x"))
		if got := names(f.list(registry.Query{})); got != "s1(new)" {
			f.Errorf("listed %s", got)
		}
		if got := f.list(registry.Query{Tool: "old"}); len(got) != 0 {
			f.Errorf("found by its old tool: %s", names(got))
		}
		if got := f.groups(registry.GroupQuery{}); len(got) != 1 || got["new x"] != 1 {
			f.Errorf("groups %v", got)
		}
	}},
	{name: "a late release removes nothing of the successor", run: func(f *fixture) {
		old := f.claim("s1", f.pod("a"), device("d1"))
		f.putTools(old, tool("camera", "x"))
		current := f.claim("s1", f.pod("b"), device("d1"))
		f.putTools(current, tool("camera", "x"))
		released, err := f.store.Release(f.ctx, old)
		if err != nil || released {
			f.Fatalf("late release: %v, %v", released, err)
		}
		for what, q := range map[string]registry.Query{
			"all": {}, "by tool": {Tool: "camera"}, "by device": {Target: registry.Target{DeviceID: "d1"}},
		} {
			if got := names(f.list(q)); got != "s1(camera)" {
				f.Errorf("%s after the late release: %q", what, got)
			}
		}
		if got := f.groups(registry.GroupQuery{}); got["camera x"] != 1 {
			f.Errorf("groups %v", got)
		}
	}},
	{name: "writes of an old claim change nothing", run: func(f *fixture) {
		a, b := f.pod("a"), f.pod("b")
		old := f.claim("s1", a)
		current := f.claim("s1", b)
		f.putTools(current, tool("keep", "x"))
		f.wantCode(f.store.SetTools(f.ctx, old, []registry.ToolSpec{tool("stale", "x")}), registry.ErrNotOwner.Code)
		old.DeviceID = "stale"
		f.wantCode(f.store.Update(f.ctx, old), registry.ErrNotOwner.Code)
		_, err := f.store.Restore(f.ctx, registry.Entry{Session: old})
		f.wantCode(err, registry.ErrNotOwner.Code)
		missing, lost, err := f.store.Refresh(f.ctx, []registry.Entry{{Session: old}})
		if err != nil || len(missing) != 0 || len(lost) != 1 {
			f.Errorf("refresh: missing %v, lost %v, %v", missing, lost, err)
		}
		if got := names(f.list(registry.Query{})); got != "s1(keep)" {
			f.Errorf("listed %s", got)
		}
	}},
	{name: "a claim that came and went leaves the one before it without a say", run: func(f *fixture) {
		old := f.claim("s1", f.pod("a"))
		newer := f.claim("s1", f.pod("b"))
		if released, err := f.store.Release(f.ctx, newer); err != nil || !released {
			f.Fatalf("release: %v, %v", released, err)
		}
		f.wantCode(f.store.SetTools(f.ctx, old, []registry.ToolSpec{tool("stale", "x")}), registry.ErrNotOwner.Code)
		_, err := f.store.Restore(f.ctx, registry.Entry{Session: old})
		f.wantCode(err, registry.ErrNotOwner.Code)
	}},
	{name: "update replaces the attributes and what is found by them", run: func(f *fixture) {
		s := f.claim("s1", f.pod("a"), device("d1"))
		f.putTools(s, tool("camera", "x"))
		s.DeviceID, s.UserID, s.Labels = "d2", "u1", map[string]string{"site": "b"}
		if err := f.store.Update(f.ctx, s); err != nil {
			f.Fatal(err)
		}
		for _, c := range []struct {
			target registry.Target
			want   string
		}{
			{registry.Target{DeviceID: "d1"}, ""}, {registry.Target{DeviceID: "d2"}, "s1(camera)"},
			{registry.Target{UserID: "u1"}, "s1(camera)"},
			{registry.Target{Labels: map[string]string{"site": "b"}}, "s1(camera)"},
			{registry.Target{Labels: map[string]string{"site": "a"}}, ""},
		} {
			if got := names(f.list(registry.Query{Target: c.target})); got != c.want {
				f.Errorf("%+v: %q, want %q", c.target, got, c.want)
			}
		}
	}},
	{name: "tools come, are replaced and go", run: func(f *fixture) {
		s := f.claim("s1", f.pod("a"))
		f.putTools(s, tool("a", "1"), tool("b", "1"))
		f.putTools(s, tool("a", "1"), tool("b", "2"), tool("c", "1"))
		for range 2 { // once more changes nothing; nor does the order
			f.putTools(s, tool("c", "1"), tool("b", "2"))
		}
		e, err := f.store.Entry(f.ctx, s.Key)
		if err != nil {
			f.Fatal(err)
		}
		want := []registry.ToolSpec{tool("b", "2"), tool("c", "1")}
		if !reflect.DeepEqual(e.Tools, want) {
			f.Errorf("tools %+v, want %+v", e.Tools, want)
		}
		if got := f.groups(registry.GroupQuery{}); len(got) != 2 || got["b 2"] != 1 || got["c 1"] != 1 {
			f.Errorf("groups %v", got)
		}
		if got := f.list(registry.Query{Tool: "a"}); len(got) != 0 {
			f.Errorf("found by a tool it gave up: %s", names(got))
		}
		f.putTools(s)
		if e, err = f.store.Entry(f.ctx, s.Key); err != nil || len(e.Tools) != 0 {
			f.Errorf("after all were given up: %+v, %v", e.Tools, err)
		}
		if got := f.groups(registry.GroupQuery{}); len(got) != 0 {
			f.Errorf("groups of no tools %v", got)
		}
	}},
	{name: "release makes a session known but not connected", run: func(f *fixture) {
		s := f.claim("s1", f.pod("a"))
		f.putTools(s, tool("camera", "x"))
		released, err := f.store.Release(f.ctx, s)
		if err != nil || !released {
			f.Fatalf("release: %v, %v", released, err)
		}
		_, err = f.store.Entry(f.ctx, s.Key)
		f.wantCode(err, registry.CodeNotConnected)
		_, err = f.store.Entry(f.ctx, f.key("never"))
		f.wantCode(err, registry.CodeSessionNotFound)
		if got := f.list(registry.Query{}); len(got) != 0 {
			f.Errorf("still listed: %s", names(got))
		}
		if got := f.groups(registry.GroupQuery{}); len(got) != 0 {
			f.Errorf("groups %v", got)
		}
		if released, err = f.store.Release(f.ctx, s); err != nil || released {
			f.Errorf("second release: %v, %v", released, err)
		}
	}},
	{name: "a session expires unless refreshed", options: Options{SessionTTL: 400 * time.Millisecond, PodLease: time.Minute},
		run: func(f *fixture) {
			pod := f.pod("a")
			kept, left := f.claim("kept", pod), f.claim("left", pod)
			f.putTools(kept, tool("camera", "x"))
			f.putTools(left, tool("camera", "x"))
			f.eventually("the session that is not refreshed expires", func() bool {
				missing, lost, err := f.store.Refresh(f.ctx, []registry.Entry{{Session: kept, Tools: []registry.ToolSpec{tool("camera", "x")}}})
				if err != nil || len(missing)+len(lost) > 0 {
					f.Fatalf("refresh: missing %v, lost %v, %v", missing, lost, err)
				}
				return names(f.list(registry.Query{})) == "kept(camera)"
			})
			if got := names(f.list(registry.Query{Tool: "camera"})); got != "kept(camera)" {
				f.Errorf("by tool: %s", got)
			}
			if err := f.store.SetTools(f.ctx, left, []registry.ToolSpec{tool("late", "x")}); err == nil {
				f.Error("a late write to an expired session succeeded")
			}
			if got := names(f.list(registry.Query{})); got != "kept(camera)" {
				f.Errorf("after a late write: %s", got)
			}
		}},
	{name: "restore writes again what the store lost", options: Options{SessionTTL: 300 * time.Millisecond, PodLease: time.Minute},
		run: func(f *fixture) {
			s := f.claim("s1", f.pod("a"), device("d1"))
			e := registry.Entry{Session: s, Tools: []registry.ToolSpec{tool("camera", "x")}}
			f.putTools(s, e.Tools...)
			f.eventually("the session expires", func() bool {
				_, err := f.store.Entry(f.ctx, s.Key)
				return err != nil
			})
			missing, _, err := f.store.Refresh(f.ctx, []registry.Entry{e})
			if err != nil || len(missing) != 1 || missing[0] != s.Key {
				f.Fatalf("refresh: missing %v, %v", missing, err)
			}
			restored, err := f.store.Restore(f.ctx, e)
			if err != nil {
				f.Fatal(err)
			}
			if restored.Generation < s.Generation {
				f.Errorf("generation went back from %d to %d", s.Generation, restored.Generation)
			}
			if got := names(f.list(registry.Query{Tool: "camera", Target: registry.Target{DeviceID: "d1"}})); got != "s1(camera)" {
				f.Errorf("listed %q", got)
			}
		}},
	{name: "a write that failed, and a restore nobody heard of, are missing at the next refresh", run: func(f *fixture) {
		s := f.claim("s1", f.pod("a"), device("d1"))
		e := registry.Entry{Session: s, Tools: []registry.ToolSpec{tool("camera", "x")}}
		missing, lost, err := f.store.Refresh(f.ctx, []registry.Entry{e}) // the tools have not been written
		if err != nil || len(missing) != 1 || len(lost) != 0 {
			f.Fatalf("missing %v, lost %v, %v", missing, lost, err)
		}
		for range 2 { // the first answer is lost
			restored, err := f.store.Restore(f.ctx, e)
			if err != nil || restored.Generation < s.Generation {
				f.Fatalf("restored %d after %d, %v", restored.Generation, s.Generation, err)
			}
			e.Session.Generation = restored.Generation
			if missing, lost, err := f.store.Refresh(f.ctx, []registry.Entry{e}); err != nil || len(missing)+len(lost) != 0 {
				f.Errorf("after a restore: missing %v, lost %v, %v", missing, lost, err)
			}
			e.Session.Generation = s.Generation
			if _, lost, err := f.store.Refresh(f.ctx, []registry.Entry{e}); err != nil || len(lost) != 0 {
				f.Errorf("a pod that did not hear of its restore lost its session: %v, %v", lost, err)
			}
		}
		if got := names(f.list(registry.Query{})); got != "s1(camera)" {
			f.Errorf("listed %q", got)
		}
	}},
	{name: "of many claims at once one wins and its writes alone count", run: func(f *fixture) {
		const n = 16
		claims := make([]registry.Session, n)
		var wg sync.WaitGroup
		pod := f.pod("a")
		for i := range n {
			wg.Go(func() { claims[i] = f.claim("s1", pod) })
		}
		wg.Wait()
		winners, seen := 0, make(map[int64]bool)
		for _, s := range claims {
			seen[s.Generation] = true
			if f.store.SetTools(f.ctx, s, []registry.ToolSpec{tool("camera", "x")}) == nil {
				winners++
			}
		}
		if winners != 1 || len(seen) != n {
			f.Errorf("%d winners, %d distinct generations of %d", winners, len(seen), n)
		}
	}},
}

func device(id string) func(*registry.Session) {
	return func(s *registry.Session) { s.DeviceID = id }
}
