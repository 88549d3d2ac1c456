package registrytest

import (
	"time"

	"github.com/farhand/farhand/registry"
)

var versionTests = []subtest{
	{name: "every change makes another version", run: func(f *fixture) {
		pod := f.pod("a")
		seen := map[string]string{f.version(): "the start"}
		changed := func(what string, err error) {
			f.Helper()
			if err != nil {
				f.Fatalf("%s: %v", what, err)
			}
			v := f.version()
			if before, ok := seen[v]; ok {
				f.Errorf("the version after %s is that after %s", what, before)
			}
			seen[v] = what
		}
		s := f.claim("s1", pod)
		changed("a claim", nil)
		tools := []registry.ToolSpec{tool("a", "x")}
		changed("tools", f.store.SetTools(f.ctx, s, tools))
		changed("other tools", f.store.SetTools(f.ctx, s, []registry.ToolSpec{tool("a", "y")}))
		changed("the first tools again", f.store.SetTools(f.ctx, s, tools))
		s.DeviceID = "d"
		changed("an update", f.store.Update(f.ctx, s))
		s, err := f.store.Restore(f.ctx, registry.Entry{Session: s, Tools: tools})
		changed("a restore", err)
		_, err = f.store.Release(f.ctx, s, 0)
		changed("a release", err)
		f.claim("s1", pod)
		changed("the next claim", nil)
	}},
	{name: "without a change the version stays", run: func(f *fixture) {
		s := f.claim("s1", f.pod("a"))
		e := registry.Entry{Session: s, Tools: []registry.ToolSpec{tool("a", "x")}}
		f.putTools(s, e.Tools...)
		f.eventually("the version is the same before and after reading and refreshing", func() bool {
			before := f.version() // pods of other subtests may come and go between the two
			f.list(registry.Query{Tool: "a"})
			f.groups(registry.OfferedToolQuery{})
			if _, _, err := f.store.Refresh(f.ctx, []registry.Entry{e}); err != nil {
				f.Fatal(err)
			}
			return f.version() == before
		})
	}},
	{name: "the death of a pod makes another version",
		limits: registry.Limits{SessionTTL: time.Minute, PodLease: 400 * time.Millisecond}, run: func(f *fixture) {
			s := f.claim("s1", f.pod("a"))
			f.putTools(s, tool("a", "x"))
			before := f.version()
			f.eventually("the session is not listed", func() bool { return len(f.list(registry.Query{})) == 0 })
			f.eventually("the version has changed", func() bool { return f.version() != before })
		}},
}

func (f *fixture) version() string {
	f.Helper()
	v, err := f.store.Version(f.ctx, f.tenant)
	f.must(err)
	return v
}
