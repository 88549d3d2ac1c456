// Package tenants keeps the list of tenants, with their budgets, as documents of a store. Every store uses it to
// implement most of registry.TenantStore.
//
// All of it is one space of the fleet: a document for each tenant, an index of their names, and a document whose
// revision is the version of the budgets. Members of the index all end at the same time, so the index orders them by
// name. A member whose document has expired leaves when a page comes to it.
//
// Imports: only registry and registry/documents, of the packages of this module.
package tenants

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/documents"
)

// Listing implements registry.TenantStore, but for CountSessions.
type Listing struct{ docs documents.Store }

// New returns the list on documents.
func New(docs documents.Store) Listing { return Listing{docs} }

// Documents and the index.
const (
	tenantID  = "tenant." // and its name
	versionID = "version"
	namesList = "names"
)

// forever is the end of all members of the index.
var forever = time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)

const century = 100 * 365 * 24 * time.Hour

func space() documents.Space { return documents.Space{Kind: "tenants"} }

// put returns the steps that list a tenant.
func put(t registry.Tenant) []documents.Step {
	others := documents.Term{Index: namesList, Weight: 1, Except: t.Name}
	return []documents.Step{
		documents.AtMost(registry.MaxTenants-1, others),
		documents.PutJSON(tenantID+t.Name, t, registry.TenantIdle),
		documents.Join(namesList, t.Name, century, 0).Until(forever),
	}
}

// tenantOf reads a tenant. One that does not exist has only its name.
func tenantOf(name string, d documents.Document) (t registry.Tenant, err error) {
	if d.Exists() {
		if t, err = documents.Decode[registry.Tenant](d, nil); err != nil {
			return t, err
		}
		t.Since = d.Created
	}
	t.Name = name
	return t, nil
}

// NoteTenants implements registry.TenantStore.
func (s Listing) NoteTenants(ctx context.Context, names ...string) error {
	for some := range slices.Chunk(names, documents.ReadAtOnce) {
		found, err := s.docs.Read(ctx, refs(some)...)
		if err != nil {
			return err
		}
		var writes []documents.Write
		for i, d := range found {
			t, err := tenantOf(some[i], d)
			if err != nil { // of another release
				continue
			}
			steps := []documents.Step{documents.Extend(tenantID+t.Name, registry.TenantIdle)}
			if !t.Used {
				t.Used = true // if the tenant is changed at the same moment, the next note does it
				steps = append(put(t), documents.Expect(tenantID+t.Name, d.Revision))
			}
			writes = append(writes, documents.Write{Space: space(), Steps: steps})
		}
		if _, err := s.docs.Write(ctx, writes...); err != nil {
			return err
		}
	}
	return nil
}

// ChangeTenant implements registry.TenantStore.
func (s Listing) ChangeTenant(
	ctx context.Context, name string, change func(*registry.Tenant) error,
) (t registry.Tenant, err error) {
	if err := (registry.Key{Tenant: name, Session: "any"}).Validate(); err != nil {
		return t, err
	}
	for range documents.MaxTries {
		found, err := s.docs.Read(ctx, refs([]string{name})...)
		if err != nil {
			return t, err
		}
		if t, err = tenantOf(name, found[0]); err != nil {
			return t, err
		}
		before := t.Budget
		if err := change(&t); err != nil {
			return t, err
		}
		if t.Since.IsZero() {
			t.Since = found[0].Now
		}
		steps := append(put(t), documents.Expect(tenantID+name, found[0].Revision))
		if t.Budget != before {
			steps = append(steps, documents.Put(versionID, nil, century))
		}
		done, err := documents.Commit(ctx, s.docs, space(), steps...)
		switch {
		case err != nil:
			return t, err
		case done.Refused == 0:
			return t, nil
		case done.Refused == 1:
			return t, registry.StoreFull("the fleet", fmt.Sprintf("%d tenants", registry.MaxTenants))
		}
	}
	return t, documents.ErrContended
}

// Tenants implements registry.TenantStore. The cursor is the rank of the last name, and the name. Tenants that came
// since move the rank up, those that left move it down: so it only says where to begin to look.
func (s Listing) Tenants(ctx context.Context, after string, limit int) ([]registry.Tenant, string, error) {
	rank, last := 0, ""
	if text, name, ok := strings.Cut(after, " "); ok {
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 || n > registry.MaxTenants {
			return nil, "", registry.Errorf(registry.CodeInvalidRequest, "The cursor is not valid.")
		}
		rank, last = n, name
	}
	limit = min(max(limit, 1), registry.MaxTenantPage)
	for {
		names, err := s.names(ctx, rank, limit+2) // the last of the page before, this page, and one more
		switch {
		case err != nil:
			return nil, "", err
		case rank > 0 && (len(names) == 0 || names[0] > last): // some before have left
			rank = max(0, rank-limit)
			continue
		}
		from, found := slices.BinarySearch(names, last)
		if found {
			from++
		}
		page := names[from:min(from+limit, len(names))]
		next := ""
		if from+len(page) < len(names) || len(names) == limit+2 {
			if len(page) > 0 {
				last = page[len(page)-1]
			}
			next = strconv.Itoa(rank+from+len(page)-1) + " " + last
		}
		list, err := s.existing(ctx, page)
		return list, next, err
	}
}

// names returns names of the index in order. A failure of the store is the only error.
func (s Listing) names(ctx context.Context, skip, limit int) ([]string, error) {
	lists, err := s.docs.Members(ctx, documents.Query{Space: space(), Index: namesList, Skip: skip, Limit: limit})
	if err != nil {
		return nil, err
	}
	return lists[0], nil
}

// existing returns those of the named tenants whose documents exist. The others leave the index.
func (s Listing) existing(ctx context.Context, names []string) (list []registry.Tenant, err error) {
	found, err := s.docs.Read(ctx, refs(names)...)
	if err != nil {
		return nil, err
	}
	var writes []documents.Write
	for i, d := range found {
		if !d.Exists() {
			writes = append(writes, documents.Write{Space: space(), Steps: []documents.Step{
				documents.Expect(tenantID+names[i], ""), documents.Leave(namesList, names[i]),
			}})
			continue
		}
		t, err := tenantOf(names[i], d)
		if err != nil {
			return nil, err
		}
		list = append(list, t)
	}
	if len(writes) > 0 {
		_, err = s.docs.Write(ctx, writes...)
	}
	return list, err
}

// TenantsOf implements registry.TenantStore.
func (s Listing) TenantsOf(ctx context.Context, names ...string) ([]registry.Tenant, error) {
	found, err := s.docs.Read(ctx, refs(names)...)
	if err != nil {
		return nil, err
	}
	list := make([]registry.Tenant, len(names))
	for i, d := range found {
		if list[i], err = tenantOf(names[i], d); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// BudgetsVersion implements registry.TenantStore.
func (s Listing) BudgetsVersion(ctx context.Context) (string, error) {
	found, err := s.docs.Read(ctx, space().Ref(versionID))
	if err != nil {
		return "", err
	}
	return found[0].Revision, nil
}

func refs(names []string) []documents.Ref {
	list := make([]documents.Ref, len(names))
	for i, name := range names {
		list[i] = space().Ref(tenantID + name)
	}
	return list
}
