package wakes

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/documents"
)

// Indexes of devices that are to be woken, by the time of that: those of one tenant, and the tenants that have any, by
// the time of the last one and markGrace. So no tenant is behind another in a list.
const (
	plannedIndex = "planned."
	tenantsIndex = "planned"

	// dueIndex has the first documents of all tenants, for pods of the previous release. They write only this one.
	dueIndex = "due"

	dueStay = 7 * 24 * time.Hour // how long a device can be found after its time, if no pod runs

	// markGrace is how long a tenant is among the busy ones after its last planned push. Later it is looked at less
	// often, in case pushes are left.
	markGrace = 10 * time.Minute
)

// Bounds of one search.
const (
	maxBusy  = 500  // busy tenants
	maxQuiet = 50   // others
	maxOld   = 50   // devices that pods of the previous release have planned
	minDepth = 25   // devices of one of many tenants
	maxDepth = 1000 // devices of a tenant that is alone
)

// planned returns the steps that index when a device is to be woken.
func planned(id string, r registry.WakeRecord, now time.Time) []documents.Step {
	steps := unplanned(id, r.Ref()) // a member keeps a later time
	if r.Plan.Next.IsZero() {
		return steps
	}
	life := max(r.Plan.Next.Sub(now), time.Millisecond)
	if id == firstID(r.Tenant, r.DeviceID) {
		steps = append(steps, documents.Join(dueIndex, id, life, dueStay))
	}
	return append(steps, documents.Join(plannedIndex+r.Tenant, member(r.Ref()), life, dueStay),
		documents.Join(tenantsIndex, r.Tenant, life+markGrace, dueStay))
}

func unplanned(id string, ref registry.WakeRef) []documents.Step {
	return []documents.Step{documents.Leave(dueIndex, id), documents.Leave(plannedIndex+ref.Tenant, member(ref))}
}

// inTurn returns the members that queries select: those after the ones that earlier calls have passed. At the end of an
// index it begins again.
func (s *store) inTurn(ctx context.Context, queries []documents.Query) ([][]string, error) {
	s.mu.Lock()
	for i := range queries {
		queries[i].Skip = s.turns[turnOf(queries[i])]
	}
	s.mu.Unlock()
	lists, err := s.docs.Members(ctx, queries...)
	if err != nil {
		return nil, err
	}
	var again []documents.Query
	var at []int
	for i := range queries {
		if len(lists[i]) == 0 && queries[i].Skip > 0 {
			queries[i].Skip = 0
			again, at = append(again, queries[i]), append(at, i)
		}
	}
	if len(again) == 0 {
		return lists, nil
	}
	more, err := s.docs.Members(ctx, again...)
	for i := range more {
		lists[at[i]] = more[i]
	}
	return lists, err
}

// maxTurns is how many turns a store keeps: those of tenants with more due devices than one search returns.
const maxTurns = 1000

// pass notes that the first n of the members that a query has read need not be read by the next one.
func (s *store) pass(q documents.Query, read, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	turn := turnOf(q)
	_, has := s.turns[turn]
	if q.Skip+n == 0 || n == read && read < q.Limit || !has && len(s.turns) >= maxTurns {
		delete(s.turns, turn)
		return
	}
	s.turns[turn] = q.Skip + n
}

func turnOf(q documents.Query) string {
	if q.Due {
		return "due " + q.Index
	}
	return q.Index
}

// DueWakes implements registry.WakeStore.
func (s *store) DueWakes(ctx context.Context, limit int) ([]registry.WakeRef, error) {
	tenants, old, err := s.dueTenants(ctx)
	if err != nil {
		return nil, err
	}
	depth := min(max(maxDepth/max(len(tenants), 1), minDepth), maxDepth)
	queries := make([]documents.Query, len(tenants))
	for i, tenant := range tenants {
		queries[i] = documents.Query{Space: space, Index: plannedIndex + tenant, Due: true, Limit: depth}
	}
	lists, err := s.inTurn(ctx, queries)
	if err != nil {
		return nil, err
	}
	byTenant := make([][]registry.WakeRef, len(tenants))
	for i, members := range lists {
		byTenant[i] = usersInTurn(tenants[i], members)
	}
	rand.Shuffle(len(byTenant), func(i, j int) { byTenant[i], byTenant[j] = byTenant[j], byTenant[i] })
	refs := dealt(byTenant, limit)
	s.passDealt(queries, tenants, lists, refs)
	due, err := s.stillDue(ctx, refs)
	if err != nil || len(old) == 0 {
		return due, err
	}
	older, err := s.oldDue(ctx, old)
	return merged(due, older, limit), err
}

// passDealt passes the members before the first one that was not dealt.
func (s *store) passDealt(queries []documents.Query, tenants []string, lists [][]string, refs []registry.WakeRef) {
	has := make(map[registry.WakeRef]bool, len(refs))
	for _, ref := range refs {
		has[ref] = true
	}
	for i, members := range lists {
		left := slices.IndexFunc(members, func(text string) bool {
			ref, ok := refOf(tenants[i], text)
			return ok && !has[ref]
		})
		if left < 0 {
			left = len(members)
		}
		s.pass(queries[i], len(members), left)
	}
}

// dueTenants returns tenants that may have devices to wake, and devices that pods of the previous release have planned.
func (s *store) dueTenants(ctx context.Context) (tenants, old []string, err error) {
	queries := []documents.Query{
		{Space: space, Index: tenantsIndex, Limit: maxBusy},
		{Space: space, Index: tenantsIndex, Due: true, Limit: maxQuiet},
		{Space: space, Index: dueIndex, Due: true, Limit: maxOld},
	}
	lists, err := s.inTurn(ctx, queries)
	if err != nil {
		return nil, nil, err
	}
	for i, list := range lists[:2] {
		s.pass(queries[i], len(list), len(list))
	}
	return append(lists[0], lists[1]...), lists[2], nil
}

// usersInTurn orders due devices of a tenant: the earliest one of each user, then the second ones.
func usersInTurn(tenant string, members []string) []registry.WakeRef {
	var order []string
	byUser := make(map[string][]registry.WakeRef)
	for _, text := range members {
		ref, ok := refOf(tenant, text)
		if !ok {
			continue
		}
		if byUser[ref.User] == nil {
			order = append(order, ref.User)
		}
		byUser[ref.User] = append(byUser[ref.User], ref)
	}
	lists := make([][]registry.WakeRef, len(order))
	for i, user := range order {
		lists[i] = byUser[user]
	}
	return dealt(lists, len(members))
}

// dealt returns the first of each list, then the second ones, and so on, at most limit.
func dealt(lists [][]registry.WakeRef, limit int) (all []registry.WakeRef) {
	for round := 0; len(lists) > 0 && len(all) < limit; round++ {
		rest := lists[:0:0]
		for _, list := range lists {
			if round < len(list) {
				all, rest = append(all, list[round]), append(rest, list)
			}
		}
		lists = rest
	}
	return all[:min(len(all), limit)]
}

// stillDue returns those of the devices whose plan says so. It corrects the index for the others: a pod of the previous
// release changes a plan without it.
func (s *store) stillDue(ctx context.Context, refs []registry.WakeRef) (due []registry.WakeRef, err error) {
	var names []documents.Ref
	for _, ref := range refs {
		names = append(names, space.Refs(ids(ref)...)...)
	}
	found, err := s.docs.Read(ctx, names...)
	if err != nil {
		return nil, err
	}
	var writes []documents.Write
	for i, ref := range refs {
		both := found[2*i : 2*i+2]
		_, r, err := choose(ref, both)
		switch {
		case err != nil && err != registry.ErrNoWake: // not readable
			continue
		case err == nil && isDue(r, both[0].Now):
			due = append(due, ref)
			continue
		}
		steps := []documents.Step{documents.Leave(plannedIndex+ref.Tenant, member(ref))}
		if next := r.Plan.Next; !next.IsZero() {
			steps = append(steps, documents.Join(plannedIndex+ref.Tenant, member(ref), next.Sub(both[0].Now), dueStay),
				documents.Join(tenantsIndex, ref.Tenant, next.Sub(both[0].Now)+markGrace, dueStay))
		}
		for j, id := range ids(ref) {
			steps = append(steps, documents.Expect(id, both[j].Revision))
		}
		writes = append(writes, documents.Write{Space: space, Steps: steps})
	}
	if len(writes) > 0 {
		_, err = s.docs.Write(ctx, writes...)
	}
	return due, err
}

func isDue(r registry.WakeRecord, now time.Time) bool {
	return !r.Plan.Next.IsZero() && !r.Plan.Next.After(now)
}

// oldDue is stillDue for the index of the previous release.
func (s *store) oldDue(ctx context.Context, names []string) (due []registry.WakeRef, err error) {
	found, err := s.docs.Read(ctx, space.Refs(names...)...)
	if err != nil {
		return nil, err
	}
	var writes []documents.Write
	for i, id := range names {
		tenant, deviceID, _ := strings.Cut(id, "/")
		r, err := recordOf(tenant, deviceID, found[i])
		switch {
		case err != nil && found[i].Exists(): // not readable
		case err == nil && isDue(r, found[i].Now):
			due = append(due, r.Ref())
		default:
			writes = append(writes, documents.Write{Space: space, Steps: []documents.Step{
				documents.Expect(id, found[i].Revision), documents.Leave(dueIndex, id),
			}})
		}
	}
	if len(writes) > 0 {
		_, err = s.docs.Write(ctx, writes...)
	}
	return due, err
}

// merged returns the devices of both lists, each once, at most limit.
func merged(a, b []registry.WakeRef, limit int) []registry.WakeRef {
	seen := make(map[registry.WakeRef]bool)
	for _, ref := range a {
		seen[ref] = true
	}
	for _, ref := range b {
		if !seen[ref] {
			a = append(a, ref)
		}
	}
	return a[:min(len(a), limit)]
}
