package redisstore

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/farhand/farhand/registry"
)

// However many tenants have approvals that nobody has decided yet, those of the last one are found when they are due.
func TestDueApprovalsOfManyTenants(t *testing.T) {
	s, ctx := storeOn(t, Options{}), context.Background()
	var last registry.Approval
	for i := range maxDueTenants + 1 {
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
