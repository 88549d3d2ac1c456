package auth_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
)

// An admin makes keys of the own tenant that may no more than the own credential, and end with it.
func TestWhoMakesWhichKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type ask = auth.KeyRequest
		type made = registry.Credential
		none, issuer := made{}, auth.Issuer{Store: memory.New(memory.Options{})}
		soon, later := time.Now().Add(time.Hour).UTC(), time.Now().Add(2*time.Hour).UTC()
		admin := auth.Identity{Tenant: "acme", Admin: true, Credential: "key:k1"}
		with := func(change func(*auth.Identity)) auth.Identity {
			id := admin
			change(&id)
			return id
		}
		short := with(func(id *auth.Identity) { id.Expires = soon })
		session := with(func(id *auth.Identity) { id.Expires, id.Credential = soon, "jwt:j1" })
		some := with(func(id *auth.Identity) { id.Tools = "camera_*" })
		group := with(func(id *auth.Identity) { id.Context = "group" })
		phone := with(func(id *auth.Identity) { id.Device = "phone" })
		token := auth.Identity{Tenant: "default", Admin: true, Credential: auth.CredentialToken}
		caller := auth.Identity{Tenant: "acme", Roles: auth.RoleCaller | auth.RoleApprover}
		for name, tc := range map[string]struct {
			asker auth.Identity
			r     ask
			want  registry.Code
			made  made // what of the key is looked at
		}{
			"plain": {admin, ask{}, "", made{Tenant: "acme"}},
			"all of it": {admin, ask{Tools: " a   b ", Context: "group", Expires: later, Person: true}, "",
				made{Tenant: "acme", Tools: "a b", Context: "group", ExpiresAt: later, Person: true}},
			"no admin":             {caller, ask{}, registry.CodeForbidden, none},
			"another tenant":       {admin, ask{Tenant: "globex"}, registry.CodeForbidden, none},
			"by the one token":     {token, ask{Tenant: "globex"}, "", made{Tenant: "globex"}},
			"more tools":           {some, ask{}, registry.CodeForbidden, none},
			"another context":      {group, ask{}, registry.CodeForbidden, none},
			"another device":       {phone, ask{Device: "tablet"}, registry.CodeForbidden, none},
			"any device":           {phone, ask{}, registry.CodeForbidden, none},
			"the same device":      {phone, ask{Device: "phone"}, "", made{Tenant: "acme", DeviceID: "phone"}},
			"no tool":              {admin, ask{Tools: "   "}, registry.CodeInvalidRequest, none},
			"no such role":         {admin, ask{Roles: []string{"root"}}, registry.CodeInvalidRequest, none},
			"no such context":      {admin, ask{Context: "x"}, registry.CodeInvalidRequest, none},
			"ends with its maker":  {short, ask{}, "", made{Tenant: "acme", ExpiresAt: soon}},
			"not after its maker":  {short, ask{Expires: later}, "", made{Tenant: "acme", ExpiresAt: soon}},
			"an admin's session":   {session, ask{}, "", made{Tenant: "acme"}},
			"the same restriction": {some, ask{Tools: "camera_*"}, "", made{Tenant: "acme", Tools: "camera_*"}},
		} {
			secret, c, err := issuer.CreateKey(t.Context(), tc.asker, tc.r)
			if tc.want != "" {
				if !errors.Is(err, tc.want) || secret != "" {
					t.Errorf("%s: %v, want %s", name, err, tc.want)
				}
				continue
			}
			if err != nil || c.Digest != auth.SecretDigest(secret) || c.CreatedBy != tc.asker.Credential ||
				strings.Join(c.Roles, " ") != auth.NameCaller {
				t.Errorf("%s: %+v, %v", name, c, err)
			}
			if got := (made{
				Tenant: c.Tenant, Tools: c.Tools, Context: c.Context, DeviceID: c.DeviceID, ExpiresAt: c.ExpiresAt,
				Person: c.Person,
			}); fmt.Sprint(got) != fmt.Sprint(tc.made) {
				t.Errorf("%s: made %+v, want %+v", name, got, tc.made)
			}
		}
		if _, c, err := issuer.CreateFirstKey(t.Context(), ask{Roles: []string{"admin"}}); err != nil ||
			c.Tenant != registry.DefaultTenant || c.CreatedBy != "store" {
			t.Errorf("the first key: %+v, %v", c, err)
		}
	})
}

// A user's revocation ends all keys of the user that were made until then, on however many pages, and nobody else's.
func TestRevokingAUserEndsTheKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGatekeeper(t, newWatchedStore())
		issuer := auth.Issuer{Store: g.store}
		of := func(user, device string) func(*registry.Credential) {
			return func(c *registry.Credential) { c.User, c.DeviceID = user, device }
		}
		for i := range 150 {
			g.create(registry.CredentialKey, fmt.Sprintf("ann-%03d", i), of("ann", ""))
		}
		phone := g.create(registry.CredentialDevice, "phone", of("ben", "phone"))
		ben := g.create(registry.CredentialKey, "ben")
		revoke := func(kind registry.ChangeKind, id string, want int) {
			t.Helper()
			if n, err := issuer.Revoke(t.Context(), "acme", kind, id); err != nil || n != want {
				t.Errorf("%s %s: %d removed, %v", kind, id, n, err)
			}
		}
		revoke(registry.ChangeUser, "ann", 150)
		revoke(registry.ChangeUser, "ann", 0)
		g.ask(phone, "")
		revoke(registry.ChangeDevice, "phone", 1)
		time.Sleep(time.Second)
		g.ask(phone, registry.CodeUnauthenticated)
		g.ask(ben, "")
		if _, err := issuer.RevokeKey(t.Context(), "acme", "ben"); err != nil {
			t.Error(err)
		}
		g.create(registry.CredentialDevice, "tablet", of("", "tablet"))
		if _, err := issuer.RevokeKey(t.Context(), "acme", "tablet"); !errors.Is(err, registry.CodeNotFound) {
			t.Errorf("the credential of a device is taken for a key: %v", err)
		}
		revoke(registry.ChangeCredential, "device:tablet", 1)
		if _, err := issuer.Revoke(t.Context(), "acme", registry.ChangeCredential, "tablet"); !errors.Is(err,
			registry.CodeNotFound) {
			t.Errorf("revoked twice: %v", err)
		}
	})
}

// The audit log names credentials with their kinds, and so they can be revoked: a JWT, too.
func TestRevokingWhatTheAuditLogNames(t *testing.T) {
	t.Parallel()
	store := memory.New(memory.Options{})
	issuer := auth.Issuer{Store: store}
	_, key, err := issuer.CreateFirstKey(t.Context(), auth.KeyRequest{Tenant: "acme"})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{auth.CredentialName(key.Kind, key.ID), auth.CredentialJWT + ":a:b"} {
		if _, err := issuer.Revoke(t.Context(), "acme", registry.ChangeCredential, name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	revoked, err := store.Revocations(t.Context(), "acme")
	if err != nil || len(revoked) != 1 || revoked[0].Kind != registry.ChangeJWT || revoked[0].ID != "a:b" {
		t.Errorf("%+v, %v", revoked, err)
	}
}
