package registrytest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/farhand/farhand/registry"
)

var listingTests = []subtest{
	{name: "sessions are listed in the order of connecting", run: func(f *fixture) {
		pod := f.pod("a")
		var want []string
		for i := range 10 {
			name := fmt.Sprintf("s%d", (i*7)%10)
			f.claim(name, pod)
			want = append(want, name+"()")
		}
		f.wantList(registry.Query{}, strings.Join(want, " "))
		slices.Reverse(want)
		f.wantList(registry.Query{Newest: true, Limit: 1}, strings.Join(want, " "))
	}},
	{name: "filters combine", run: func(f *fixture) {
		pod := f.pod("a")
		for i := range 8 {
			s := f.claim(fmt.Sprintf("s%d", i), pod, func(s *registry.Session) {
				s.DeviceID = fmt.Sprintf("d%d", i%4)
				s.UserID, s.Bound = fmt.Sprintf("u%d", i%2), i == 6
				s.Labels = map[string]string{"half": fmt.Sprint(i / 4), "all": "y"}
			})
			f.putTools(s, tool(fmt.Sprintf("tool%d", i%2), "x"), tool("common", "x"))
		}
		for _, c := range []struct {
			tool   string
			target registry.Target
			want   string
		}{
			{"tool1", registry.Target{UserID: "u1", Labels: map[string]string{"half": "1", "all": "y"}}, "s5 s7"},
			{"", registry.Target{SessionID: "s3"}, "s3"},
			{"tool0", registry.Target{SessionID: "s3"}, ""},
			{"", registry.Target{DeviceID: "d2"}, "s2 s6"},
			{"", registry.Target{DeviceID: "d2", Bound: true}, "s6"},
			{"tool1", registry.Target{DeviceID: "d2", Bound: true}, ""},
			{"common", registry.Target{DeviceID: "d2", Labels: map[string]string{"half": "0"}}, "s2"},
			{"", registry.Target{SessionID: "nobody"}, ""},
			{"nothing", registry.Target{}, ""},
		} {
			var got []string
			for _, e := range f.list(registry.Query{Tool: c.tool, Target: c.target}) {
				got = append(got, e.Session.Key.Session)
			}
			if strings.Join(got, " ") != c.want {
				f.Errorf("%+v: %v", c, got)
			}
		}
	}},
	{name: "paging neither skips nor repeats while sessions come and go", run: func(f *fixture) {
		pod := f.pod("a")
		var all []registry.Session
		for i := range 12 {
			all = append(all, f.claim(fmt.Sprintf("s%02d", i), pod))
		}
		var seen []string
		q := registry.Query{Tenant: f.tenant, Limit: 4}
		for round := 0; ; round++ {
			page, next, err := f.store.List(f.ctx, q)
			f.must(err)
			for _, e := range page {
				seen = append(seen, e.Session.Key.Session)
			}
			if next == nil {
				break
			}
			q.After = *next
			if round == 0 { // an entry already read and a later one leave; a new one comes
				for _, i := range []int{1, 9} {
					f.must(errOf(f.store.Release(f.ctx, all[i], 0)))
				}
				f.claim("new", pod)
			}
		}
		want := "s00 s01 s02 s03 s04 s05 s06 s07 s08 s10 s11 new"
		if got := strings.Join(seen, " "); got != want {
			f.Errorf("saw  %s\nwant %s", got, want)
		}
	}},
	{name: "equal tools are one group with their number of sessions", run: func(f *fixture) {
		pod := f.pod("a")
		for i := range 7 {
			f.putTools(f.claim(fmt.Sprintf("s%d", i), pod),
				tool("common", "x"), tool("split", fmt.Sprint(i%2)), tool(fmt.Sprintf("own%d", i), "x"))
		}
		got := f.groups(registry.OfferedToolQuery{})
		if len(got) != 10 || got["common x"] != 7 || got["split 0"] != 4 || got["split 1"] != 3 || got["own3 x"] != 1 {
			f.Errorf("groups %v", got)
		}
		got = f.groups(registry.OfferedToolQuery{Name: "split"})
		if len(got) != 2 || got["split 0"] != 4 {
			f.Errorf("groups by name %v", got)
		}
	}},
	{name: "two tenants never see each other", run: func(f *fixture) {
		pod := f.pod("a")
		f.putTools(f.claim("same", pod, device("d1")), tool("camera", "mine"))
		other := registry.Session{Key: registry.Key{Tenant: f.tenant + "x", Session: "same"}, Pod: pod, DeviceID: "d1"}
		claim, err := f.store.Claim(f.ctx, other)
		if err != nil || claim.Previous != nil {
			f.Fatalf("claim in the other tenant: %+v, %v", claim.Previous, err)
		}
		f.putTools(claim.Session, tool("camera", "theirs"), tool("secret", "theirs"))
		for what, q := range map[string]registry.Query{
			"all": {}, "tool": {Tool: "camera"}, "device": {Target: registry.Target{DeviceID: "d1"}},
			"session": {Target: registry.Target{SessionID: "same"}},
		} {
			if got := f.list(q); len(got) != 1 || got[0].Tools[0].Description != "mine" {
				f.Errorf("%s: %+v", what, got)
			}
		}
		f.wantGroups(registry.OfferedToolQuery{}, map[string]int{"camera mine": 1})
		f.must(errOf(f.store.Release(f.ctx, claim.Session, 0)))
		f.wantList(registry.Query{}, "same(camera)")
	}},
}
