package auth_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
)

// watchedStore is a store that counts reads, and can be away.
type watchedStore struct {
	*memory.Store
	away  atomic.Bool
	reads atomic.Int64
	lost  atomic.Bool // the log is answered as if it had been emptied
}

var errAway = registry.StoreUnavailable("test", errors.New("away"))

func (s *watchedStore) Changes(ctx context.Context, after registry.FeedID, n int) (registry.ChangePage, error) {
	if s.away.Load() {
		return registry.ChangePage{}, errAway
	}
	if s.lost.Load() {
		return registry.ChangePage{}, nil
	}
	return s.Store.Changes(ctx, after, n)
}

func (s *watchedStore) Revocations(ctx context.Context, tenant string) ([]registry.CredentialChange, error) {
	if s.away.Load() {
		return nil, errAway
	}
	return s.Store.Revocations(ctx, tenant)
}

func (s *watchedStore) Credential(ctx context.Context, tenant, id string) (registry.Credential, error) {
	if s.away.Load() {
		return registry.Credential{}, errAway
	}
	return s.Store.Credential(ctx, tenant, id)
}

func (s *watchedStore) CredentialByDigest(ctx context.Context, digest string) (registry.Credential, error) {
	s.reads.Add(1)
	if s.away.Load() {
		return registry.Credential{}, errAway
	}
	return s.Store.CredentialByDigest(ctx, digest)
}

// gatekeeper is what a pod has: what says who is asking, and what ends them.
type gatekeeper struct {
	t     *testing.T
	store *watchedStore
	live  *auth.Live
	keys  *auth.Keys
	chain auth.Chain
}

// newGatekeeper starts a pod on a store. It is for a test in a bubble, whose clock stands still until all wait.
func newGatekeeper(t *testing.T, store *watchedStore) *gatekeeper {
	t.Helper()
	live := auth.NewLive(auth.LiveConfig{Store: store})
	if err := live.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	keys := auth.NewKeys(auth.KeysConfig{Store: store, Live: live})
	keys.Start()
	t.Cleanup(func() {
		keys.Close(context.Background())
		live.Close()
	})
	return &gatekeeper{t, store, live, keys, auth.Chain{
		Keys: keys, Otherwise: auth.NewStaticToken("the-one-token"), Live: live,
	}}
}

func newWatchedStore() *watchedStore { return &watchedStore{Store: memory.New(memory.Options{})} }

// create makes a credential, and returns its secret.
func (g *gatekeeper) create(kind registry.CredentialKind, id string, change ...func(*registry.Credential)) string {
	g.t.Helper()
	secret := auth.NewSecret(kind)
	c := registry.Credential{
		Tenant: "acme", ID: id, Kind: kind, Digest: auth.SecretDigest(secret), Roles: []string{"caller"},
	}
	for _, f := range change {
		f(&c)
	}
	if _, err := g.store.CreateCredential(g.t.Context(), c); err != nil {
		g.t.Fatal(err)
	}
	return secret
}

// ask presents a token, and checks the code of the answer; empty: it is let in.
func (g *gatekeeper) ask(token string, want registry.Code) auth.Identity {
	g.t.Helper()
	id, err := g.chain.Authenticate(g.t.Context(), nil, token)
	if want == "" && err != nil || want != "" && !errors.Is(err, want) {
		g.t.Fatalf("answered %v, want %q", err, want)
	}
	return id
}

func (g *gatekeeper) revoke(kind registry.ChangeKind, id string) {
	g.t.Helper()
	_, err := g.store.AppendChange(g.t.Context(), registry.CredentialChange{
		Tenant: "acme", Kind: kind, ID: id, Revoked: true,
	})
	if err != nil {
		g.t.Fatal(err)
	}
}

func TestKeysNameWhoAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGatekeeper(t, newWatchedStore())
		secret := g.create(registry.CredentialKey, "k1", func(c *registry.Credential) {
			c.Roles, c.User, c.Tools, c.Context = []string{"caller", "approver"}, "ann", "camera_*", "group"
			c.ExpiresAt = time.Now().Add(time.Hour)
		})
		id := g.ask(secret, "")
		want := auth.Identity{
			Tenant: "acme", User: "ann", Roles: auth.RoleCaller | auth.RoleApprover, Tools: "camera_*",
			Context:    "group",
			Credential: "key:k1", Secret: auth.SecretDigest(secret)[:16], Issued: id.Issued,
			Expires: id.Expires, Use: id.Use,
		}
		if id != want || id.Issued.IsZero() || id.Expires.IsZero() {
			t.Errorf("identity %+v\nwant     %+v", id, want)
		}
		device := g.ask(g.create(registry.CredentialDevice, "d1", func(c *registry.Credential) {
			c.DeviceID, c.Roles = "phone", []string{"device"}
		}), "")
		if device.Device != "phone" || device.Credential != "device:d1" || device.Roles != auth.RoleDevice {
			t.Errorf("identity %+v", device)
		}
		if !auth.NamesUsers(g.chain) {
			t.Error("keys name no users")
		}
	})
}

// What cannot be a key costs the store nothing, and guesses cost it little.
func TestGuessesAreCheap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGatekeeper(t, newWatchedStore())
		for _, token := range []string{"fhk_", "fhd_x", "fhk_" + fmt.Sprintf("%049d", 0), "", "wrong", "a.b.c"} {
			g.ask(token, registry.CodeUnauthenticated)
		}
		if n := g.store.reads.Load(); n != 0 {
			t.Errorf("%d reads for what is no key", n)
		}
		guess := auth.NewSecret(registry.CredentialKey)
		for range 100 {
			g.ask(guess, registry.CodeUnauthenticated)
		}
		known := g.create(registry.CredentialKey, "k1")
		for range 100 {
			g.ask(known, "")
		}
		if n := g.store.reads.Load(); n != 2 {
			t.Errorf("%d reads, want one of each", n)
		}
		// The key of a device is none of a caller, and the other way round.
		g.ask(auth.NewSecret(registry.CredentialDevice), registry.CodeUnauthenticated)
	})
}

// A key that was tried too early is usable within a second, on every pod.
func TestANewKeyIsUsableSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newWatchedStore()
		a, b := newGatekeeper(t, store), newGatekeeper(t, store)
		secret := auth.NewSecret(registry.CredentialKey)
		a.ask(secret, registry.CodeUnauthenticated)
		b.ask(secret, registry.CodeUnauthenticated)
		if _, err := store.CreateCredential(t.Context(), registry.Credential{
			Tenant: "acme", ID: "k1", Kind: registry.CredentialKey, Digest: auth.SecretDigest(secret),
		}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		a.ask(secret, "")
		b.ask(secret, "")
	})
}

// A revoked credential, user or device is refused within a second on every pod, also one that remembers the credential;
// who was issued a new one afterwards is let in.
func TestRevokedIdentitiesAreRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		kind registry.ChangeKind
		id   string
	}{
		"user": {registry.ChangeUser, "ann"}, "device": {registry.ChangeDevice, "phone"}, "credential": {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newWatchedStore()
				a, b := newGatekeeper(t, store), newGatekeeper(t, store)
				of := func(c *registry.Credential) { c.User, c.DeviceID = "ann", "phone" }
				secret, other := a.create(registry.CredentialKey, "k1", of), a.create(registry.CredentialKey, "k2")
				a.ask(secret, "")
				b.ask(secret, "")
				time.Sleep(time.Millisecond)
				if tc.kind == "" {
					if _, err := store.RevokeCredential(t.Context(), "acme", "k1"); err != nil {
						t.Fatal(err)
					}
				} else {
					a.revoke(tc.kind, tc.id)
				}
				time.Sleep(time.Second)
				a.ask(secret, registry.CodeUnauthenticated)
				b.ask(secret, registry.CodeUnauthenticated)
				b.ask(other, "")
				b.ask(a.create(registry.CredentialKey, "k3", of), "")
				// A pod that starts now knows it, too.
				newGatekeeper(t, store).ask(secret, registry.CodeUnauthenticated)
			})
		})
	}
}

func TestAnUpdateOfAKeyCountsSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGatekeeper(t, newWatchedStore())
		secret := g.create(registry.CredentialKey, "k1")
		g.ask(secret, "")
		if _, err := g.store.UpdateCredential(t.Context(), "acme", "k1", func(c *registry.Credential) error {
			c.Roles = []string{"approver"}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if id := g.ask(secret, ""); id.Roles != auth.RoleApprover {
			t.Errorf("roles %v", id.RoleNames())
		}
	})
}

// While a pod cannot know who was revoked, identities from the store are refused as unavailable, also those that are
// remembered. The one token needs no store.
func TestTheStoreIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGatekeeper(t, newWatchedStore())
		secret := g.create(registry.CredentialKey, "k1")
		g.ask(secret, "")
		_, release := g.live.Bind(t.Context(), new(g.ask(secret, "")))
		defer release()
		g.store.away.Store(true)
		time.Sleep(3 * time.Second)
		g.ask(secret, registry.CodeStoreUnavailable)
		g.ask(auth.NewSecret(registry.CredentialKey), registry.CodeStoreUnavailable)
		g.ask("fhk_malformed", registry.CodeUnauthenticated)
		g.ask("the-one-token", "")
		g.store.away.Store(false)
		time.Sleep(time.Second)
		g.ask(secret, "")
		// A read that fails is no key that is wrong.
		fresh := g.create(registry.CredentialKey, "k2")
		g.store.away.Store(true)
		g.ask(fresh, registry.CodeStoreUnavailable)
	})
	t.Run("from the start", func(t *testing.T) {
		store := newWatchedStore()
		store.away.Store(true)
		live := auth.NewLive(auth.LiveConfig{Store: store})
		if err := live.Start(t.Context()); !errors.Is(err, registry.CodeStoreUnavailable) {
			t.Errorf("started with %v", err)
		}
		live.Close()
	})
}

// If the log was lost, all credentials that are held are looked up: those that are gone end, the others stay.
func TestALostLogHasEverythingLookedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGatekeeper(t, newWatchedStore())
		gone := g.ask(g.create(registry.CredentialKey, "k1"), "")
		stays := g.ask(g.create(registry.CredentialKey, "k2"), "")
		g.revoke(registry.ChangeUser, "other")
		time.Sleep(time.Second)
		synctest.Wait() // the log was read up to here
		ended, release := g.live.Bind(t.Context(), &gone)
		defer release()
		kept, let := g.live.Bind(t.Context(), &stays)
		defer let()
		g.store.lost.Store(true)
		if _, err := g.store.RevokeCredential(t.Context(), "acme", "k1"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		if ended.Err() == nil || kept.Err() != nil {
			t.Errorf("the one is %v, the other %v", context.Cause(ended), context.Cause(kept))
		}
	})
}

// Binding, releasing and revoking at the same time lose no identity.
func TestHoldingWhileRevoking(t *testing.T) {
	store := newWatchedStore()
	live := auth.NewLive(auth.LiveConfig{Store: store, Poll: time.Millisecond})
	if err := live.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer live.Close()
	var holders sync.WaitGroup
	for i := range 20 {
		holders.Go(func() {
			id := auth.Identity{Tenant: "acme", Credential: fmt.Sprintf("key:k%d", i%5)}
			for range 50 {
				_, release := live.Bind(t.Context(), &id)
				release()
			}
			ctx, release := live.Bind(t.Context(), &id)
			defer release()
			if i < 5 {
				if _, err := store.AppendChange(t.Context(), registry.CredentialChange{
					Tenant: "acme", Kind: registry.ChangeCredential, ID: fmt.Sprintf("k%d", i), Revoked: true,
				}); err != nil {
					t.Error(err)
				}
			}
			<-ctx.Done() // or the test does not end
		})
	}
	holders.Wait()
	if n := live.Bound(); n != 0 {
		t.Errorf("%d are held", n)
	}
}

// Use is noted in the store, at most twice a minute for each credential, and while a connection lives that the
// credential has opened.
func TestUseIsNoted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGatekeeper(t, newWatchedStore())
		secret := g.create(registry.CredentialKey, "k1")
		used := func() time.Time {
			c, err := g.store.Credential(t.Context(), "acme", "k1")
			if err != nil {
				t.Fatal(err)
			}
			return c.LastUsed
		}
		g.ask(secret, "")
		time.Sleep(10 * time.Second)
		first := used()
		if first.IsZero() {
			t.Fatal("the use was not noted")
		}
		g.ask(secret, "")
		time.Sleep(10 * time.Second)
		if at := used(); !at.Equal(first) {
			t.Errorf("noted again at %v, after %v", at, at.Sub(first))
		}
		time.Sleep(time.Minute)
		g.ask(secret, "")
		time.Sleep(10 * time.Second)
		later := used()
		if !later.After(first) {
			t.Error("a later use was not noted")
		}
		id := g.ask(secret, "")
		for range 9 { // pongs
			time.Sleep(20 * time.Second)
			id.Use.NoteUse()
			if late := time.Since(used()); late > time.Minute {
				t.Errorf("in use, and noted %v ago", late)
			}
		}
	})
}

// Identities that cannot end cost nothing.
func BenchmarkHold(b *testing.B) {
	live := auth.NewLive(auth.LiveConfig{Store: newWatchedStore()})
	for name, id := range map[string]auth.Identity{
		"token": {Tenant: "default", Admin: true, Credential: auth.CredentialToken},
		"key":   {Tenant: "default", Credential: "key:k1", User: "ann"},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, release := live.Bind(b.Context(), &id)
				release()
			}
		})
	}
}

// BenchmarkKeys is what it takes to check a key that is remembered.
func BenchmarkKeys(b *testing.B) {
	store := newWatchedStore()
	live := auth.NewLive(auth.LiveConfig{Store: store})
	if err := live.Start(b.Context()); err != nil {
		b.Fatal(err)
	}
	defer live.Close()
	keys, secret := auth.NewKeys(auth.KeysConfig{Store: store, Live: live}), auth.NewSecret(registry.CredentialKey)
	if _, err := store.CreateCredential(b.Context(), registry.Credential{
		Tenant: "acme", ID: "k1", Kind: registry.CredentialKey, Digest: auth.SecretDigest(secret),
		Roles: []string{"caller"},
	}); err != nil {
		b.Fatal(err)
	}
	chain := auth.Chain{Keys: keys, Otherwise: auth.DenyAll{}, Live: live}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := chain.Authenticate(b.Context(), nil, secret); err != nil {
			b.Fatal(err)
		}
	}
}
