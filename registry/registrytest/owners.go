package registrytest

import (
	"errors"
	"fmt"
	"sync"

	"github.com/farhand/farhand/registry"
)

// ownerTests check which users and devices may claim sessions that credentials name, and which viewers see them.
var ownerTests = []subtest{
	{name: "a session is claimed by its user and device alone", run: func(f *fixture) {
		a, b := f.pod("a"), f.pod("b")
		anna, ben, nobody := owner{user: "anna"}, owner{user: "ben"}, owner{}
		annasPhone, annasTablet := owner{user: "anna", device: "phone"}, owner{user: "anna", device: "tablet"}
		phone, admin := owner{device: "phone"}, owner{any: true}
		for i, tc := range []struct {
			first, next owner
			granted     bool
		}{
			{anna, anna, true}, {anna, ben, false}, {anna, nobody, false}, {anna, admin, true}, {anna, phone, false},
			{nobody, anna, true}, {nobody, nobody, true}, {nobody, annasPhone, true}, {nobody, admin, true},
			{annasPhone, annasPhone, true}, {annasPhone, annasTablet, false}, {annasPhone, anna, false},
			{annasPhone, phone, false}, {annasPhone, admin, true}, {phone, phone, true}, {phone, nobody, false},
			{phone, annasPhone, true}, {phone, annasTablet, false}, {anna, annasPhone, true}, {admin, anna, true},
		} {
			for _, released := range []bool{false, true} {
				id := fmt.Sprintf("s%d-%v", i, released)
				first := f.claim(id, a, tc.first.of)
				if released {
					f.must(errOf(f.store.Release(f.ctx, first, 0)))
				}
				next := f.session(id, tc.next.of)
				next.Pod, next.Generation = b, registry.AnyHolder
				claim, err := f.store.Claim(f.ctx, next)
				if granted := err == nil; granted != tc.granted {
					f.Errorf("%+v, then %+v, released %v: %v", tc.first, tc.next, released, err)
				}
				if err != nil {
					if !errors.Is(err, registry.CodeSessionNotFound) {
						f.Errorf("refused with %v", err)
					}
					f.wantUntouched(first, released)
					continue
				}
				want := tc.next.user
				if tc.next.any {
					want = tc.first.user // the session keeps its user
				}
				e, err := f.store.Entry(f.ctx, first.Key)
				f.must(err)
				if e.Session.UserID != want || claim.Session.UserID != want || e.Session.AnyOwner {
					f.Errorf("%+v, then %+v: the session is %+v", tc.first, tc.next, e.Session)
				}
			}
		}
	}},
	{name: "of two users who claim an id in the same instant one has it", run: func(f *fixture) {
		pods := []string{f.pod("a"), f.pod("b")}
		for round := range 20 {
			id := fmt.Sprintf("s%d", round)
			var claims sync.WaitGroup
			errs := make([]error, 2)
			for i, user := range []string{"anna", "ben"} {
				claims.Go(func() {
					s := f.session(id, owner{user: user}.of)
					s.Pod = pods[i]
					_, errs[i] = f.store.Claim(f.ctx, s)
				})
			}
			claims.Wait()
			if (errs[0] == nil) == (errs[1] == nil) {
				f.Errorf("round %d: %v, %v", round, errs[0], errs[1])
			}
		}
	}},
	{name: "whose a session is that has gone", run: func(f *fixture) {
		s := f.claim("s1", f.pod("a"), owner{user: "anna", device: "phone"}.of)
		f.must(errOf(f.store.Release(f.ctx, s, 0)))
		e, err := f.store.Entry(f.ctx, s.Key)
		if !errors.Is(err, registry.CodeNotConnected) || e.Session.UserID != "anna" || e.Session.DeviceID != "phone" ||
			!e.Session.Bound {
			f.Errorf("%+v, %v", e.Session, err)
		}
	}},
	{name: "a viewer is shown their sessions and those of nobody", run: func(f *fixture) {
		pod := f.pod("a")
		for i := range 12 {
			s := f.claim(fmt.Sprintf("s%02d", i), pod, owner{user: []string{"anna", "ben", ""}[i%3]}.of, device("d"))
			f.putTools(s, tool("common", "x"), tool(fmt.Sprintf("tool%d", i%2), "x"))
		}
		sees := func(q registry.Query, want string) {
			f.Helper()
			for _, q.Limit = range []int{0, 1, 3} {
				got := ""
				for _, e := range f.list(q) {
					got += e.Session.Key.Session + " "
				}
				if got != want {
					f.Errorf("%+v: %s, want %s", q, got, want)
				}
			}
		}
		anna := registry.Target{Viewer: "anna"}
		sees(registry.Query{Target: anna}, "s00 s02 s03 s05 s06 s08 s09 s11 ")
		sees(registry.Query{Target: anna, Newest: true}, "s11 s09 s08 s06 s05 s03 s02 s00 ")
		sees(registry.Query{Target: anna, Tool: "tool1"}, "s03 s05 s09 s11 ")
		sees(registry.Query{Target: registry.Target{Viewer: "anna", UserID: "anna"}}, "s00 s03 s06 s09 ")
		sees(registry.Query{Target: registry.Target{Viewer: "anna", UserID: "ben"}}, "")
		sees(registry.Query{Target: registry.Target{Viewer: "anna", SessionID: "s01"}}, "")
		sees(registry.Query{Target: registry.Target{Viewer: "anna", SessionID: "s02"}}, "s02 ")
		sees(registry.Query{Target: registry.Target{Viewer: "anna", DeviceID: "d"}, Tool: "tool0"},
			"s00 s02 s06 s08 ")
		sees(registry.Query{Target: registry.Target{Viewer: "carl"}}, "s02 s05 s08 s11 ")
	}},
	{name: "sessions of nobody are repaired where viewers look for them", run: func(f *fixture) {
		s := f.claim("s1", f.pod("a"))
		missing, lost, err := f.store.Refresh(f.ctx, []registry.Entry{{Session: s}})
		if err != nil || len(missing) != 0 || len(lost) != 0 {
			f.Errorf("missing %v, lost %v, %v", missing, lost, err)
		}
	}},
}

// owner is the identity in the credentials of a claim.
type owner struct {
	user, device string
	any          bool
}

// of puts the owner into a session.
func (o owner) of(s *registry.Session) {
	s.UserID, s.AnyOwner = o.user, o.any
	if o.device != "" {
		s.DeviceID, s.Bound = o.device, true
	}
}

// wantUntouched checks that a rejected claim has changed nothing.
func (f *fixture) wantUntouched(first registry.Session, released bool) {
	f.Helper()
	e, err := f.store.Entry(f.ctx, first.Key)
	switch {
	case released && !errors.Is(err, registry.CodeNotConnected):
		f.Errorf("after a refused claim of a released session: %v", err)
	case !released && (err != nil || e.Session.Generation != first.Generation || e.Session.UserID != first.UserID):
		f.Errorf("after a refused claim the session is %+v, %v", e.Session, err)
	}
}
