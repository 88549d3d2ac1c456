package memory

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/farhand/farhand/registry"
)

// approvals are the pending and the recently decided approvals.
type approvals struct {
	mu     sync.Mutex
	all    expiring[tenantKey, *approval]
	purges throttle
}

type approval struct {
	life
	registry.Approval
	request []byte // of a deferred approval
	wrong   int    // answers that were not a decision
	due     bool   // deferred, and not settled
}

// at returns the approval as of now.
func (a *approval) at(now time.Time) registry.Approval {
	shown := a.Approval
	shown.Args, shown.Verdict = shown.Args.Clone(), a.verdictAt(now)
	return shown
}

// verdictAt returns the verdict as of now.
func (a *approval) verdictAt(now time.Time) registry.Verdict {
	if a.State == registry.ApprovalPending && !now.Before(a.ExpiresAt) {
		return registry.Verdict{State: registry.ApprovalExpired, DecidedAt: a.ExpiresAt}
	}
	return a.Verdict
}

// CreateApproval implements registry.ApprovalStore.
func (m *Store) CreateApproval(
	_ context.Context, a registry.Approval, lasts time.Duration, request []byte,
) (registry.Approval, error) {
	s := &m.approvals
	s.mu.Lock()
	defer s.mu.Unlock()
	now := m.opts.Now()
	if s.purges.due(now, registry.ApprovalRetained/purgesPerLife) {
		s.all.purge(now)
	}
	tenant, own := 0, 0
	for key, other := range s.all {
		if key.tenant == a.Tenant && other.verdictAt(now).State == registry.ApprovalPending {
			tenant++
			if other.Requester.Key() == a.Requester.Key() {
				own++
			}
		}
	}
	switch {
	case own >= registry.MaxPendingOfOne:
		return a, registry.ErrManyOfOne
	case tenant >= registry.MaxPending:
		return a, registry.ErrManyApprovals
	}
	a.CreatedAt = now.UTC().Truncate(time.Millisecond)
	a.ExpiresAt, a.Verdict = a.CreatedAt.Add(lasts), registry.Verdict{State: registry.ApprovalPending}
	a.Args = a.Args.Clone()
	s.all[tenantKey{a.Tenant, a.ID}] = &approval{
		life: life{now.Add(lasts + registry.ApprovalRetained)}, Approval: a,
		request: bytes.Clone(request), due: a.Deferred,
	}
	return a, nil
}

// Approval implements registry.ApprovalStore.
func (m *Store) Approval(_ context.Context, tenant, id string) (registry.Approval, error) {
	s := &m.approvals
	s.mu.Lock()
	defer s.mu.Unlock()
	now := m.opts.Now()
	a := s.all.get(tenantKey{tenant, id}, now)
	if a == nil {
		return registry.Approval{}, registry.ErrNoApproval
	}
	return a.at(now), nil
}

// Verdicts implements registry.ApprovalStore.
func (m *Store) Verdicts(_ context.Context, refs []registry.ApprovalRef) ([]registry.Verdict, error) {
	s := &m.approvals
	s.mu.Lock()
	defer s.mu.Unlock()
	now, verdicts := m.opts.Now(), make([]registry.Verdict, len(refs))
	for i, ref := range refs {
		if a := s.all.get(tenantKey{ref.Tenant, ref.ID}, now); a != nil {
			verdicts[i] = a.verdictAt(now)
		}
	}
	return verdicts, nil
}

// PendingApprovals implements registry.ApprovalStore.
func (m *Store) PendingApprovals(_ context.Context, tenant string) ([]registry.Approval, error) {
	s := &m.approvals
	s.mu.Lock()
	defer s.mu.Unlock()
	now, pending := m.opts.Now(), []registry.Approval{}
	for key, a := range s.all {
		if key.tenant == tenant && a.verdictAt(now).State == registry.ApprovalPending {
			shown := a.Approval
			shown.Args = registry.JSON{}
			pending = append(pending, shown)
		}
	}
	slices.SortFunc(pending, func(a, b registry.Approval) int {
		return cmp.Or(a.ExpiresAt.Compare(b.ExpiresAt), cmp.Compare(a.ID, b.ID))
	})
	return pending, nil
}

// DecideApproval implements registry.ApprovalStore.
func (m *Store) DecideApproval(
	_ context.Context, tenant, id string, vote registry.Vote, lapsed string, v registry.Verdict,
) (registry.Approval, bool, error) {
	s := &m.approvals
	s.mu.Lock()
	defer s.mu.Unlock()
	now := m.opts.Now()
	a := s.all.get(tenantKey{tenant, id}, now)
	if a == nil {
		return registry.Approval{}, false, registry.ErrNoApproval
	}
	if shown := a.at(now); shown.Final() {
		return shown, false, nil
	}
	if a.By == registry.ApproveTwo && v.State == registry.ApprovalAllowed {
		switch a.First.Person {
		case "", lapsed:
			vote.Voter = bytes.Clone(vote.Voter)
			a.First, a.AllowedBy = vote, v.DecidedBy
			return a.at(now), true, nil
		case vote.Person:
			return a.at(now), false, nil
		}
		v.DecidedBy = a.AllowedBy + ", " + v.DecidedBy
	}
	v.DecidedAt = now.UTC().Truncate(time.Millisecond)
	a.Verdict, a.expires = v, now.Add(registry.ApprovalRetained)
	return a.at(now), true, nil
}

// CountWrongAnswer implements registry.ApprovalStore.
func (m *Store) CountWrongAnswer(_ context.Context, tenant, id string) (int, error) {
	s := &m.approvals
	s.mu.Lock()
	defer s.mu.Unlock()
	now := m.opts.Now()
	a := s.all.get(tenantKey{tenant, id}, now)
	if a == nil || a.at(now).Final() {
		return 0, nil
	}
	a.wrong++
	return a.wrong, nil
}

// DueApprovals implements registry.ApprovalStore.
func (m *Store) DueApprovals(_ context.Context, limit int) ([]registry.ApprovalRef, error) {
	s := &m.approvals
	s.mu.Lock()
	defer s.mu.Unlock()
	now, due := m.opts.Now(), []registry.ApprovalRef(nil)
	for key, a := range s.all {
		if len(due) < limit && a.due && now.Before(a.expires) && a.at(now).Final() {
			due = append(due, registry.ApprovalRef{Tenant: key.tenant, ID: key.id})
		}
	}
	return due, nil
}

// ApprovalRequest implements registry.ApprovalStore.
func (m *Store) ApprovalRequest(ctx context.Context, tenant, id string) (registry.Approval, []byte, error) {
	a, err := m.Approval(ctx, tenant, id)
	if err != nil {
		return a, nil, err
	}
	m.approvals.mu.Lock()
	defer m.approvals.mu.Unlock()
	kept := m.approvals.all[tenantKey{tenant, id}]
	if kept == nil {
		return a, nil, registry.ErrNoApproval
	}
	return a, bytes.Clone(kept.request), nil
}

// SettleApproval implements registry.ApprovalStore.
func (m *Store) SettleApproval(_ context.Context, tenant, id string) error {
	m.approvals.mu.Lock()
	defer m.approvals.mu.Unlock()
	if a := m.approvals.all[tenantKey{tenant, id}]; a != nil {
		a.due, a.request = false, nil
	}
	return nil
}

// grants are the grants of all tenants, by binding.
type grants struct {
	mu     sync.Mutex
	all    expiring[tenantKey, *grant]
	purges throttle
}

type grant struct {
	life
	registry.Grant
}

// PutGrant implements registry.GrantStore.
func (m *Store) PutGrant(_ context.Context, g registry.Grant, lasts time.Duration) (registry.Grant, error) {
	s := &m.grants
	s.mu.Lock()
	defer s.mu.Unlock()
	now, key := m.opts.Now(), tenantKey{g.Tenant, g.Binding()}
	if s.purges.due(now, time.Minute) {
		s.all.purge(now)
	}
	count := 0
	for other := range s.all {
		if other.tenant == g.Tenant && s.all.get(other, now) != nil {
			count++
		}
	}
	if s.all.get(key, now) == nil && count >= registry.MaxGrants {
		return g, registry.ErrManyGrants
	}
	g.CreatedAt = now.UTC().Truncate(time.Millisecond)
	g.ExpiresAt = g.CreatedAt.Add(lasts)
	s.all[key] = &grant{life{now.Add(lasts)}, g}
	return g, nil
}

// FindGrant implements registry.GrantStore.
func (m *Store) FindGrant(_ context.Context, tenant string, bindings ...string) (registry.Grant, error) {
	m.grants.mu.Lock()
	defer m.grants.mu.Unlock()
	for _, binding := range bindings {
		if g := m.grants.all.get(tenantKey{tenant, binding}, m.opts.Now()); g != nil {
			return g.Grant, nil
		}
	}
	return registry.Grant{}, registry.ErrNoGrant
}

// Grants implements registry.GrantStore.
func (m *Store) Grants(_ context.Context, tenant string) ([]registry.Grant, error) {
	m.grants.mu.Lock()
	defer m.grants.mu.Unlock()
	now, all := m.opts.Now(), []registry.Grant{}
	for key := range m.grants.all {
		if g := m.grants.all.get(key, now); g != nil && key.tenant == tenant {
			all = append(all, g.Grant)
		}
	}
	slices.SortFunc(all, func(a, b registry.Grant) int {
		return cmp.Or(a.ExpiresAt.Compare(b.ExpiresAt), cmp.Compare(a.ID, b.ID))
	})
	return all, nil
}

// RevokeGrant implements registry.GrantStore.
func (m *Store) RevokeGrant(_ context.Context, tenant, id string) (registry.Grant, error) {
	m.grants.mu.Lock()
	defer m.grants.mu.Unlock()
	for key := range m.grants.all {
		if g := m.grants.all.get(key, m.opts.Now()); g != nil && key.tenant == tenant && g.ID == id {
			delete(m.grants.all, key)
			return g.Grant, nil
		}
	}
	return registry.Grant{}, registry.ErrNoGrant
}
