package auth_test

import (
	"cmp"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/registry"
)

// What each role may, and what an admin may beside all of it.
func TestRoles(t *testing.T) {
	t.Parallel()
	for names, want := range map[string]struct {
		device, caller, approver bool
		shown                    string
	}{
		"":                {shown: ""},
		"device":          {device: true, shown: "device"},
		"caller":          {caller: true, shown: "caller"},
		"approver caller": {caller: true, approver: true, shown: "caller approver"},
		"admin":           {true, true, true, "admin"},
		"admin device":    {true, true, true, "device admin"},
	} {
		id := auth.Identity{Roles: auth.RoleApprover, Admin: true} // which the names replace
		if err := id.SetRoles(strings.Fields(names)...); err != nil {
			t.Errorf("%q: %v", names, err)
		}
		for role, has := range map[string][3]bool{
			auth.NameDevice:   {want.device, id.Has(auth.RoleDevice), id.HasNamed(auth.NameDevice)},
			auth.NameCaller:   {want.caller, id.Has(auth.RoleCaller), id.HasNamed(auth.NameCaller)},
			auth.NameApprover: {want.approver, id.Approves(), id.HasNamed(auth.NameApprover)},
		} {
			if has[1] != has[0] || has[2] != has[0] {
				t.Errorf("%q has %s: %v", names, role, has[1:])
			}
		}
		if got := strings.Join(id.RoleNames(), " "); got != want.shown {
			t.Errorf("%q is shown as %q", names, got)
		}
	}
	if err := new(auth.Identity).SetRoles("caller", "root"); !errors.Is(err, registry.CodeInvalidRequest) ||
		!strings.Contains(err.Error(), strings.Join(auth.RoleNames(), ", ")) {
		t.Errorf("an unknown role: %v", err)
	}
	for has, said := range map[auth.Roles]string{0: "none", auth.RoleDevice | auth.RoleCaller: "device, caller"} {
		err := auth.NeedRole(auth.Identity{Roles: has}, auth.NameApprover, auth.NameAdmin)
		if err.Code != registry.CodeForbidden || !strings.Contains(err.Message, "approver or admin") ||
			!strings.Contains(err.Message, ": "+said+".") {
			t.Errorf("told %q", err.Message)
		}
	}
}

// Who sees what belongs to whom, and under what name own things are kept.
func TestWhoseThings(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		id            auth.Identity
		sees          string // of ann, ben and nobody
		viewer, scope string
		owns          bool
	}{
		"a user": {
			auth.Identity{User: "ann", Credential: "key:k1"}, "ann nobody", "ann", "user:ann", false,
		},
		"a key of nobody":    {auth.Identity{Credential: "key:k1"}, "ann ben nobody", "", "key:k1", false},
		"a device of nobody": {auth.Identity{Credential: "device:d1"}, "ann ben nobody", "", "device:d1", false},
		"a token of nobody":  {auth.Identity{Credential: "jwt:j1"}, "ann ben nobody", "", "", false},
		"the one token":      {auth.Identity{Admin: true, Credential: "token"}, "ann ben nobody", "", "", true},
		"a named admin":      {auth.Identity{Admin: true, User: "ann"}, "ann ben nobody", "", "user:ann", false},
	} {
		var sees []string
		for _, user := range []string{"ann", "ben", ""} {
			if tc.id.Sees(user) {
				sees = append(sees, cmp.Or(user, "nobody"))
			}
		}
		if got := strings.Join(sees, " "); got != tc.sees || tc.id.Viewer() != tc.viewer || tc.id.Scope() != tc.scope ||
			tc.id.OwnsAll() != tc.owns {
			t.Errorf("%s: sees %q, viewer %q, scope %q, owns %v", name, got, tc.id.Viewer(), tc.id.Scope(),
				tc.id.OwnsAll())
		}
	}
}

// A JWT that expires takes nothing from its user and device, who may come back with another one. A key does.
func TestHoldersOutliveTheirJWTs(t *testing.T) {
	t.Parallel()
	for credential, outlives := range map[string]bool{
		"jwt:1": true, "key:1": false, "device:1": false, "token": false,
	} {
		id := auth.Identity{User: "ann", Credential: credential, Expires: time.Unix(1, 0), Issued: time.Unix(0, 1)}
		holder := id.AsHolder()
		if holder.Expires.IsZero() != outlives || holder.Holder() != id.Holder() || holder.Issued != id.Issued {
			t.Errorf("%s: %+v", credential, holder)
		}
	}
}
