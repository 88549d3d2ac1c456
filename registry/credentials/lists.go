package credentials

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/documents"
)

// Documents and indexes of a tenant's lists.
const (
	memberID = "id."     // and the id
	pairedID = "paired." // and the device id

	allIndex    = "all"
	deviceIndex = "device." // and the device id
	pairedIndex = "paired"  // device ids
)

func lists(tenant string) documents.Space {
	return documents.Space{Tenant: tenant, Kind: "credentials"}
}

// member is a credential on the lists of its tenant.
type member struct {
	ID     string `json:"id"`
	Digest string `json:"digest"`
	Device string `json:"device,omitempty"`
	Pairs  bool   `json:"pairs,omitempty"` // it belongs to a paired device
}

func memberOf(c registry.Credential) member {
	pairs := c.Kind == registry.CredentialDevice && c.DeviceID != ""
	return member{ID: c.ID, Digest: c.Digest, Device: c.DeviceID, Pairs: pairs}
}

// join returns the steps that list a credential for as long as it lives now. With pairs they also pair the device.
func (m member) join(end time.Time, pairs bool) []documents.Step {
	const life = registry.CredentialIdle
	steps := []documents.Step{documents.PutJSON(memberID+m.ID, m, life)}
	list := func(index, name string) {
		// It leaves first, because its new end may be earlier.
		steps = append(steps, documents.Leave(index, name), documents.Join(index, name, life, 0))
	}
	list(allIndex, m.ID)
	if m.Device != "" {
		list(deviceIndex+m.Device, m.ID)
	}
	if pairs {
		steps = append(steps, documents.PutJSON(pairedID+m.Device, m, life))
		list(pairedIndex, m.Device)
	}
	for i := range steps {
		steps[i] = steps[i].Until(end)
	}
	return steps
}

func (s *store) add(ctx context.Context, c registry.Credential) error {
	m := memberOf(c)
	others := documents.Term{Index: allIndex, Weight: 1, Except: m.ID}
	steps := append(m.join(c.ExpiresAt, m.Pairs), documents.AtMost(s.limit-1, others))
	limit := len(steps)
	if m.Pairs {
		steps = append(steps, documents.Expect(pairedID+m.Device, ""))
	}
	done, err := documents.Commit(ctx, s.docs, lists(c.Tenant), steps...)
	switch {
	case err != nil:
		return err
	case done.Refused == limit:
		return registry.ErrTooManyCredentials(int(s.limit))
	case done.Refused > limit:
		return registry.ErrDevicePaired
	}
	return nil
}

// errRotated is the error for a credential that is listed with another secret.
var errRotated = errors.New("the credential was rotated in the meantime")

// change makes changes to the lists of a credential. pairs reports whether the device is paired by it, or by none. It
// fails with errRotated if the credential is listed with another secret.
func (s *store) change(ctx context.Context, m member, tenant string, steps func(pairs bool) []documents.Step) error {
	ids := []string{memberID + m.ID}
	if m.Pairs {
		ids = append(ids, pairedID+m.Device)
	}
	change := func(found []documents.Document) ([]documents.Step, error) {
		all := []bool{true, m.Pairs}
		for i, d := range found {
			if !d.Exists() {
				continue
			}
			other, err := documents.Decode[member](d, nil)
			if err != nil {
				return nil, err
			}
			all[i] = other == m
		}
		if !all[0] {
			return nil, errRotated
		}
		return steps(all[1]), nil
	}
	return documents.Change(ctx, s.docs, lists(tenant), ids, change)
}

// renew lists a credential that is used or changed now.
func (s *store) renew(ctx context.Context, c registry.Credential) error {
	m := memberOf(c)
	err := s.change(ctx, m, c.Tenant, func(pairs bool) []documents.Step { return m.join(c.ExpiresAt, pairs) })
	if errors.Is(err, errRotated) { // which has renewed it
		return nil
	}
	return err
}

func (s *store) unlist(ctx context.Context, m member, tenant string) error {
	return s.change(ctx, m, tenant, func(pairs bool) []documents.Step {
		steps := []documents.Step{
			documents.Delete(memberID + m.ID), documents.Leave(allIndex, m.ID),
			documents.Leave(deviceIndex+m.Device, m.ID),
		}
		if pairs {
			steps = append(steps, documents.Delete(pairedID+m.Device), documents.Leave(pairedIndex, m.Device))
		}
		return steps
	})
}

func (s *store) member(ctx context.Context, tenant, id string) (m member, err error) {
	found, err := s.members(ctx, tenant, memberID, []string{id})
	if err != nil {
		return m, err
	}
	if len(found) == 0 {
		return m, registry.ErrNoCredential
	}
	return found[0], nil
}

// members reads the documents of ids or of paired devices. Those that do not exist are left out.
func (s *store) members(ctx context.Context, tenant, kind string, names []string) ([]member, error) {
	refs := make([]documents.Ref, len(names))
	for i, name := range names {
		refs[i] = lists(tenant).Ref(kind + name)
	}
	found, err := s.docs.Read(ctx, refs...)
	if err != nil {
		return nil, err
	}
	var members []member
	for _, d := range documents.Existing(found) {
		m, err := documents.Decode[member](d, nil)
		if err != nil {
			return nil, err
		}
		members = append(members, m)
	}
	return members, nil
}

// read returns the credentials of members. Those that do not exist are left out.
func (s *store) read(ctx context.Context, members []member) ([]registry.Credential, error) {
	var refs []documents.Ref
	for _, m := range members {
		refs = append(refs, secret(m.Digest).Refs(credentialID, usedID)...)
	}
	found, err := s.docs.Read(ctx, refs...)
	if err != nil {
		return nil, err
	}
	var all []registry.Credential
	for i, m := range members {
		c, err := decode(found[2*i], found[2*i+1])
		if err == nil && c.Next != "" { // a rotation did not finish
			c, err = s.under(ctx, c.Next)
		}
		switch {
		case err == nil:
			all = append(all, c.Credential)
		case !errors.Is(err, registry.ErrNoCredential):
			s.log.Warn("credential not readable; skipped", "credential", m.ID, "error", err)
		}
	}
	return all, s.readFormer(ctx, all)
}

// readFormer fills in when the former secrets of credentials were used.
func (s *store) readFormer(ctx context.Context, all []registry.Credential) error {
	var refs []documents.Ref
	var of []int
	for i, c := range all {
		if c.Former != "" {
			refs, of = append(refs, secret(c.Former).Ref(usedID)), append(of, i)
		}
	}
	if len(refs) == 0 {
		return nil
	}
	found, err := s.docs.Read(ctx, refs...)
	for n, used := range found {
		all[of[n]].FormerUsed = usedAt(used)
	}
	return err
}

// names lists an index, in the order of the names.
func (s *store) names(ctx context.Context, tenant, index string) ([]string, error) {
	found, err := s.docs.Members(ctx, documents.Query{Space: lists(tenant), Index: index, Limit: math.MaxInt32})
	if err != nil {
		return nil, err
	}
	slices.Sort(found[0])
	return found[0], nil
}

// Credentials implements registry.CredentialStore. It reads the ids of the whole list, which the tenant's limit bounds.
func (s *store) Credentials(
	ctx context.Context, q registry.CredentialQuery,
) (page []registry.Credential, next string, err error) {
	index, limit := allIndex, q.Limit
	if q.DeviceID != "" {
		index = deviceIndex + q.DeviceID
	}
	if limit <= 0 {
		limit = 100
	}
	ids, err := s.names(ctx, q.Tenant, index)
	if err != nil {
		return nil, "", err
	}
	from, found := slices.BinarySearch(ids, q.After)
	if found {
		from++
	}
	if ids = ids[from:]; len(ids) > limit {
		ids, next = ids[:limit], ids[limit-1]
	}
	members, err := s.members(ctx, q.Tenant, memberID, ids)
	if err != nil {
		return nil, "", err
	}
	if page, err = s.read(ctx, members); err != nil {
		return nil, "", err
	}
	return slices.DeleteFunc(page, func(c registry.Credential) bool { return !q.Selects(c) }), next, nil
}

// PairedDevices implements registry.CredentialStore. It costs one command if none of the ids is paired.
func (s *store) PairedDevices(
	ctx context.Context, tenant string, deviceIDs ...string,
) ([]registry.Credential, error) {
	ids := slices.DeleteFunc(slices.Clone(deviceIDs), func(id string) bool { return id == "" })
	slices.Sort(ids)
	members, err := s.members(ctx, tenant, pairedID, slices.Compact(ids))
	if err != nil {
		return nil, err
	}
	return s.read(ctx, members)
}

// PairedIDs implements registry.CredentialStore.
func (s *store) PairedIDs(ctx context.Context, tenant string) ([]string, error) {
	return s.names(ctx, tenant, pairedIndex)
}
