package api

import (
	"net/http"
	"slices"
	"testing"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/access/pairing"
	"github.com/farhand/farhand/agent/blobs"
	"github.com/farhand/farhand/registry/memory"
)

// A line of the table that does not say who may use its route keeps the gateway from starting.
func TestEveryRouteSaysWhoMayUseIt(t *testing.T) {
	t.Parallel()
	h := &handler{Config: Config{
		Device: http.NotFoundHandler(), DeviceMCP: http.NotFoundHandler(), Metrics: http.NotFoundHandler(),
		DeviceNode: http.NotFoundHandler(), NodePath: "/ws/node",
		Pairing: &pairing.Service{},
		Files:   &blobs.Service{}, Defaults: memory.New(memory.Options{}),
	}}
	for _, r := range h.routes() {
		if a := r.who; a != everybody && a != admins && (a&roles == 0 || a&^roles != 0) {
			t.Errorf("%s %s: %b does not say who may use it", r.method, r.path, a)
		}
	}
}

func TestAccessNames(t *testing.T) {
	t.Parallel()
	for a, want := range map[access][]string{
		callers: {auth.NameCaller}, admins: {auth.NameAdmin}, callers | approvers: {auth.NameCaller, auth.NameApprover},
	} {
		if got := a.names(); !slices.Equal(got, want) {
			t.Errorf("%b has the names %v, want %v", a, got, want)
		}
	}
}
