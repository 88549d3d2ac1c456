package approval_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farhand/farhand/agent/access/approval"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
)

// TestGrantsEndWithWhoeverGaveThem: what a revoked user, device or credential has granted, or was granted, is asked
// about again. What others granted holds, and so does what was granted after the revocation.
func TestGrantsEndWithWhoeverGaveThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(memory.Options{})
		k := approval.New(approval.Config{Store: store})
		defer k.Close()
		put := func(name string, change func(*registry.Grant)) {
			t.Helper()
			g := registry.Grant{
				ID: name, Tenant: "t", Tool: name, DefinitionHash: "h", Owner: "ann", GrantedBy: "ann", DeviceID: "d1",
				Requester: registry.Requester{User: "ann", Credential: "key:k1"},
			}
			change(&g)
			if _, err := store.PutGrant(t.Context(), g, time.Hour); err != nil {
				t.Fatal(err)
			}
		}
		bens := func(g *registry.Grant) {
			g.Owner, g.GrantedBy, g.DeviceID, g.Requester = "ben", "ben", "d9", registry.Requester{User: "ben"}
		}
		tell := func(kind registry.ChangeKind, id string, revoked bool) {
			k.CredentialsChanged([]registry.CredentialChange{
				{Tenant: "t", Kind: kind, ID: id, Revoked: revoked, At: time.Now()},
				{Tenant: "other", Kind: registry.ChangeUser, ID: "ben", Revoked: true, At: time.Now()},
			})
			synctest.Wait()
		}
		put("bens", bens)
		put("given", func(g *registry.Grant) { bens(g); g.GrantedBy = "ann" })
		put("got", func(g *registry.Grant) { bens(g); g.Requester.User = "ann" })
		put("owned", func(g *registry.Grant) { bens(g); g.Owner = "ann" })
		put("at the device", func(g *registry.Grant) { bens(g); g.GrantedBy = "device:d1" })
		put("of the device", func(g *registry.Grant) { bens(g); g.DeviceID = "d1" })
		put("by a key", func(g *registry.Grant) { bens(g); g.GrantedBy = "key:k1" })
		put("of a paired device", func(g *registry.Grant) { bens(g); g.DeviceID = "d2" })
		put("at a device with a key", func(g *registry.Grant) {
			bens(g)
			g.GrantedBy, g.GivenWith = "session:s1", "key:k1"
		})
		put("for a key", func(g *registry.Grant) { bens(g); g.Requester = registry.Requester{Credential: "key:k1"} })
		left := func() (names []string) {
			t.Helper()
			grants, err := store.Grants(t.Context(), "t")
			if err != nil {
				t.Fatal(err)
			}
			for _, g := range grants {
				names = append(names, g.Tool)
			}
			slices.Sort(names)
			return names
		}
		want := func(when string, names ...string) {
			t.Helper()
			if got := left(); !slices.Equal(got, names) {
				t.Errorf("%s: %q are left, want %q", when, got, names)
			}
		}
		tell(registry.ChangeUser, "ann", false) // read anew, not revoked
		tell(registry.ChangeJWT, "ann", true)
		if n := len(left()); n != 10 {
			t.Errorf("%d are left of 10 that nobody revoked", n)
		}
		tell(registry.ChangeUser, "ann", true)
		want("user", "at a device with a key", "at the device", "bens", "by a key", "for a key", "of a paired device",
			"of the device")
		tell(registry.ChangeDevice, "d1", true)
		want("device", "at a device with a key", "bens", "by a key", "for a key", "of a paired device")
		tell(registry.ChangeCredential, "k1", true)
		want("credential", "bens", "of a paired device")
		k.CredentialsChanged([]registry.CredentialChange{{
			Tenant: "t", Kind: registry.ChangeCredential, ID: "c2", Revoked: true, Device: "d2", At: time.Now(),
		}})
		synctest.Wait()
		want("credential of a device", "bens")

		revoked := time.Now()
		put("from a pod that did not know yet", func(*registry.Grant) {})
		time.Sleep(3 * time.Second)
		put("trusted again", func(*registry.Grant) {})
		k.CredentialsChanged([]registry.CredentialChange{
			{Tenant: "t", Kind: registry.ChangeUser, ID: "ann", Revoked: true, At: revoked},
		})
		synctest.Wait()
		want("since then", "bens", "trusted again")
	})
}

// awayOnce is a store whose grants cannot be read once.
type awayOnce struct {
	registry.ApprovalStore
	failed atomic.Bool
}

func (s *awayOnce) Grants(ctx context.Context, tenant string) ([]registry.Grant, error) {
	if s.failed.CompareAndSwap(false, true) {
		return nil, registry.StoreUnavailable("read", errors.New("away"))
	}
	return s.ApprovalStore.Grants(ctx, tenant)
}

func TestGrantsAreDroppedOnceTheStoreIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &awayOnce{ApprovalStore: memory.New(memory.Options{})}
		j := &journal{}
		k := approval.New(approval.Config{Store: store, Audit: j})
		defer k.Close()
		g := registry.Grant{ID: "g1", Tenant: "t", Tool: "snap", GrantedBy: "ann"}
		if _, err := store.PutGrant(t.Context(), g, time.Hour); err != nil {
			t.Fatal(err)
		}
		k.CredentialsChanged([]registry.CredentialChange{
			{Tenant: "t", Kind: registry.ChangeUser, ID: "ann", Revoked: true, At: time.Now()},
		})
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if left, err := store.Grants(t.Context(), "t"); err != nil || len(left) > 0 {
			t.Errorf("%d are left, %v", len(left), err)
		}
		if len(j.lines) != 1 || j.lines[0].Action != registry.AuditGrantRevoke ||
			j.lines[0].Reason != "user ann was revoked" {
			t.Errorf("audited %+v", j.lines)
		}
	})
}
