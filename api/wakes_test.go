package api_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent/access/pairing"
	"github.com/farhand/farhand/agent/wake"
	"github.com/farhand/farhand/api"
	"github.com/farhand/farhand/registry"
)

// A user who registers and forgets wakes without end is refused, for a while. Other users still register, and the
// approvers of the tenant still change devices.
func TestWakesHaveTheirOwnBucket(t *testing.T) {
	t.Parallel()
	f := newFleet(t, setup{change: func(cfg *api.Config) {
		withDeciders(cfg)
		store := cfg.Directory.(registry.Store)
		var err error
		if cfg.Pairing, err = pairing.New(pairing.Config{Store: store, Mode: pairing.ModeOpen}); err != nil {
			t.Fatal(err)
		}
		wakes, err := wake.New(wake.Config{Store: store})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { wakes.Close(t.Context()) })
		cfg.Credentials, cfg.Wakes = store, wakes
	}})
	forget := func(who string) reply {
		return f.as(who, request{method: http.MethodDelete, path: "/api/devices/phone/wake"})
	}
	for n := 0; ; n++ {
		r := forget("ann")
		if r.status == http.StatusTooManyRequests {
			if r.header.Get("Retry-After") == "" || !strings.Contains(string(r.body), "you") {
				t.Errorf("%v %s", r.header, r.body)
			}
			break
		}
		r.want(http.StatusNotFound)
		if n > 1000 {
			t.Fatal("a user changes wakes without end")
		}
	}
	forget("ben").want(http.StatusNotFound)
	for range 20 {
		f.as(token, request{method: http.MethodPut, path: "/api/devices/none", body: `{"name":"x"}`}).
			want(http.StatusNotFound)
	}
}
