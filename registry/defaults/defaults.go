// Package defaults keeps the default devices of users as documents of a store. Every store uses it to implement
// registry.DefaultStore.
//
// A tenant's defaults are in one space: a document per user, in one index, by which they are bounded.
//
// Imports: only registry and registry/documents, of the packages of this module.
package defaults

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/documents"
)

// store implements registry.DefaultStore.
type store struct{ docs documents.Store }

// New returns a store of default devices on documents.
func New(docs documents.Store) registry.DefaultStore { return store{docs} }

// all is the index of all defaults of a tenant.
const all = "all"

func space(tenant string) documents.Space { return documents.Space{Tenant: tenant, Kind: "defaults"} }

// chosen is the document of a user's default.
type chosen struct {
	DeviceID string `json:"device_id"`
}

// idOf returns the id of a user's document.
func idOf(user string) string {
	sum := sha256.Sum256([]byte(user))
	return hex.EncodeToString(sum[:])
}

// put returns the steps that store a default for its whole life.
func put(id, device string) []documents.Step {
	return []documents.Step{
		documents.PutJSON(id, chosen{device}, registry.DefaultLife),
		documents.Join(all, id, registry.DefaultLife, 0),
	}
}

// DefaultDevice implements registry.DefaultStore.
func (s store) DefaultDevice(ctx context.Context, tenant, user string) (string, error) {
	found, err := s.docs.Read(ctx, space(tenant).Ref(idOf(user)))
	if err != nil {
		return "", err
	}
	c, err := documents.Decode[chosen](found[0], registry.ErrNoDefault)
	if err != nil {
		return "", err
	}
	if found[0].Expires.Sub(found[0].Now) < registry.DefaultLife/2 {
		_, err = documents.Commit(ctx, s.docs, space(tenant), put(idOf(user), c.DeviceID)...)
	}
	return c.DeviceID, err
}

// SetDefaultDevice implements registry.DefaultStore.
func (s store) SetDefaultDevice(ctx context.Context, tenant, user, device string) error {
	id := idOf(user)
	steps := append(put(id, device),
		documents.AtMost(registry.MaxDefaults-1, documents.Term{Index: all, Weight: 1, Except: id}))
	done, err := documents.Commit(ctx, s.docs, space(tenant), steps...)
	if err == nil && done.Refused > 0 {
		return registry.ErrManyDefaults
	}
	return err
}

// DropDefaultDevice implements registry.DefaultStore.
func (s store) DropDefaultDevice(ctx context.Context, tenant, user string) error {
	id := idOf(user)
	return documents.ChangeOne(ctx, s.docs, space(tenant), id, registry.ErrNoDefault,
		func(chosen, documents.Document) ([]documents.Step, error) {
			return []documents.Step{documents.Delete(id), documents.Leave(all, id)}, nil
		})
}

// Erase removes the default of a user, and returns how many there were.
func Erase(ctx context.Context, docs documents.Store, tenant, user string) (int, error) {
	switch err := New(docs).DropDefaultDevice(ctx, tenant, user); {
	case errors.Is(err, registry.ErrNoDefault):
		return 0, nil
	case err != nil:
		return 0, err
	}
	return 1, nil
}
