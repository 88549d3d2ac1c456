package wakes

import (
	"context"
	"math/rand/v2"
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

// inTurn selects members of an index: those after the ones that the previous call selected.
func (s *store) inTurn(q documents.Query) documents.Query {
	s.mu.Lock()
	defer s.mu.Unlock()
	q.Skip = s.turns[turnOf(q)]
	return q
}

// maxTurns is how many turns a store keeps: those of tenants with more due devices than one search finds.
const maxTurns = 1000

// took notes how many members a query has selected. The next one continues after them, or begins again at the end.
func (s *store) took(q documents.Query, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	turn := turnOf(q)
	if n < q.Limit || len(s.turns) >= maxTurns && s.turns[turn] == 0 {
		delete(s.turns, turn)
		return
	}
	s.turns[turn] += n
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
		queries[i] = s.inTurn(documents.Query{Space: space, Index: plannedIndex + tenant, Due: true, Limit: depth})
	}
	lists, err := s.docs.Members(ctx, queries...)
	if err != nil {
		return nil, err
	}
	var byTenant [][]registry.WakeRef
	for i, members := range lists {
		s.took(queries[i], len(members))
		byTenant = append(byTenant, usersInTurn(tenants[i], members))
	}
	rand.Shuffle(len(byTenant), func(i, j int) { byTenant[i], byTenant[j] = byTenant[j], byTenant[i] })
	due, err := s.stillDue(ctx, dealt(byTenant, limit))
	if err != nil || len(old) == 0 {
		return due, err
	}
	older, err := s.oldDue(ctx, old)
	return merged(due, older, limit), err
}

// dueTenants returns tenants that may have devices to wake, and devices that pods of the previous release have planned.
func (s *store) dueTenants(ctx context.Context) (tenants, old []string, err error) {
	busy := s.inTurn(documents.Query{Space: space, Index: tenantsIndex, Limit: maxBusy})
	quiet := s.inTurn(documents.Query{Space: space, Index: tenantsIndex, Due: true, Limit: maxQuiet})
	lists, err := s.docs.Members(ctx, busy, quiet,
		documents.Query{Space: space, Index: dueIndex, Due: true, Limit: maxOld})
	if err != nil {
		return nil, nil, err
	}
	s.took(busy, len(lists[0]))
	s.took(quiet, len(lists[1]))
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
