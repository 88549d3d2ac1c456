package approvals_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/approvals"
	"github.com/farhand/farhand/registry/documents"
	"github.com/farhand/farhand/registry/memory"
)

// paused is a store in whose writes something happens first.
type paused struct {
	documents.Store
	before func()
}

func (p paused) Write(ctx context.Context, writes ...documents.Write) ([]documents.Written, error) {
	p.before()
	return p.Store.Write(ctx, writes...)
}

// An approval that expires between the read and the write of a decision stays expired, and a wrong answer to it does
// not count.
func TestDecisionsThatComeTooLate(t *testing.T) {
	now := time.UnixMilli(1_800_000_000_000)
	docs := memory.New(memory.Options{Now: func() time.Time { return now }}).Documents()
	log := slog.New(slog.DiscardHandler)
	store := approvals.New(docs, log)
	late := approvals.New(paused{docs, func() { now = now.Add(time.Minute) }}, log)
	for _, id := range []string{"a", "b"} {
		a := registry.Approval{ID: id, Tenant: "t", CallID: id, Tool: "snap", Owner: "ann"}
		if _, err := store.CreateApproval(t.Context(), a, time.Minute, nil); err != nil {
			t.Fatal(err)
		}
		if id == "a" {
			allowed := registry.Verdict{State: registry.ApprovalAllowed, DecidedBy: "ann"}
			_, counted, err := late.DecideApproval(t.Context(), "t", id, registry.Vote{Person: "ann"}, "", allowed)
			if counted || err != nil {
				t.Errorf("the decision counts: %v, %v", counted, err)
			}
		} else if n, err := late.CountWrongAnswer(t.Context(), "t", id); n != 0 || err != nil {
			t.Errorf("the wrong answer counts: %d, %v", n, err)
		}
		if got, err := store.Approval(t.Context(), "t", id); err != nil || got.State != registry.ApprovalExpired {
			t.Errorf("%s is %q, %v", id, got.State, err)
		}
	}
}
