package redisstore

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/documents"
)

// However many tenants have approvals that nobody has decided yet, those of the last one are found when they are due.
func TestDueApprovalsOfManyTenants(t *testing.T) {
	s, ctx := storeOn(t, Options{}), context.Background()
	var last registry.Approval
	for i := range 501 { // one more than are checked at a time
		last = must[registry.Approval](t)(s.CreateApproval(ctx, registry.Approval{
			ID: registry.NewApprovalID(), Tenant: fmt.Sprint("t", i), Tool: "snap", Deferred: true,
			Args: registry.MustJSON("{}"),
		}, time.Hour+time.Duration(i)*time.Second, []byte("request")))
	}
	allowed := registry.Verdict{State: registry.ApprovalAllowed, DecidedBy: "ann"}
	if _, _, err := s.DecideApproval(ctx, last.Tenant, last.ID, registry.Vote{Person: "user:ann"}, "",
		allowed); err != nil {
		t.Fatal(err)
	}
	for round := range 2 {
		var found []registry.ApprovalRef
		for range 2 {
			found = append(found, must[[]registry.ApprovalRef](t)(s.DueApprovals(ctx, 100))...)
		}
		if len(found) != 1 || found[0] != last.Ref() {
			t.Fatalf("round %d: found %v", round, found)
		}
	}
}

// One approval that cannot be read hides no others.
func TestADamagedApprovalHidesNoOthers(t *testing.T) {
	t.Parallel()
	s, ctx := storeOn(t, Options{}), t.Context()
	var ids []string
	for range 2 {
		a := registry.Approval{
			ID: registry.NewApprovalID(), Tenant: tenant, CallID: "c", Tool: "snap", Args: registry.MustJSON(`{}`),
		}
		must[registry.Approval](t)(s.CreateApproval(ctx, a, time.Minute, nil))
		ids = append(ids, a.ID)
	}
	space := documents.Space{Tenant: tenant, Kind: "approvals"}
	pipe := s.conn.Pipeline()
	pipe.Do("HSET", documentKey(space, ids[0]), "d", "{")
	if err := pipe.Exec(ctx); err != nil {
		t.Fatal(err)
	}
	pending := must[[]registry.Approval](t)(s.PendingApprovals(ctx, tenant))
	if len(pending) != 1 || pending[0].ID != ids[1] {
		t.Errorf("%+v", pending)
	}
}
