package registrytest

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/farhand/farhand/registry"
)

var revocationTests = []subtest{
	{name: "what is revoked is remembered for its tenant, once", run: func(f *fixture) {
		for i := range 2 {
			for _, kind := range registry.RememberedKinds() {
				f.revoke(f.tenant, kind, "ü {x}\n")
				f.revoke(f.tenant+"x", kind, fmt.Sprint("another tenant's ", i))
			}
		}
		f.issue(f.credential("k1"))
		f.must(errOf(f.store.RevokeCredential(f.ctx, f.tenant, "k1"))) // deleted: no revocation to store
		f.must(errOf(f.store.AppendChange(f.ctx, registry.CredentialChange{
			Tenant: f.tenant, Kind: registry.ChangeUser, ID: "not revoked",
		})))
		all := f.revocations()
		for _, c := range all {
			if !c.Revoked || c.Tenant != f.tenant || c.ID != "ü {x}\n" || time.Since(c.At).Abs() > time.Minute {
				f.Errorf("remembered %+v", c)
			}
		}
		if len(all) != 3 || all[0].Kind != registry.ChangeDevice || all[1].Kind != registry.ChangeJWT ||
			all[2].Kind != registry.ChangeUser {
			f.Errorf("remembered %+v", all)
		}
	}},
	{name: "a revocation that is repeated counts from the last time", run: func(f *fixture) {
		f.revoke(f.tenant, registry.ChangeUser, "ann")
		first := f.revocations()[0].At
		f.eventually("the store's clock goes on", func() bool {
			f.revoke(f.tenant, registry.ChangeUser, "ann")
			all := f.revocations()
			return len(all) == 1 && all[0].At.After(first)
		})
	}},
	{name: "a tenant has so many of a kind, and says what to do", limits: registry.Limits{
		SessionTTL: time.Minute, PodLease: time.Minute, Revocations: 2,
	}, run: func(f *fixture) {
		f.revoke(f.tenant, registry.ChangeJWT, "j1")
		f.revoke(f.tenant, registry.ChangeJWT, "j2")
		start := f.lastChange()
		_, err := f.store.AppendChange(f.ctx, registry.CredentialChange{
			Tenant: f.tenant, Kind: registry.ChangeJWT, ID: "j3", Revoked: true,
		})
		f.wantCode(err, registry.CodeRateLimited)
		if e := registry.AsError(err); e.RetryAfter <= time.Hour || e.RetryAfter > registry.DefaultChangeTTL ||
			!strings.Contains(e.Message, "user_id") {
			f.Errorf("told %q, %v", e.Message, e.RetryAfter)
		}
		if seen := f.changesAfter(start); len(seen) != 0 || len(f.revocations()) != 2 {
			f.Errorf("what was refused is there: %+v", seen)
		}
		f.revoke(f.tenant, registry.ChangeJWT, "j1")     // again
		f.revoke(f.tenant, registry.ChangeUser, "ann")   // of another kind
		f.revoke(f.tenant+"x", registry.ChangeJWT, "j3") // of another tenant
		f.issue(f.credential("k1"))                      // a credential needs no room
		f.must(errOf(f.store.RevokeCredential(f.ctx, f.tenant, "k1")))
	}},
	{name: "what is too old makes room", limits: registry.Limits{
		SessionTTL: time.Minute, PodLease: time.Minute, Revocations: 1, ChangeTTL: briefly,
	}, run: func(f *fixture) {
		f.revoke(f.tenant, registry.ChangeUser, "ann")
		f.eventually("it is forgotten", func() bool {
			_, err := f.store.AppendChange(f.ctx, registry.CredentialChange{
				Tenant: f.tenant, Kind: registry.ChangeUser, ID: "ben", Revoked: true,
			})
			if err != nil && !errors.Is(err, registry.CodeRateLimited) {
				f.Fatal(err)
			}
			return err == nil
		})
		if all := f.revocations(); len(all) > 1 {
			f.Errorf("remembered %+v", all)
		}
	}},
}

func (f *fixture) revoke(tenant string, kind registry.ChangeKind, id string) {
	f.Helper()
	f.must(errOf(f.store.AppendChange(f.ctx, registry.CredentialChange{
		Tenant: tenant, Kind: kind, ID: id, Revoked: true,
	})))
}

// revocations returns the stored revocations, in order of their kinds.
func (f *fixture) revocations() []registry.CredentialChange {
	f.Helper()
	all, err := f.store.Revocations(f.ctx, f.tenant)
	f.must(err)
	slices.SortFunc(all, func(a, b registry.CredentialChange) int { return cmp.Compare(a.Kind, b.Kind) })
	return all
}
