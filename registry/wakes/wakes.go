// Package wakes keeps how sleeping devices are woken, as documents of a store. Every store uses it to implement
// registry.WakeStore.
//
// All records are in one space of the fleet, each as a document. So one write changes a record together with the index
// of the devices that are to be woken, by the time of that, which every pod reads.
//
// Imports: only registry and registry/documents, of the packages of this module.
package wakes

import (
	"context"
	"strings"
	"time"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/documents"
)

type store struct{ docs documents.Store }

// New returns a store of wakes on documents.
func New(docs documents.Store) registry.WakeStore { return store{docs} }

var space = documents.Space{Kind: "wakes"}

// Indexes: the devices of a tenant, those of a user, and all that are to be woken.
const (
	tenantIndex = "tenant."
	userIndex   = "user."
	dueIndex    = "due"

	dueStay = 7 * 24 * time.Hour // how long a device can be found after its time, if no pod runs
)

// idOf returns the id of a device's document. A tenant's name has no slash.
func idOf(tenant, deviceID string) string { return tenant + "/" + deviceID }

// indexes returns the indexes that have all devices of the tenant, and of the user if it has a name.
func indexes(tenant, user string) []string {
	if user == "" {
		return []string{tenantIndex + tenant}
	}
	return []string{tenantIndex + tenant, userIndex + idOf(tenant, user)}
}

// put returns the steps that store a record.
func put(id string, r registry.WakeRecord, now time.Time) []documents.Step {
	steps := []documents.Step{
		documents.PutJSON(id, r, registry.WakeLife), documents.Leave(dueIndex, id), // a member keeps a later time
	}
	if next := r.Plan.Next; !next.IsZero() {
		steps = append(steps, documents.Join(dueIndex, id, max(next.Sub(now), time.Millisecond), dueStay))
	}
	for _, index := range indexes(r.Tenant, r.User) {
		steps = append(steps, documents.Join(index, id, registry.WakeLife, 0))
	}
	return steps
}

func remove(id, tenant, user string) []documents.Step {
	steps := []documents.Step{documents.Delete(id), documents.Leave(dueIndex, id)}
	for _, index := range indexes(tenant, user) {
		steps = append(steps, documents.Leave(index, id))
	}
	return steps
}

func recordOf(tenant, deviceID string, d documents.Document) (registry.WakeRecord, error) {
	r, err := documents.Decode[registry.WakeRecord](d, registry.ErrNoWake)
	r.Tenant, r.DeviceID, r.SetAt = tenant, deviceID, d.Created
	return r, err
}

// SetWake implements registry.WakeStore. A device that registers the same again writes nothing, until a tenth of the
// registration's life has passed.
func (s store) SetWake(ctx context.Context, r registry.WakeRecord) error {
	id := idOf(r.Tenant, r.DeviceID)
	for range documents.MaxTries {
		found, err := s.docs.Read(ctx, space.Ref(id))
		if err != nil {
			return err
		}
		steps := []documents.Step{documents.Expect(id, found[0].Revision)}
		if d := found[0]; d.Exists() {
			before, err := recordOf(r.Tenant, r.DeviceID, d)
			switch {
			case err != nil:
				return err
			case before.User != r.User:
				return registry.ErrForeignWake
			case before.Wake.Equal(r.Wake) && d.Expires.Sub(d.Now) > registry.WakeLife*9/10:
				return nil
			}
			r.Plan = before.Plan
		} else {
			most := []int64{registry.MaxWakes, registry.MaxWakesOfUser}
			for i, index := range indexes(r.Tenant, r.User) {
				steps = append(steps, documents.AtMost(most[i]-1, documents.Term{Index: index, Weight: 1}))
			}
		}
		done, err := documents.Commit(ctx, s.docs, space, append(steps, put(id, r, found[0].Now)...)...)
		switch {
		case err != nil || done.Refused == 0:
			return err
		case done.Refused > 1:
			return registry.ErrManyWakes
		}
	}
	return documents.ErrContended
}

// WakeOf implements registry.WakeStore.
func (s store) WakeOf(ctx context.Context, tenant, deviceID string) (registry.WakeRecord, error) {
	found, err := s.docs.Read(ctx, space.Ref(idOf(tenant, deviceID)))
	if err != nil {
		return registry.WakeRecord{}, err
	}
	return recordOf(tenant, deviceID, found[0])
}

// PlanWake implements registry.WakeStore.
func (s store) PlanWake(
	ctx context.Context, tenant, deviceID string, plan func(registry.WakeRecord) (registry.WakePlan, bool),
) error {
	id := idOf(tenant, deviceID)
	return documents.Change(ctx, s.docs, space, []string{id}, func(found []documents.Document) ([]documents.Step, error) {
		r, err := recordOf(tenant, deviceID, found[0])
		if err != nil {
			return nil, err
		}
		next, write := plan(r)
		if !write {
			return nil, nil
		}
		r.Plan = next
		return put(id, r, found[0].Now), nil
	})
}

// DueWakes implements registry.WakeStore.
func (s store) DueWakes(ctx context.Context, limit int) ([]registry.WakeRef, error) {
	lists, err := s.docs.Members(ctx, documents.Query{Space: space, Index: dueIndex, Due: true, Limit: limit})
	if err != nil {
		return nil, err
	}
	refs := make([]registry.WakeRef, len(lists[0]))
	for i, id := range lists[0] {
		refs[i].Tenant, refs[i].DeviceID, _ = strings.Cut(id, "/")
	}
	return refs, nil
}

// DropWake implements registry.WakeStore.
func (s store) DropWake(ctx context.Context, tenant, deviceID string) (dropped bool, err error) {
	id := idOf(tenant, deviceID)
	err = documents.Change(ctx, s.docs, space, []string{id}, func(found []documents.Document) ([]documents.Step, error) {
		if dropped = found[0].Exists(); !dropped {
			return nil, nil
		}
		r, _ := recordOf(tenant, deviceID, found[0]) // if it is not readable, its user's index forgets it by age
		return remove(id, tenant, r.User), nil
	})
	return dropped, err
}

// erasePage is how many registrations are erased in one step.
const erasePage = 50

// Erase forgets the registrations of a user's devices, and returns how many.
func Erase(ctx context.Context, docs documents.Store, tenant, user string) (removed int, err error) {
	if user == "" {
		return 0, nil
	}
	for {
		lists, err := docs.Members(ctx, documents.Query{
			Space: space, Index: userIndex + idOf(tenant, user), Limit: erasePage,
		})
		if err != nil || len(lists[0]) == 0 {
			return removed, err
		}
		var steps []documents.Step
		for _, id := range lists[0] {
			steps = append(steps, remove(id, tenant, user)...)
		}
		if _, err := documents.Commit(ctx, docs, space, steps...); err != nil {
			return removed, err
		}
		removed += len(lists[0])
	}
}
