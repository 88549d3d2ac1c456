package approvals

import (
	"cmp"
	"context"
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
	done, err := documents.Commit(ctx, s.docs, grants(g.Tenant),
		documents.AtMost(registry.MaxGrants-1, documents.Term{Index: allIndex, Weight: 1, Except: binding}),
		documents.Delete(binding), documents.PutJSON(binding, stored, life), // created anew
		documents.Leave(allIndex, binding), documents.Join(allIndex, binding, life, 0))
	switch {
	case err != nil:
		return g, err
	case done.Refused > 0:
		return g, registry.ErrManyGrants
	}
	return stored.made(done.Now), nil
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
		return []documents.Step{documents.Delete(binding), documents.Leave(allIndex, binding)}, nil
	}
	return documents.ChangeOne(ctx, s.docs, grants(g.Tenant), binding, registry.ErrNoGrant, change)
}
