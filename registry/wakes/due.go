package wakes

import (
	"context"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/documents"
)

// Indexes of devices that are to be woken: those of one tenant by the time of that, and slots of tenants by when they
// begin. A tenant has a slot while a device of it is to be woken in that part of time, and for some time after. So a
// search reads only tenants with a slot that has begun, and no tenant is behind another in a list.
const (
	plannedIndex = "planned."
	slotsIndex   = "slots"

	// dueIndex has the first documents of all tenants, for pods of the previous release. They write only this one.
	dueIndex = "due"

	dueStay = 7 * 24 * time.Hour // how long a device can be found after its time, if no pod runs

	slotSeconds = 10               // the length of a slot; they count from 1970
	slotGrace   = 20 * time.Second // for a write that another pod began in the slot
)

// Bounds of one search.
const (
	maxTenants = 500
	maxOld     = 50   // devices that pods of the previous release have planned
	minDepth   = 25   // devices of one of many tenants
	maxDepth   = 1000 // devices of a tenant that is alone
)

// planned returns the steps that index when a device is to be woken.
func planned(id string, r registry.WakeRecord, now time.Time) []documents.Step {
	steps := unplanned(id, r.Ref()) // a member keeps a later time
	if r.Plan.Next.IsZero() {
		return steps
	}
	if id == firstID(r.Tenant, r.DeviceID) {
		steps = append(steps, documents.Join(dueIndex, id, ahead(r.Plan.Next, now), dueStay))
	}
	return append(steps, plan(r, now)...)
}

// plan returns the steps that add a device to the indexes of this release.
func plan(r registry.WakeRecord, now time.Time) []documents.Step {
	life := ahead(r.Plan.Next, now)
	slot := now.Add(life).Unix() / slotSeconds
	return []documents.Step{
		documents.Join(plannedIndex+r.Tenant, member(r.Ref()), life, dueStay),
		// If the slot has begun, it is found now: further plans do not move it.
		documents.Join(slotsIndex, slotMember(slot, r.Tenant), life, dueStay).Until(time.Unix(slot*slotSeconds, 0)),
	}
}

// ahead returns the time until t, at least a millisecond: a life has no other zero.
func ahead(t, now time.Time) time.Duration { return max(t.Sub(now), time.Millisecond) }

// slotMember names a slot of a tenant.
func slotMember(slot int64, tenant string) string { return strconv.FormatInt(slot, 10) + " " + tenant }

// tenantOf returns the tenant of a slot, and when no write can concern it any more.
func tenantOf(slot string) (tenant string, over time.Time) {
	number, tenant, _ := strings.Cut(slot, " ")
	n, _ := strconv.ParseInt(number, 10, 64) // zero: it is over
	return tenant, time.Unix((n+1)*slotSeconds, 0).Add(slotGrace)
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
	tenants, slots, old, err := s.dueTenants(ctx, min(limit, maxTenants))
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
	if err := s.leaveSlots(ctx, slots, tenants, lists); err != nil {
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

// dueTenants returns at most limit tenants that may have devices to wake, their slots that have begun, the earliest
// first, and devices that pods of the previous release have planned.
func (s *store) dueTenants(ctx context.Context, limit int) (tenants, slots, old []string, err error) {
	queries := []documents.Query{
		{Space: space, Index: slotsIndex, Due: true, Limit: limit},
		{Space: space, Index: dueIndex, Due: true, Limit: maxOld},
	}
	lists, err := s.inTurn(ctx, queries)
	if err != nil {
		return nil, nil, nil, err
	}
	slots = lists[0]
	s.pass(queries[0], len(slots), len(slots)) // each tenant gets one of the limit
	seen := make(map[string]bool)
	for _, slot := range slots {
		if tenant, _ := tenantOf(slot); !seen[tenant] {
			seen[tenant] = true
			tenants = append(tenants, tenant)
		}
	}
	return tenants, slots, lists[1], nil
}

// leaveSlots removes slots that are over. Of a tenant that has due devices, one slot stays.
func (s *store) leaveSlots(ctx context.Context, slots, tenants []string, lists [][]string) error {
	if len(slots) == 0 {
		return nil
	}
	found, err := s.docs.Read(ctx, space.Ref("/")) // for the store's time; there is no such document
	if err != nil {
		return err
	}
	keeps := make(map[string]bool)
	for i, tenant := range tenants {
		keeps[tenant] = len(lists[i]) > 0
	}
	var steps []documents.Step
	for _, slot := range slices.Backward(slots) {
		switch tenant, over := tenantOf(slot); {
		case found[0].Now.Before(over):
			keeps[tenant] = false // this slot stays
		case keeps[tenant]:
			keeps[tenant] = false
		default:
			steps = append(steps, documents.Leave(slotsIndex, slot))
		}
	}
	if len(steps) > 0 {
		_, err = documents.Commit(ctx, s.docs, space, steps...)
	}
	return err
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
		if !r.Plan.Next.IsZero() {
			steps = append(steps, plan(r, both[0].Now)...)
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
