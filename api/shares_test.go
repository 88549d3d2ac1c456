package api_test

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent/auth"
	"github.com/farhand/farhand/api"
	"github.com/farhand/farhand/registry"
)

// byTenantAndUser takes "tenant/user" for a token.
type byTenantAndUser struct{}

func (byTenantAndUser) Authenticate(_ context.Context, _ *http.Request, token string) (auth.Identity, error) {
	tenant, user, _ := strings.Cut(token, "/")
	return auth.Identity{Tenant: tenant, User: user, Roles: auth.RoleCaller, Credential: "token"}, nil
}

// A tenant takes all it can of what a pod holds open. It gets its share, an identity of it gets less, and there is room
// for another tenant.
func TestATenantHasItsShare(t *testing.T) {
	const hostile = registry.DefaultTenant
	as := func(who string, r request) request {
		r.header = http.Header{"Authorization": {"Bearer " + who}}
		return r
	}
	t.Run("event streams", func(t *testing.T) {
		f := newFleet(t, setup{change: func(c *api.Config) {
			c.Auth, c.MaxStreams, c.MaxCallerStreams = byTenantAndUser{}, 20, 4
		}})
		open := 0
		for user := range 5 {
			who := hostile + "/" + strconv.Itoa(user)
			for of := 0; ; of++ {
				if r := f.send(as(who, request{method: http.MethodHead, path: "/api/events"})); r.status != 200 {
					if user == 0 && of != 4 {
						t.Errorf("an identity has %d streams", of)
					}
					break
				}
				f.followAs(who, "/api/events")
				open++
			}
		}
		if open != 10 {
			t.Errorf("a tenant has %d of 20 streams", open)
		}
		f.followAs("other/anna", "/api/events")
	})
	t.Run("request bodies", func(t *testing.T) {
		f := newFleet(t, setup{change: func(c *api.Config) {
			c.Auth, c.MaxRequestBytes = byTenantAndUser{}, 4<<20
		}})
		f.connect(0, session("s1"), silent, tools("t")...)
		accepted := 0
		for user := 0; ; user++ {
			r := f.send(as(hostile+"/"+strconv.Itoa(user), long("async", 500_000)))
			if r.status == http.StatusTooManyRequests {
				break
			}
			if r.status != http.StatusAccepted {
				t.Fatalf("%d %s", r.status, r.body)
			}
			accepted++
		}
		if accepted != 4 { // 2 MiB
			t.Errorf("a tenant holds %d bodies of half a megabyte, of 4 MiB", accepted)
		}
		wantProblem(f.send(as("other/anna", long("sync", 900_000))), 404, registry.CodeToolNotFound)
	})
}
