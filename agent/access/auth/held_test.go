package auth_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/registry"
)

// What is held ends with the reason when its credential is revoked, its user, its device, or when it expires; nothing
// else ends.
func TestWhatIsHeldEnds(t *testing.T) {
	for name, tc := range map[string]struct {
		id   auth.Identity
		end  func(*gatekeeper)
		ends bool
	}{
		"a key": {auth.Identity{Credential: "key:k1"}, func(g *gatekeeper) {
			g.revoke(registry.ChangeCredential, "k1")
		}, true},
		"another key": {auth.Identity{Credential: "key:k2"}, func(g *gatekeeper) {
			g.revoke(registry.ChangeCredential, "k1")
		}, false},
		"a device's credential": {auth.Identity{Credential: "device:k1"}, func(g *gatekeeper) {
			g.revoke(registry.ChangeCredential, "k1")
		}, true},
		"a token": {auth.Identity{Credential: "jwt:j1", User: "ann"}, func(g *gatekeeper) {
			g.revoke(registry.ChangeJWT, "j1")
		}, true},
		"a key of the name of a token": {auth.Identity{Credential: "jwt:k1"}, func(g *gatekeeper) {
			g.revoke(registry.ChangeCredential, "k1")
		}, false},
		"a user": {auth.Identity{User: "ann"}, func(g *gatekeeper) { g.revoke(registry.ChangeUser, "ann") }, true},
		"another user": {auth.Identity{User: "ben"}, func(g *gatekeeper) {
			g.revoke(registry.ChangeUser, "ann")
		}, false},
		"a user of another tenant": {auth.Identity{Tenant: "other", User: "ann"}, func(g *gatekeeper) {
			g.revoke(registry.ChangeUser, "ann")
		}, false},
		"a device": {auth.Identity{Device: "phone"}, func(g *gatekeeper) {
			g.revoke(registry.ChangeDevice, "phone")
		}, true},
		"what was issued later": {auth.Identity{User: "ann", Issued: time.Now().Add(1e6 * time.Hour)},
			func(g *gatekeeper) { g.revoke(registry.ChangeUser, "ann") }, false},
		"an end": {auth.Identity{Expires: time.Date(2000, 1, 1, 0, 0, 1, 0, time.UTC)},
			func(*gatekeeper) {}, true}, // in a bubble it is midnight
		"a later end": {auth.Identity{Expires: time.Date(2000, 1, 1, 0, 0, 9, 0, time.UTC)},
			func(*gatekeeper) {}, false},
		"the one token": {auth.Identity{Tenant: "acme", Admin: true, Credential: "token"}, func(g *gatekeeper) {
			g.revoke(registry.ChangeUser, "token")
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGatekeeper(t, newWatchedStore())
				if tc.id.Tenant == "" {
					tc.id.Tenant = "acme"
				}
				ctx, release := g.live.Bind(t.Context(), &tc.id)
				other, let := g.live.Bind(t.Context(), &tc.id) // what lets go in time is not told
				let()
				tc.end(g)
				time.Sleep(2 * time.Second)
				if ended := ctx.Err() != nil; ended != tc.ends {
					t.Errorf("ended: %v", ended)
				}
				if tc.ends && !errors.Is(context.Cause(ctx), registry.CodeUnauthenticated) {
					t.Errorf("the cause is %v", context.Cause(ctx))
				}
				if tc.ends && errors.Is(context.Cause(other), registry.CodeUnauthenticated) {
					t.Error("what let go was told")
				}
				release()
				release()
				if n := g.live.Bound(); n != 0 {
					t.Errorf("%d are held", n)
				}
			})
		})
	}
}

// Whoever holds an identity that has ended already learns that at once.
func TestHoldingWhatHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGatekeeper(t, newWatchedStore())
		id := g.ask(g.create(registry.CredentialKey, "k1"), "")
		if _, err := g.store.RevokeCredential(t.Context(), "acme", "k1"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		ctx, release := g.live.Bind(t.Context(), &id)
		defer release()
		if !errors.Is(context.Cause(ctx), registry.CodeUnauthenticated) {
			t.Errorf("the cause is %v", context.Cause(ctx))
		}
	})
}
