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
		f.must(err)
		if claim.Previous != nil {
			f.Fatalf("previous %+v for a new session", claim.Previous)
		}
		e, err := f.store.Entry(f.ctx, want.Key)
		f.must(err)
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
		f.must(err)
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
		f.wantList(registry.Query{}, "s1(new)")
		if got := f.list(registry.Query{Tool: "old"}); len(got) != 0 {
			f.Errorf("found by its old tool: %s", names(got))
		}
		f.wantGroups(registry.OfferedToolQuery{}, map[string]int{"new x": 1})
	}},
	{name: "a late release removes nothing of the successor", run: func(f *fixture) {
		old := f.claim("s1", f.pod("a"), device("d1"))
		f.putTools(old, tool("camera", "x"))
		current := f.claim("s1", f.pod("b"), device("d1"))
		f.putTools(current, tool("camera", "x"))
		f.wantRelease(old, false)
		for _, q := range []registry.Query{{}, {Tool: "camera"}, {Target: registry.Target{DeviceID: "d1"}}} {
			f.wantList(q, "s1(camera)")
		}
		f.wantGroups(registry.OfferedToolQuery{}, map[string]int{"camera x": 1})
	}},
	{name: "writes of an old claim change nothing", run: func(f *fixture) {
		a, b := f.pod("a"), f.pod("b")
		old := f.claim("s1", a)
		current := f.claim("s1", b)
		f.putTools(current, tool("keep", "x"))
		f.wantCode(f.store.SetTools(f.ctx, old, []registry.ToolSpec{tool("stale", "x")}), registry.ErrNotOwner.Code)
		old.DeviceID = "stale"
		f.wantCode(f.store.Update(f.ctx, old), registry.ErrNotOwner.Code)
		f.wantCode(errOf(f.store.Restore(f.ctx, registry.Entry{Session: old})), registry.ErrNotOwner.Code)
		f.wantRefresh(registry.Entry{Session: old}, 0, 1)
		f.wantList(registry.Query{}, "s1(keep)")
	}},
	{name: "a claim that came and went leaves the one before it without a say", run: func(f *fixture) {
		old := f.claim("s1", f.pod("a"))
		newer := f.claim("s1", f.pod("b"))
		f.wantRelease(newer, true)
		f.wantCode(f.store.SetTools(f.ctx, old, []registry.ToolSpec{tool("stale", "x")}), registry.ErrNotOwner.Code)
		f.wantCode(errOf(f.store.Restore(f.ctx, registry.Entry{Session: old})), registry.ErrNotOwner.Code)
	}},
	{name: "update replaces the attributes and what is found by them", run: func(f *fixture) {
		s := f.claim("s1", f.pod("a"), device("d1"))
		f.putTools(s, tool("camera", "x"))
		s.DeviceID, s.UserID, s.Labels = "d2", "u1", map[string]string{"site": "b"}
		f.must(f.store.Update(f.ctx, s))
		for _, c := range []struct {
			target registry.Target
			want   string
		}{
			{registry.Target{DeviceID: "d1"}, ""}, {registry.Target{DeviceID: "d2"}, "s1(camera)"},
			{registry.Target{UserID: "u1"}, "s1(camera)"},
			{registry.Target{Labels: map[string]string{"site": "b"}}, "s1(camera)"},
			{registry.Target{Labels: map[string]string{"site": "a"}}, ""},
		} {
			f.wantList(registry.Query{Target: c.target}, c.want)
		}
	}},
	{name: "tools come, are replaced and go", run: func(f *fixture) {
		s := f.claim("s1", f.pod("a"))
		f.putTools(s, tool("a", "1"), tool("b", "1"))
		f.putTools(s, tool("a", "1"), tool("b", "2"), tool("c", "1"))
		for range 2 { // a repetition changes nothing; nor does the order
			f.putTools(s, tool("c", "1"), tool("b", "2"))
		}
		e, err := f.store.Entry(f.ctx, s.Key)
		f.must(err)
		want := []registry.ToolSpec{tool("b", "2"), tool("c", "1")}
		if !reflect.DeepEqual(e.Tools, want) {
			f.Errorf("tools %+v, want %+v", e.Tools, want)
		}
		f.wantGroups(registry.OfferedToolQuery{}, map[string]int{"b 2": 1, "c 1": 1})
		if got := f.list(registry.Query{Tool: "a"}); len(got) != 0 {
			f.Errorf("found by a tool it gave up: %s", names(got))
		}
		f.putTools(s)
		if e, err = f.store.Entry(f.ctx, s.Key); err != nil || len(e.Tools) != 0 {
			f.Errorf("after all were given up: %+v, %v", e.Tools, err)
		}
		f.wantGroups(registry.OfferedToolQuery{}, nil)
	}},
	{name: "release makes a session known but not connected", run: func(f *fixture) {
		s := f.claim("s1", f.pod("a"))
		f.putTools(s, tool("camera", "x"))
		f.wantRelease(s, true)
		f.wantCode(errOf(f.store.Entry(f.ctx, s.Key)), registry.CodeNotConnected)
		f.wantCode(errOf(f.store.Entry(f.ctx, f.key("never"))), registry.CodeSessionNotFound)
		if got := f.list(registry.Query{}); len(got) != 0 {
			f.Errorf("still listed: %s", names(got))
		}
		f.wantGroups(registry.OfferedToolQuery{}, nil)
		f.wantRelease(s, false)
	}},
	{name: "a session expires unless refreshed",
		limits: registry.Limits{SessionTTL: 2 * briefly, PodLease: time.Minute}, run: func(f *fixture) {
			pod := f.pod("a")
			kept, left := f.claim("kept", pod), f.claim("left", pod)
			camera := []registry.ToolSpec{tool("camera", "x")}
			f.putTools(kept, camera...)
			f.putTools(left, camera...)
			f.eventually("the session that is not refreshed expires", func() bool {
				f.wantRefresh(registry.Entry{Session: kept, Tools: camera}, 0, 0)
				return names(f.list(registry.Query{})) == "kept(camera)"
			})
			f.wantList(registry.Query{Tool: "camera"}, "kept(camera)")
			if err := f.store.SetTools(f.ctx, left, []registry.ToolSpec{tool("late", "x")}); err == nil {
				f.Error("a late write to an expired session succeeded")
			}
			f.wantList(registry.Query{}, "kept(camera)")
		}},
	{name: "restore writes again what the store lost",
		limits: registry.Limits{SessionTTL: briefly, PodLease: time.Minute}, run: func(f *fixture) {
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
			f.must(err)
			if restored.Generation < s.Generation {
				f.Errorf("generation went back from %d to %d", s.Generation, restored.Generation)
			}
			q := registry.Query{Tool: "camera", Target: registry.Target{DeviceID: "d1"}}
			f.wantList(q, "s1(camera)")
		}},
	{name: "a failed write and a restore without an answer are missing at the next refresh", run: func(f *fixture) {
		s := f.claim("s1", f.pod("a"), device("d1"))
		e := registry.Entry{Session: s, Tools: []registry.ToolSpec{tool("camera", "x")}}
		f.wantRefresh(e, 1, 0) // the tools have not been written
		for range 2 {          // the first reply is lost
			restored, err := f.store.Restore(f.ctx, e)
			if err != nil || restored.Generation < s.Generation {
				f.Fatalf("restored %d after %d, %v", restored.Generation, s.Generation, err)
			}
			e.Session.Generation = restored.Generation
			f.wantRefresh(e, 0, 0)
			e.Session.Generation = s.Generation
			if _, lost, err := f.store.Refresh(f.ctx, []registry.Entry{e}); err != nil || len(lost) != 0 {
				f.Errorf("a pod that did not hear of its restore lost its session: %v, %v", lost, err)
			}
		}
		f.wantList(registry.Query{}, "s1(camera)")
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

// wantRefresh refreshes an entry, and checks how many sessions are missing and lost.
func (f *fixture) wantRefresh(e registry.Entry, missing, lost int) {
	f.Helper()
	m, l, err := f.store.Refresh(f.ctx, []registry.Entry{e})
	if err != nil || len(m) != missing || len(l) != lost {
		f.Fatalf("refresh: missing %v, lost %v, %v; want %d and %d", m, l, err, missing, lost)
	}
}

// wantRelease releases a claim, and checks whether it was the current one.
func (f *fixture) wantRelease(s registry.Session, want bool) {
	f.Helper()
	if released, err := f.store.Release(f.ctx, s, 0); err != nil || released != want {
		f.Fatalf("released: %v, %v, want %v", released, err, want)
	}
}

func device(id string) func(*registry.Session) {
	return func(s *registry.Session) { s.DeviceID = id }
}
