package approvals

import (
	"context"
	"errors"
	"time"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/documents"
)

// DecideApproval implements registry.ApprovalStore.
func (s *store) DecideApproval(
	ctx context.Context, tenant, id string, vote registry.Vote, lapsed string, v registry.Verdict,
) (a registry.Approval, counted bool, err error) {
	ids := []string{id, id + stateID, id + argsID}
	change := func(found []documents.Document) (steps []documents.Step, err error) {
		var current state
		if a, current, err = decode(found[0], found[1], found[2]); err != nil {
			return nil, err
		}
		if counted = current.decide(a.By, vote, lapsed, v); !counted {
			return nil, nil
		}
		kept := time.Duration(0) // a first vote does not change how long the approval is kept
		if current.Final() {
			current.DecidedAt, kept = found[1].Now, registry.ApprovalRetained
			steps = afterDecision(a)
		}
		current.fill(&a, found[1].Created)
		// Between the read and the write its time may be up.
		return append(steps, documents.Has(pendingIndex, id), current.put(id, kept)), nil
	}
	if err = documents.Change(ctx, s.docs, approvals(tenant), ids, change); err != nil {
		return a, false, err
	}
	return a, counted, nil
}

// decide sets the verdict, or notes the first of two votes. It returns false if the vote does not count.
func (s *state) decide(by registry.ApproveBy, vote registry.Vote, lapsed string, v registry.Verdict) bool {
	if s.Final() {
		return false
	}
	if by == registry.ApproveTwo && v.State == registry.ApprovalAllowed {
		switch s.First.Person {
		case "", lapsed:
			s.First, s.AllowedBy = vote, v.DecidedBy
			return true
		case vote.Person:
			return false
		}
		v.DecidedBy = s.AllowedBy + ", " + v.DecidedBy
	}
	s.Verdict = v
	return true
}

// afterDecision returns the steps that keep a decided approval for a while, and end its wait.
func afterDecision(a registry.Approval) []documents.Step {
	steps := []documents.Step{
		documents.Extend(a.ID, registry.ApprovalRetained), documents.Extend(a.ID+argsID, registry.ApprovalRetained),
		documents.Leave(requesterIndex+a.Requester.Key(), a.ID), documents.Leave(pendingIndex, a.ID),
	}
	if a.Deferred {
		steps = append(steps, documents.Extend(a.ID+requestID, registry.ApprovalRetained),
			documents.Leave(dueIndex, a.ID), documents.Join(dueIndex, a.ID, 0, registry.ApprovalRetained))
	}
	return steps
}

// CountWrongAnswer implements registry.ApprovalStore.
func (s *store) CountWrongAnswer(ctx context.Context, tenant, id string) (n int, err error) {
	change := func(found []documents.Document) ([]documents.Step, error) {
		current, err := readState(found[0])
		if n = 0; err != nil || current.Final() {
			return nil, err
		}
		current.Wrong++
		n = current.Wrong
		return []documents.Step{documents.Has(pendingIndex, id), current.put(id, 0)}, nil
	}
	err = documents.Change(ctx, s.docs, approvals(tenant), []string{id + stateID}, change)
	if errors.Is(err, registry.ErrNoApproval) {
		return 0, nil
	}
	return n, err
}

// dueTenants returns tenants that may have due approvals. If there are more than maxDueTenants, each call continues
// after the previous one, so that every tenant is found.
func (s *store) dueTenants(ctx context.Context) ([]string, error) {
	skipped := s.skipped.Load()
	lists, err := s.docs.Members(ctx, documents.Query{
		Space: fleet(), Index: tenantsIndex, Skip: int(skipped), Limit: maxDueTenants,
	})
	if err != nil {
		return nil, err
	}
	if skipped += int64(len(lists[0])); len(lists[0]) < maxDueTenants {
		skipped = 0
	}
	s.skipped.Store(skipped)
	return lists[0], nil
}

// DueApprovals implements registry.ApprovalStore.
func (s *store) DueApprovals(ctx context.Context, limit int) ([]registry.ApprovalRef, error) {
	tenants, err := s.dueTenants(ctx)
	if err != nil {
		return nil, err
	}
	queries := make([]documents.Query, len(tenants))
	for i, tenant := range tenants {
		queries[i] = documents.Query{Space: approvals(tenant), Index: dueIndex, Due: true, Limit: limit}
	}
	lists, err := s.docs.Members(ctx, queries...)
	if err != nil {
		return nil, err
	}
	var due []registry.ApprovalRef
	for i, ids := range lists {
		for _, id := range ids[:min(len(ids), limit-len(due))] {
			due = append(due, registry.ApprovalRef{Tenant: tenants[i], ID: id})
		}
	}
	return due, nil
}

// SettleApproval implements registry.ApprovalStore.
func (s *store) SettleApproval(ctx context.Context, tenant, id string) error {
	_, err := documents.Commit(ctx, s.docs, approvals(tenant),
		documents.Leave(dueIndex, id), documents.Delete(id+requestID))
	return err
}
