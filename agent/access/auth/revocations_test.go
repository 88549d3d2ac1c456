package auth_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
)

// tokenOf makes a pod take every token with two dots for a JWT of this identity.
func (g *gatekeeper) tokenOf(id auth.Identity) {
	id.Tenant, id.Issued = "acme", time.Now()
	g.chain.JWT = auth.AuthenticatorFunc(func(context.Context, *http.Request, string) (auth.Identity, error) {
		return id, nil
	})
}

const token = "a.b.c"

// flood fills the log of changes with those of another tenant, until nothing of before is in it.
func (s *watchedStore) flood(t *testing.T) {
	t.Helper()
	for i := range registry.ChangeCap + 1 {
		if _, err := s.AppendChange(t.Context(), registry.CredentialChange{
			Tenant: "evil", Kind: registry.ChangeCredential, ID: fmt.Sprint(i), Revoked: true,
		}); err != nil {
			t.Fatal(err)
		}
	}
	page, err := s.Changes(t.Context(), registry.FeedID{}, 1)
	if err != nil || len(page.Changes) != 1 || page.Changes[0].Tenant != "evil" {
		t.Fatalf("the log begins with %+v, %v", page.Changes, err)
	}
}

// One tenant pushes everything of another out of the log: what that has revoked stays revoked, on pods that start later
// and on those that have not read it, and what these hold ends.
func TestAFullLogRevivesNobody(t *testing.T) {
	for name, tc := range map[string]struct {
		id   auth.Identity
		kind registry.ChangeKind
		what string
	}{
		"user":   {auth.Identity{User: "ann", Credential: "jwt:j1"}, registry.ChangeUser, "ann"},
		"device": {auth.Identity{Device: "phone", Credential: "jwt:j1"}, registry.ChangeDevice, "phone"},
		"token":  {auth.Identity{Credential: "jwt:j1"}, registry.ChangeJWT, "j1"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newWatchedStore()
				before := newGatekeeper(t, store)
				before.tokenOf(tc.id)
				before.revoke(registry.ChangeUser, "somebody")
				time.Sleep(time.Second)
				held, release := before.live.Bind(t.Context(), new(before.ask(token, "")))
				defer release()
				before.revoke(tc.kind, tc.what)
				store.flood(t) // before anybody has read it
				later := newGatekeeper(t, store)
				later.tokenOf(tc.id)
				time.Sleep(time.Second)
				later.ask(token, registry.CodeUnauthenticated)
				before.ask(token, registry.CodeUnauthenticated)
				if !errors.Is(context.Cause(held), registry.CodeUnauthenticated) {
					t.Errorf("what is held goes on: %v", context.Cause(held))
				}
				later.tokenOf(auth.Identity{User: "ben", Credential: "jwt:j2"})
				later.ask(token, "")
			})
		})
	}
}

// Nobody whom a tenant may have revoked is let in as long as that is not known. Once it is, tokens need no store.
func TestWhatIsRememberedCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGatekeeper(t, newWatchedStore())
		g.tokenOf(auth.Identity{User: "ann", Credential: "jwt:j1"})
		g.store.away.Store(true)
		g.ask(token, registry.CodeStoreUnavailable)
		g.store.away.Store(false)
		g.ask(token, "")
		g.store.away.Store(true)
		g.ask(token, "")
	})
}

// A tenant that revokes as much as it may is told so, and what to do.
func TestATenantRevokesTooMuch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		issuer := auth.Issuer{Store: memory.New(memory.Options{Limits: registry.Limits{Revocations: 3}})}
		revoke := func(kind registry.ChangeKind, id string) error {
			_, err := issuer.Revoke(t.Context(), "acme", kind, id)
			return err
		}
		for i := range 3 {
			if err := revoke(registry.ChangeJWT, fmt.Sprint(i)); err != nil {
				t.Fatal(err)
			}
		}
		if err := revoke(registry.ChangeJWT, "3"); !errors.Is(err, registry.CodeRateLimited) ||
			registry.AsError(err).RetryAfter != registry.DefaultChangeTTL {
			t.Errorf("answered %v", err)
		}
		if err := revoke(registry.ChangeUser, "ann"); err != nil {
			t.Errorf("the user could not be revoked: %v", err)
		}
	})
}

// Verify asks the store about what this pod cannot know: a credential that is gone, though no line of the log says so,
// and what was revoked a moment ago.
func TestVerifyAsksTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGatekeeper(t, newWatchedStore())
		g.create(registry.CredentialKey, "k1")
		asked := time.Now()
		want := func(id auth.Identity, want registry.Code) {
			t.Helper()
			id.Tenant = "acme"
			err := g.live.Verify(t.Context(), &id)
			if want == "" && err != nil || want != "" && !errors.Is(err, want) {
				t.Errorf("%+v: answered %v, want %q", id, err, want)
			}
		}
		time.Sleep(time.Second)
		g.revoke(registry.ChangeUser, "eve")
		want(auth.Identity{Credential: "key:k1", User: "ann"}, "")
		want(auth.Identity{Credential: "key:k2"}, registry.CodeUnauthenticated)
		want(auth.Identity{Credential: "device:k2", Device: "phone"}, registry.CodeUnauthenticated)
		want(auth.Identity{User: "eve", Issued: asked}, registry.CodeUnauthenticated)
		want(auth.Identity{User: "eve", Issued: time.Now().Add(time.Second)}, "")
		want(auth.Identity{Credential: auth.CredentialToken, Admin: true}, "")
		want(auth.Identity{Expires: asked}, registry.CodeUnauthenticated)
		g.store.away.Store(true)
		want(auth.Identity{User: "ann"}, registry.CodeStoreUnavailable)
		want(auth.Identity{Credential: "key:k1"}, registry.CodeStoreUnavailable)
		want(auth.Identity{Credential: auth.CredentialToken, Admin: true}, "")
	})
}
