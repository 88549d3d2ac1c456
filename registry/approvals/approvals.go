// Package approvals keeps approvals and grants as documents of a store. Every store uses it to implement
// registry.ApprovalStore.
//
// An approval is four documents of its tenant's space: the question, which never changes, its arguments, the request of
// a deferred call, and its state. So a verdict is read without the arguments. Tenants with deferred approvals are in an
// index of the whole fleet, which is written first: without it a call would never be settled.
//
// Imports: only registry and registry/documents, of the packages of this module.
package approvals

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/documents"
)

// maxDueTenants is how many tenants are checked at a time for due approvals.
const maxDueTenants = 500

// store implements registry.ApprovalStore.
type store struct {
	docs documents.Store
	log  *slog.Logger

	skipped atomic.Int64 // tenants that recent DueApprovals have checked
}

// New returns a store of approvals and grants on documents. It logs approvals that it cannot read.
func New(docs documents.Store, log *slog.Logger) registry.ApprovalStore {
	return &store{docs: docs, log: log}
}

// Ids of the other documents of an approval, after its own id.
const (
	argsID    = ".args"
	requestID = ".request"
	stateID   = ".state"
)

// Indexes. An approval stays due for as long as it is kept.
const (
	pendingIndex   = "pending"
	requesterIndex = "of."   // and the requester
	userIndex      = "user." // and the user who asked, or whose device it is about; all that are kept
	dueIndex       = "due"
	tenantsIndex   = "tenants"
)

func approvals(tenant string) documents.Space {
	return documents.Space{Tenant: tenant, Kind: "approvals"}
}

// fleet is the space of the index of tenants.
func fleet() documents.Space { return documents.Space{Kind: "approvals"} }

// state is the part of an approval that changes.
type state struct {
	registry.Verdict
	Life      time.Duration `json:"life"` // of the question, from the creation of the document on
	AllowedBy string        `json:"allowed_by,omitempty"`
	First     registry.Vote `json:"first,omitzero"`
	Wrong     int           `json:"wrong,omitempty"` // answers that were no decision
}

// readState reads a state as of the time of the read.
func readState(d documents.Document) (s state, err error) {
	if s, err = documents.Decode[state](d, registry.ErrNoApproval); err != nil {
		return s, err
	}
	if end := d.Created.Add(s.Life); s.State == registry.ApprovalPending && !d.Now.Before(end) {
		s.Verdict = registry.Verdict{State: registry.ApprovalExpired, DecidedAt: end}
	}
	return s, nil
}

// put returns the step that stores a state for life; zero: for as long as it was kept already.
func (s state) put(id string, life time.Duration) documents.Step {
	return documents.PutJSON(id+stateID, s, life)
}

// fill sets the fields of an approval that change. created is when it was created.
func (s state) fill(a *registry.Approval, created time.Time) {
	a.Verdict, a.AllowedBy, a.First = s.Verdict, s.AllowedBy, s.First
	a.CreatedAt, a.ExpiresAt = created, created.Add(s.Life)
}

// decode reads the question, the state and, if present, the arguments.
func decode(
	question, current documents.Document, args ...documents.Document,
) (a registry.Approval, s state, err error) {
	if a, err = documents.Decode[registry.Approval](question, registry.ErrNoApproval); err != nil {
		return a, s, err
	}
	if s, err = readState(current); err != nil {
		return a, s, err
	}
	for _, d := range args {
		if len(d.Data) == 0 {
			continue
		}
		if a.Args, err = registry.ParseJSON(d.Data); err != nil {
			return a, s, registry.StoreUnavailable("read the arguments of an approval", err)
		}
	}
	s.fill(&a, current.Created)
	return a, s, nil
}

// CreateApproval implements registry.ApprovalStore.
func (s *store) CreateApproval(
	ctx context.Context, a registry.Approval, life time.Duration, request []byte,
) (registry.Approval, error) {
	pending := state{Verdict: registry.Verdict{State: registry.ApprovalPending}, Life: life}
	kept := life + registry.ApprovalRetained
	own := requesterIndex + a.Requester.Key()
	steps := []documents.Step{
		documents.AtMost(registry.MaxPendingOfOne-1, documents.Term{Index: own, Weight: 1}),
		documents.AtMost(registry.MaxPending-1, documents.Term{Index: pendingIndex, Weight: 1}),
		documents.PutJSON(a.ID, a, kept), documents.Put(a.ID+argsID, a.Args.Raw(), kept), pending.put(a.ID, kept),
		documents.Join(own, a.ID, life, 0), documents.Join(pendingIndex, a.ID, life, 0),
	}
	for _, user := range usersOf(a) {
		steps = append(steps, documents.Join(userIndex+user, a.ID, kept, 0))
	}
	if a.Deferred {
		join := documents.Join(tenantsIndex, a.Tenant, kept, 0)
		if _, err := documents.Commit(ctx, s.docs, fleet(), join); err != nil {
			return a, err
		}
		steps = append(steps, documents.Put(a.ID+requestID, request, kept),
			documents.Join(dueIndex, a.ID, life, registry.ApprovalRetained))
	}
	done, err := documents.Commit(ctx, s.docs, approvals(a.Tenant), steps...)
	switch {
	case err != nil:
		return a, err
	case done.Refused == 1:
		return a, registry.ErrManyOfOne
	case done.Refused == 2:
		return a, registry.ErrManyApprovals
	}
	pending.fill(&a, done.Now)
	return a, nil
}

// Approval implements registry.ApprovalStore.
func (s *store) Approval(ctx context.Context, tenant, id string) (registry.Approval, error) {
	found, err := s.docs.Read(ctx, approvals(tenant).Refs(id, id+stateID, id+argsID)...)
	if err != nil {
		return registry.Approval{}, err
	}
	a, _, err := decode(found[0], found[1], found[2])
	return a, err
}

// ApprovalRequest implements registry.ApprovalStore.
func (s *store) ApprovalRequest(ctx context.Context, tenant, id string) (registry.Approval, []byte, error) {
	found, err := s.docs.Read(ctx, approvals(tenant).Refs(id, id+stateID, id+argsID, id+requestID)...)
	if err != nil {
		return registry.Approval{}, nil, err
	}
	a, _, err := decode(found[0], found[1], found[2])
	return a, found[3].Data, err
}

// Verdicts implements registry.ApprovalStore.
func (s *store) Verdicts(ctx context.Context, refs []registry.ApprovalRef) ([]registry.Verdict, error) {
	states := make([]documents.Ref, len(refs))
	for i, ref := range refs {
		states[i] = approvals(ref.Tenant).Ref(ref.ID + stateID)
	}
	found, err := s.docs.Read(ctx, states...)
	if err != nil {
		return nil, err
	}
	verdicts := make([]registry.Verdict, len(refs))
	for i, d := range found {
		current, err := readState(d)
		if err != nil && !errors.Is(err, registry.ErrNoApproval) { // it must not hide the others
			s.log.Debug("approval not readable; it stays pending", "tenant", refs[i].Tenant, "error", err)
			current.State = registry.ApprovalPending
		}
		verdicts[i] = current.Verdict
	}
	return verdicts, nil
}

// PendingApprovals implements registry.ApprovalStore.
func (s *store) PendingApprovals(ctx context.Context, tenant string) ([]registry.Approval, error) {
	waiting := documents.Query{Space: approvals(tenant), Index: pendingIndex, Limit: registry.MaxPending}
	found, err := documents.Listed(ctx, s.docs, waiting, "", "", stateID)
	if err != nil {
		return nil, err
	}
	pending := []registry.Approval{}
	for pair := range slices.Chunk(found, 2) {
		a, _, err := decode(pair[0], pair[1])
		switch {
		case err == nil && a.State == registry.ApprovalPending:
			pending = append(pending, a)
		case err != nil && !errors.Is(err, registry.ErrNoApproval): // it must not hide the others; it expires like them
			s.log.Warn("approval not readable; it is not listed", "tenant", tenant, "error", err)
		}
	}
	slices.SortFunc(pending, func(a, b registry.Approval) int {
		return cmp.Or(a.ExpiresAt.Compare(b.ExpiresAt), cmp.Compare(a.ID, b.ID))
	})
	return pending, nil
}

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
	for _, user := range usersOf(a) {
		steps = append(steps, documents.Leave(userIndex+user, a.ID),
			documents.Join(userIndex+user, a.ID, registry.ApprovalRetained, 0))
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

// usersOf returns the users that an approval is about.
func usersOf(a registry.Approval) []string {
	users := []string{a.Requester.User, a.Owner}
	slices.Sort(users)
	return slices.DeleteFunc(slices.Compact(users), func(user string) bool { return user == "" })
}

// erasePage is how many approvals are erased in one step.
const erasePage = 20

// Erase removes the approvals that are about a user, pending or not, and returns how many. Calls that wait for one
// fail.
func Erase(ctx context.Context, docs documents.Store, tenant, user string) (removed int, err error) {
	for {
		lists, err := docs.Members(ctx, documents.Query{
			Space: approvals(tenant), Index: userIndex + user, Limit: erasePage,
		})
		if err != nil || len(lists[0]) == 0 {
			return removed, err
		}
		found, err := docs.Read(ctx, approvals(tenant).Refs(lists[0]...)...)
		if err != nil {
			return removed, err
		}
		var steps []documents.Step
		for i, id := range lists[0] {
			steps = append(steps, documents.Leave(pendingIndex, id), documents.Leave(dueIndex, id),
				documents.Leave(userIndex+user, id), documents.Delete(id), documents.Delete(id+argsID),
				documents.Delete(id+requestID), documents.Delete(id+stateID))
			a, err := documents.Decode[registry.Approval](found[i], registry.ErrNoApproval)
			if err != nil { // it has expired, or is not readable
				continue
			}
			removed++
			steps = append(steps, documents.Leave(requesterIndex+a.Requester.Key(), id))
			for _, other := range usersOf(a) {
				steps = append(steps, documents.Leave(userIndex+other, id))
			}
		}
		if _, err := documents.Commit(ctx, docs, approvals(tenant), steps...); err != nil {
			return removed, err
		}
	}
}
