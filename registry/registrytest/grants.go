package registrytest

import (
	"fmt"
	"time"

	"github.com/farhand/farhand/registry"
)

var grantTests = []subtest{
	{name: "a grant is found by what it is bound to, and by nothing else", run: func(f *fixture) {
		a := f.approval(func(a *registry.Approval) { a.DeviceID, a.Owner, a.Requester.User = "d1", "ann", "ben" })
		g := f.grant(registry.GrantOf(a, registry.ScopeAlwaysArgs), time.Hour)
		if g.ExpiresAt.Sub(g.CreatedAt) != time.Hour || g.ArgsDigest != "a1" {
			f.Errorf("made %+v", g)
		}
		if got := f.covering(a); got.ID != g.ID || got != g {
			f.Errorf("found %+v, want %+v", got, g)
		}
		for name, change := range map[string]func(*registry.Approval){
			"tool":       func(a *registry.Approval) { a.Tool = "other" },
			"definition": func(a *registry.Approval) { a.DefinitionHash = "d2" },
			"arguments":  func(a *registry.Approval) { a.ArgsDigest = "a2" },
			"device":     func(a *registry.Approval) { a.DeviceID = "d2" },
			"owner":      func(a *registry.Approval) { a.Owner = "eve" },
			"unowned":    func(a *registry.Approval) { a.Unowned = true },
			"requester":  func(a *registry.Approval) { a.Requester.User = "eve" },
			"model":      func(a *registry.Approval) { a.Model = true },
			"rule":       func(a *registry.Approval) { a.Rules = "default:confirm-direct group" },
		} {
			other := a
			change(&other)
			if got := f.covering(other); got.ID != "" || g.Covers(other) {
				f.Errorf("another %s is covered by %+v", name, got)
			}
		}
		_, err := f.store.FindGrant(f.ctx, f.tenant+"x", g.Binding())
		f.wantNoApproval(err)
	}},
	{name: "a grant for a tool covers all arguments", run: func(f *fixture) {
		a := f.approval()
		g := f.grant(registry.GrantOf(a, registry.ScopeAlwaysTool), time.Hour)
		a.ArgsDigest = "a2"
		if got := f.covering(a); got.ID != g.ID || !g.Covers(a) {
			f.Errorf("found %+v, want %+v", got, g)
		}
	}},
	{name: "grants are listed, replaced and revoked", run: func(f *fixture) {
		a := f.approval()
		former := f.grant(registry.GrantOf(a, registry.ScopeAlwaysTool), time.Hour)
		tool := f.grant(registry.GrantOf(a, registry.ScopeAlwaysTool), 2*time.Hour)
		args := f.grant(registry.GrantOf(a, registry.ScopeAlwaysArgs), time.Minute)
		all, err := f.store.Grants(f.ctx, f.tenant)
		f.must(err)
		if len(all) != 2 || all[0] != args || all[1] != tool {
			f.Fatalf("listed %+v, want %+v", all, []registry.Grant{args, tool})
		}
		f.wantNoApproval(f.store.RevokeGrant(f.ctx, former))
		if got := f.covering(a); got.ID == "" {
			f.Error("the revocation of a former grant revoked its successor")
		}
		for _, g := range []registry.Grant{tool, args} {
			f.must(f.store.RevokeGrant(f.ctx, g))
			f.wantNoApproval(f.store.RevokeGrant(f.ctx, g))
		}
		if got := f.covering(a); got.ID != "" {
			f.Errorf("found %+v", got)
		}
	}},
	{name: "a grant expires", run: func(f *fixture) {
		a := f.approval()
		f.grant(registry.GrantOf(a, registry.ScopeAlwaysTool), briefly)
		f.eventually("it covers nothing", func() bool { return f.covering(a).ID == "" })
		all, err := f.store.Grants(f.ctx, f.tenant)
		f.must(err)
		if len(all) > 0 {
			f.Errorf("listed %+v", all)
		}
	}},
	{name: "a tenant may have so many grants", run: func(f *fixture) {
		a := f.approval()
		for i := range registry.MaxGrants {
			a.SessionID = registry.NewApprovalID()
			g := registry.GrantOf(a, registry.ScopeAlwaysTool)
			g.ID, g.GrantedBy = registry.NewApprovalID(), fmt.Sprint("giver ", i/registry.MaxGrantsOfOne)
			f.must(errOf(f.store.PutGrant(f.ctx, g, time.Hour)))
		}
		f.grant(registry.GrantOf(a, registry.ScopeAlwaysTool), time.Hour) // replaces the last
		a.SessionID = "one more"
		g := registry.GrantOf(a, registry.ScopeAlwaysTool)
		g.ID = registry.NewApprovalID()
		_, err := f.store.PutGrant(f.ctx, g, time.Hour)
		f.wantCode(err, registry.CodeBusy)
	}},
	{name: "a giver may have so many grants", run: func(f *fixture) {
		a := f.approval(func(a *registry.Approval) { a.Owner = "eve" })
		give := func(by, with string, i int) (registry.Grant, error) {
			a.SessionID = fmt.Sprint(by, with, i)
			g := registry.GrantOf(a, registry.ScopeAlwaysTool)
			g.ID, g.GrantedBy, g.GivenWith = registry.NewApprovalID(), by, with
			return f.store.PutGrant(f.ctx, g, time.Hour)
		}
		many := func(err error) {
			f.Helper()
			if f.wantCode(err, registry.CodeBusy); err.Error() != registry.ErrManyGrantsOfOne.Error() {
				f.Errorf("%v", err)
			}
		}
		for i := range registry.MaxGrantsOfOne {
			f.must(errOf(give("ann", "", i)))
			f.must(errOf(give(fmt.Sprint("device:", i), fmt.Sprint("jwt:", i), 0))) // all of eve's devices
		}
		many(errOf(give("ann", "", -1)))
		many(errOf(give("device:one more", "jwt:one more", 0)))
		f.must(errOf(give("ann", "", 0))) // replaces its own
		last, err := give("ben", "", 0)
		f.must(err)

		// A grant of another giver that replaces one, and a revocation, make room.
		a.SessionID = fmt.Sprint("ann", "", 1)
		g := registry.GrantOf(a, registry.ScopeAlwaysTool)
		g.ID, g.GrantedBy = registry.NewApprovalID(), "ben"
		f.must(errOf(f.store.PutGrant(f.ctx, g, time.Hour)))
		f.must(errOf(give("ann", "", -1)))
		many(errOf(give("ann", "", -2)))
		f.must(f.store.RevokeGrant(f.ctx, last))
		a.Owner = "ann"
		for i := range registry.MaxGrantsOfOne { // of different ids with one key
			f.must(errOf(give(fmt.Sprint("device:", i), "key:1", i)))
			a.Owner = fmt.Sprint("user", i)
		}
		many(errOf(give("device:one more", "key:1", 0)))
	}},
}

func (f *fixture) grant(g registry.Grant, life time.Duration) registry.Grant {
	f.Helper()
	g.ID, g.GrantedBy = registry.NewApprovalID(), "ann"
	made, err := f.store.PutGrant(f.ctx, g, life)
	f.must(err)
	return made
}

// covering returns the grant that covers the call of an approval, the zero Grant if there is none.
func (f *fixture) covering(a registry.Approval) registry.Grant {
	f.Helper()
	g, err := f.store.FindGrant(f.ctx, f.tenant, registry.GrantOf(a, registry.ScopeAlwaysTool).Binding(),
		registry.GrantOf(a, registry.ScopeAlwaysArgs).Binding())
	if registry.AsError(err).Code != registry.CodeNotFound && err != nil {
		f.Fatal(err)
	}
	return g
}
