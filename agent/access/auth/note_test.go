package auth_test

import (
	"testing"

	"github.com/farhand/farhand/agent/access/auth"
)

// An identity comes out of its note as it went in, but for when it ends; a broken note gives no rights.
func TestNotes(t *testing.T) {
	t.Parallel()
	for _, id := range []auth.Identity{
		{}, {Admin: true, Credential: auth.CredentialToken}, {Admin: true}, {User: "anna", Roles: auth.RoleCaller},
		{User: `a"b`, Roles: auth.RoleDevice | auth.RoleApprover, Device: "phone\n1", Tools: "camera.* torch",
			Context: "group", Credential: "key:abc", Person: true}, {Person: true},
	} {
		id.Tenant = "acme"
		if got := auth.OfNote("acme", id.User, id.Note()); got != id {
			t.Errorf("%+v became %+v", id, got)
		}
	}
	for _, text := range []string{`{"admin":true`, `{"admin":true,"roles":"all"}`, `[]`, `"x"`} {
		if got := auth.OfNote("acme", "anna", text); got != (auth.Identity{Tenant: "acme", User: "anna"}) {
			t.Errorf("%s gives %+v", text, got)
		}
	}
}
