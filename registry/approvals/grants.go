package approvals

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"time"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/documents"
)

// allIndex is the index of a tenant's grants. A grant is a document under its binding, so the next one with the same
// binding replaces it.
const allIndex = "all"

func grants(tenant string) documents.Space { return documents.Space{Tenant: tenant, Kind: "grants"} }

// grant is a stored grant. Its times are those of the document.
type grant struct {
	registry.Grant
	Life time.Duration `json:"life"`
}

func (g grant) made(at time.Time) registry.Grant {
	g.CreatedAt, g.ExpiresAt = at, at.Add(g.Life)
	return g.Grant
}

// PutGrant implements registry.GrantStore.
func (s *store) PutGrant(ctx context.Context, g registry.Grant, life time.Duration) (registry.Grant, error) {
	stored, binding := grant{g, life}, g.Binding()
	for range documents.MaxTries {
		found, err := s.docs.Read(ctx, grants(g.Tenant).Ref(binding))
		if err != nil {
			return g, err
		}
		steps := stored.bounds(binding)
		conditions := len(steps)
		if former, err := documents.Decode[grant](found[0], registry.ErrNoGrant); err == nil { // else it expires
			steps = append(steps, former.leave(binding)...)
		}
		steps = append(steps, documents.Expect(binding, found[0].Revision),
			documents.Delete(binding), documents.PutJSON(binding, stored, life)) // created anew
		for _, index := range stored.indexes() {
			steps = append(steps, documents.Leave(index, binding), documents.Join(index, binding, life, 0))
		}
		switch done, err := documents.Commit(ctx, s.docs, grants(g.Tenant), steps...); {
		case err != nil:
			return g, err
		case done.Refused == 0:
			return stored.made(done.Now), nil
		case done.Refused == 1:
			return g, registry.ErrManyGrants
		case done.Refused <= conditions:
			return g, registry.ErrManyGrantsOfOne
		}
	}
	return g, documents.ErrContended
}

// indexes returns the indexes of a grant: the tenant's, and one for each of its givers. A giver has a digest there,
// because a name may have any characters, and the index outlives an erased person.
func (g grant) indexes() []string {
	all := []string{allIndex}
	for _, giver := range g.Givers() {
		sum := sha256.Sum256([]byte(giver))
		all = append(all, "by."+hex.EncodeToString(sum[:16]))
	}
	return all
}

// bounds returns the conditions under which a grant may be stored: the tenant's, then those of its givers.
func (g grant) bounds(binding string) (steps []documents.Step) {
	most := int64(registry.MaxGrants)
	for _, index := range g.indexes() {
		steps = append(steps, documents.AtMost(most-1, documents.Term{Index: index, Weight: 1, Except: binding}))
		most = registry.MaxGrantsOfOne
	}
	return steps
}

// leave returns the steps that remove a grant from its indexes.
func (g grant) leave(binding string) (steps []documents.Step) {
	for _, index := range g.indexes() {
		steps = append(steps, documents.Leave(index, binding))
	}
	return steps
}

func decodeGrants(found []documents.Document) ([]registry.Grant, error) {
	all := []registry.Grant{}
	for _, d := range documents.Existing(found) {
		g, err := documents.Decode[grant](d, nil)
		if err != nil {
			return nil, err
		}
		all = append(all, g.made(d.Created))
	}
	return all, nil
}

// FindGrant implements registry.GrantStore.
func (s *store) FindGrant(ctx context.Context, tenant string, bindings ...string) (registry.Grant, error) {
	found, err := s.docs.Read(ctx, grants(tenant).Refs(bindings...)...)
	if err != nil {
		return registry.Grant{}, err
	}
	all, err := decodeGrants(found)
	if err == nil && len(all) == 0 {
		err = registry.ErrNoGrant
	}
	if err != nil {
		return registry.Grant{}, err
	}
	return all[0], nil
}

// Grants implements registry.GrantStore.
func (s *store) Grants(ctx context.Context, tenant string) ([]registry.Grant, error) {
	current := documents.Query{Space: grants(tenant), Index: allIndex, Limit: registry.MaxGrants}
	found, err := documents.Listed(ctx, s.docs, current, "", "")
	if err != nil {
		return nil, err
	}
	all, err := decodeGrants(found)
	slices.SortFunc(all, func(a, b registry.Grant) int {
		return cmp.Or(a.ExpiresAt.Compare(b.ExpiresAt), cmp.Compare(a.ID, b.ID))
	})
	return all, err
}

// RevokeGrant implements registry.GrantStore.
func (s *store) RevokeGrant(ctx context.Context, g registry.Grant) error {
	binding := g.Binding()
	change := func(current grant, _ documents.Document) ([]documents.Step, error) {
		if current.ID != g.ID { // replaced since
			return nil, registry.ErrNoGrant
		}
		return append(current.leave(binding), documents.Delete(binding)), nil
	}
	return documents.ChangeOne(ctx, s.docs, grants(g.Tenant), binding, registry.ErrNoGrant, change)
}
