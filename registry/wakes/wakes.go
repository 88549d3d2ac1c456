// Package wakes keeps how sleeping devices are woken, as documents of a store. Every store uses it to implement
// registry.WakeStore.
//
// All records are in one space of the fleet, each as a document. So one write changes a record together with the
// indexes of the devices that are to be woken (due.go), which every pod reads.
//
// Imports: only registry and registry/documents, of the packages of this module.
package wakes

import (
	"context"
	"strconv"
	"strings"
	"sync"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/documents"
)

type store struct {
	docs documents.Store

	mu    sync.Mutex
	turns map[string]int // how many members of an index recent calls of DueWakes have passed
}

// New returns a store of wakes on documents.
func New(docs documents.Store) registry.WakeStore {
	return &store{docs: docs, turns: make(map[string]int)}
}

var space = documents.Space{Kind: "wakes"}

// Indexes: the devices of a tenant, those of a user, and the own documents of users for one device id.
const (
	tenantIndex = "tenant."
	userIndex   = "user."
	deviceIndex = "device."
)

// firstID returns the id of the document of the user who registered a device id first. Earlier releases know only this
// one. A tenant's name has no slash.
func firstID(tenant, deviceID string) string { return tenant + "/" + deviceID }

// ownID returns the id of the document of a further user. It begins with a slash, as no tenant's name does.
func ownID(ref registry.WakeRef) string { return "/" + ref.Tenant + "/" + member(ref) }

// ids returns where the registration of a user's device can be.
func ids(ref registry.WakeRef) []string {
	return []string{firstID(ref.Tenant, ref.DeviceID), ownID(ref)}
}

// member names a user's device among those of its tenant.
func member(ref registry.WakeRef) string {
	return strconv.Itoa(len(ref.User)) + ":" + ref.User + ref.DeviceID
}

// refOf returns the device that member has named. ok is false if member has not made the text.
func refOf(tenant, text string) (ref registry.WakeRef, ok bool) {
	length, rest, _ := strings.Cut(text, ":")
	n, err := strconv.Atoi(length)
	if err != nil || n < 0 || n > len(rest) {
		return ref, false
	}
	return registry.WakeRef{Tenant: tenant, User: rest[:n], DeviceID: rest[n:]}, true
}

// indexes returns the indexes that have all devices of the tenant, and of the user if it has a name.
func indexes(ref registry.WakeRef) []string {
	if ref.User == "" {
		return []string{tenantIndex + ref.Tenant}
	}
	return []string{tenantIndex + ref.Tenant, userIndex + ref.Tenant + "/" + ref.User}
}

// put returns the steps that store a record in one of the documents that ids names. They remove the other one if it has
// a registration of the same user: a pod of the previous release wrote it.
func put(at int, found []documents.Document, r registry.WakeRecord) []documents.Step {
	names, steps := ids(r.Ref()), []documents.Step(nil)
	if other := 1 - at; isOf(r.Ref(), found[other]) {
		steps = remove(names[other], r.Ref())
	}
	id := names[at]
	steps = append(steps, documents.PutJSON(id, r, registry.WakeLife))
	steps = append(steps, planned(id, r, found[at].Now)...)
	for _, index := range indexes(r.Ref()) {
		steps = append(steps, documents.Join(index, id, registry.WakeLife, 0))
	}
	if id == ownID(r.Ref()) {
		steps = append(steps, documents.Join(deviceIndex+firstID(r.Tenant, r.DeviceID), id, registry.WakeLife, 0))
	}
	return steps
}

// isOf reports whether a document has a registration of a device's user.
func isOf(ref registry.WakeRef, d documents.Document) bool {
	r, err := recordOf(ref.Tenant, ref.DeviceID, d)
	return err == nil && r.User == ref.User
}

func remove(id string, ref registry.WakeRef) []documents.Step {
	steps := append([]documents.Step{documents.Delete(id)}, unplanned(id, ref)...)
	for _, index := range indexes(ref) {
		steps = append(steps, documents.Leave(index, id))
	}
	return append(steps, documents.Leave(deviceIndex+firstID(ref.Tenant, ref.DeviceID), id))
}

func recordOf(tenant, deviceID string, d documents.Document) (registry.WakeRecord, error) {
	r, err := documents.Decode[registry.WakeRecord](d, registry.ErrNoWake)
	r.Tenant, r.DeviceID, r.SetAt = tenant, deviceID, d.Created
	return r, err
}

// choose returns which of the documents that ids names has the registration, and the registration. It fails with
// ErrNoWake if none has.
func choose(ref registry.WakeRef, found []documents.Document) (at int, r registry.WakeRecord, err error) {
	failed := error(registry.ErrNoWake)
	for at, d := range found {
		r, err := recordOf(ref.Tenant, ref.DeviceID, d)
		switch {
		case err == nil && r.User == ref.User:
			return at, r, nil
		case err != nil && d.Exists():
			failed = err // it may be this user's
		}
	}
	return 0, registry.WakeRecord{}, failed
}

// SetWake implements registry.WakeStore. A device that registers the same again writes nothing, until a tenth of the
// registration's life has passed.
func (s *store) SetWake(ctx context.Context, r registry.WakeRecord) error {
	ref := r.Ref()
	names := ids(ref)
	for range documents.MaxTries {
		found, err := s.docs.Read(ctx, space.Refs(names...)...)
		if err != nil {
			return err
		}
		var steps []documents.Step
		for i, id := range names {
			steps = append(steps, documents.Expect(id, found[i].Revision))
		}
		at, before, err := choose(ref, found)
		switch {
		case err == nil:
			d := found[at]
			if before.Wake.Equal(r.Wake) && d.Expires.Sub(d.Now) > registry.WakeLife*9/10 {
				return nil
			}
			r.Plan = before.Plan
		case err != registry.ErrNoWake:
			return err
		default:
			if r.Plan = (registry.WakePlan{}); found[0].Exists() {
				at = 1
			}
			most := []int64{registry.MaxWakes, registry.MaxWakesOfUser}
			for i, index := range indexes(ref) {
				steps = append(steps, documents.AtMost(most[i]-1, documents.Term{Index: index, Weight: 1}))
			}
		}
		done, err := documents.Commit(ctx, s.docs, space, append(steps, put(at, found, r)...)...)
		switch {
		case err != nil || done.Refused == 0:
			return err
		case done.Refused > len(names):
			return registry.ErrManyWakes
		}
	}
	return documents.ErrContended
}

// WakeOf implements registry.WakeStore.
func (s *store) WakeOf(ctx context.Context, ref registry.WakeRef) (registry.WakeRecord, error) {
	found, err := s.docs.Read(ctx, space.Refs(ids(ref)...)...)
	if err != nil {
		return registry.WakeRecord{}, err
	}
	_, r, err := choose(ref, found)
	return r, err
}

// maxUsers is how many users' registrations of one device id WakesOf returns, besides the first.
const maxUsers = 20

// WakesOf implements registry.WakeStore.
func (s *store) WakesOf(ctx context.Context, tenant, deviceID string) ([]registry.WakeRecord, error) {
	first := firstID(tenant, deviceID)
	lists, err := s.docs.Members(ctx, documents.Query{Space: space, Index: deviceIndex + first, Limit: maxUsers})
	if err != nil {
		return nil, err
	}
	found, err := s.docs.Read(ctx, space.Refs(append([]string{first}, lists[0]...)...)...)
	if err != nil {
		return nil, err
	}
	var all []registry.WakeRecord
	for _, d := range documents.Existing(found) {
		r, err := recordOf(tenant, deviceID, d)
		if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, nil
}

// PlanWake implements registry.WakeStore.
func (s *store) PlanWake(
	ctx context.Context, ref registry.WakeRef, plan func(registry.WakeRecord) (registry.WakePlan, bool),
) error {
	names := ids(ref)
	return documents.Change(ctx, s.docs, space, names, func(found []documents.Document) ([]documents.Step, error) {
		at, r, err := choose(ref, found)
		if err != nil {
			return nil, err
		}
		next, write := plan(r)
		if !write {
			return nil, nil
		}
		r.Plan = next
		return put(at, found, r), nil
	})
}

// DropWake implements registry.WakeStore. If pods of the previous release have also written, the user may have both
// documents.
func (s *store) DropWake(ctx context.Context, ref registry.WakeRef) (dropped bool, err error) {
	names := ids(ref)
	err = documents.Change(ctx, s.docs, space, names, func(found []documents.Document) ([]documents.Step, error) {
		_, _, err := choose(ref, found)
		switch dropped = err == nil; {
		case err == registry.ErrNoWake:
			return nil, nil
		case err != nil:
			return nil, err
		}
		var steps []documents.Step
		for i, id := range names {
			if isOf(ref, found[i]) {
				steps = append(steps, remove(id, ref)...)
			}
		}
		return steps, nil
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
			Space: space, Index: userIndex + tenant + "/" + user, Limit: erasePage,
		})
		if err != nil || len(lists[0]) == 0 {
			return removed, err
		}
		var steps []documents.Step
		for _, id := range lists[0] {
			ref := registry.WakeRef{Tenant: tenant, User: user}
			if text, own := strings.CutPrefix(id, "/"+tenant+"/"); own {
				ref, _ = refOf(tenant, text)
			} else {
				ref.DeviceID = strings.TrimPrefix(id, tenant+"/")
			}
			steps = append(steps, remove(id, ref)...)
		}
		if _, err := documents.Commit(ctx, docs, space, steps...); err != nil {
			return removed, err
		}
		removed += len(lists[0])
	}
}
