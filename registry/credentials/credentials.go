// Package credentials keeps API keys and the credentials of devices as documents of a store. Every store uses it to
// implement registry.CredentialStore.
//
// A credential is a document in a space of its own, named by its digest: a presented credential does not tell its
// tenant. The space also has the time of its last use, so that a use does not collide with a change. The space of the
// tenant lists its credentials: a document for each id and for each paired device names the digest, and indexes have
// the ids of all, those of a device, and the paired devices. The credential is written before it is listed, and removed
// before it is unlisted. So a member of a list without a credential counts until it expires, and is not shown.
//
// A rotation moves the credential to the space of its new secret. The space of the former secret keeps a copy that
// names the new one, until the overlap ends (rotate.go).
//
// Imports: only registry and registry/documents, of the packages of this module.
package credentials

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"time"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/documents"
)

// store implements registry.CredentialStore. The log of changes is that of the store it is part of.
type store struct {
	registry.ChangeStore
	docs  documents.Store
	limit int64 // of a tenant
	log   *slog.Logger
}

// New returns a store of credentials on documents, at most limit of a tenant. It logs changes to changes, and the
// credentials that it cannot read to log.
func New(docs documents.Store, changes registry.ChangeStore, limit int, log *slog.Logger) registry.CredentialStore {
	return &store{ChangeStore: changes, docs: docs, limit: int64(limit), log: log}
}

// Documents of a credential.
const (
	credentialID = "credential"
	usedID       = "used" // time of the last use in ms
)

func secret(digest string) documents.Space {
	return documents.Space{Kind: "credentials", Owner: digest}
}

// CreateCredential implements registry.CredentialStore.
func (s *store) CreateCredential(ctx context.Context, c registry.Credential) (registry.Credential, error) {
	if err := c.Validate(); err != nil {
		return registry.Credential{}, err
	}
	c = c.Clone()
	c.LastUsed, c.ExpiresAt = time.Time{}, inMillis(c.ExpiresAt)
	create := func(found []documents.Document) ([]documents.Step, error) {
		if found[0].Exists() {
			return nil, registry.ErrCredentialExists
		}
		if c.CreatedAt = found[0].Now; hasEnded(c, c.CreatedAt) {
			return nil, registry.ErrCredentialExpires
		}
		return put(c), nil
	}
	if err := documents.Change(ctx, s.docs, secret(c.Digest), []string{credentialID}, create); err != nil {
		return registry.Credential{}, err
	}
	if err := s.add(ctx, c); err != nil {
		_, failed := documents.Commit(ctx, s.docs, secret(c.Digest), documents.Delete(credentialID))
		return registry.Credential{}, errors.Join(err, failed)
	}
	return c, nil
}

func hasEnded(c registry.Credential, now time.Time) bool {
	return !c.ExpiresAt.IsZero() && !now.Before(c.ExpiresAt)
}

// put returns the steps that store a credential which is made or changed now.
func put(c registry.Credential) []documents.Step { return putStored(stored{Credential: c}) }

func putStored(c stored) []documents.Step {
	return []documents.Step{
		documents.PutJSON(credentialID, c, registry.CredentialIdle).Until(c.ExpiresAt),
		documents.Extend(usedID, registry.CredentialIdle).Until(c.ExpiresAt),
	}
}

func inMillis(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.UTC().Truncate(time.Millisecond)
}

// stored is a credential under the digest of one of its secrets. Of a former secret it is a copy that ends with it, and
// names the digest of the current one.
type stored struct {
	registry.Credential
	Next string `json:",omitempty"`
}

func decode(found, used documents.Document) (c stored, err error) {
	if c, err = documents.Decode[stored](found, registry.ErrNoCredential); err != nil {
		return c, err
	}
	if c.Former != "" && !found.Now.Before(c.FormerEnds) {
		c.Former, c.FormerEnds = "", time.Time{}
	}
	if err = c.Validate(); err != nil {
		return c, registry.StoreUnavailable("read a credential", err)
	}
	if at := usedAt(used); !at.IsZero() {
		c.LastUsed = at
	}
	return c, nil
}

func usedAt(used documents.Document) time.Time {
	ms, err := strconv.ParseInt(string(used.Data), 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

// CredentialByDigest implements registry.CredentialStore.
func (s *store) CredentialByDigest(ctx context.Context, digest string) (registry.Credential, error) {
	c, err := s.under(ctx, digest)
	if err != nil || c.Next == "" {
		return c.Credential, err
	}
	current, err := s.under(ctx, c.Next)
	if err == nil && current.Former != digest {
		err = registry.ErrNoCredential
	}
	if err != nil {
		return registry.Credential{}, err
	}
	current.Digest, current.LastUsed, current.ExpiresAt = digest, c.LastUsed, c.ExpiresAt
	current.Former, current.FormerEnds = "", time.Time{}
	return current.Credential, nil
}

// under returns what is stored under a digest.
func (s *store) under(ctx context.Context, digest string) (stored, error) {
	found, err := s.docs.Read(ctx, secret(digest).Refs(credentialID, usedID)...)
	if err != nil {
		return stored{}, err
	}
	return decode(found[0], found[1])
}

// Credential implements registry.CredentialStore.
func (s *store) Credential(ctx context.Context, tenant, id string) (registry.Credential, error) {
	m, err := s.member(ctx, tenant, id)
	if err != nil {
		return registry.Credential{}, err
	}
	all, err := s.read(ctx, []member{m})
	if err == nil && len(all) == 0 {
		err = registry.ErrNoCredential
	}
	if err != nil {
		return registry.Credential{}, err
	}
	return all[0], nil
}

// UpdateCredential implements registry.CredentialStore.
func (s *store) UpdateCredential(
	ctx context.Context, tenant, id string, change func(*registry.Credential) error,
) (registry.Credential, error) {
	m, err := s.member(ctx, tenant, id)
	if err != nil {
		return registry.Credential{}, err
	}
	digest, err := s.current(ctx, m)
	if err != nil {
		return registry.Credential{}, err
	}
	var c registry.Credential
	update := func(found []documents.Document) ([]documents.Step, error) {
		used, err := s.docs.Read(ctx, secret(digest).Ref(usedID))
		if err != nil {
			return nil, err
		}
		now, err := decode(found[0], used[0])
		switch {
		case err != nil:
			return nil, err
		case now.Next != "":
			return nil, documents.ErrContended // it was rotated in the meantime
		}
		if c, err = registry.ChangedCredential(now.Credential, change); err != nil {
			return nil, err
		}
		if c.ExpiresAt = inMillis(c.ExpiresAt); hasEnded(c, found[0].Now) {
			return nil, registry.ErrCredentialExpires
		}
		return put(c), nil
	}
	err = documents.Change(ctx, s.docs, secret(digest), []string{credentialID}, update)
	if errors.Is(err, documents.ErrContended) {
		return registry.Credential{}, registry.ErrCredentialChanges
	}
	if err == nil {
		err = s.renew(ctx, c)
	}
	if err != nil {
		return registry.Credential{}, err
	}
	_, err = s.AppendChange(ctx, registry.CredentialChange{Tenant: tenant, Kind: registry.ChangeCredential, ID: id})
	return c, err
}

// RevokeCredential implements registry.CredentialStore. It removes the credential, announces the change, and unlists it
// last. If a step fails, the next attempt finds it on the list and does the rest. If the credential is rotated
// meanwhile, it is still listed with its new secret, which is removed next.
func (s *store) RevokeCredential(ctx context.Context, tenant, id string) (registry.Credential, error) {
	for range documents.MaxTries {
		m, err := s.member(ctx, tenant, id)
		if err != nil {
			return registry.Credential{}, err
		}
		c, err := s.revoke(ctx, m, tenant)
		if !errors.Is(err, errRotated) {
			return c, err
		}
	}
	return registry.Credential{}, registry.ErrCredentialChanges
}

func (s *store) revoke(ctx context.Context, m member, tenant string) (registry.Credential, error) {
	c, err := s.under(ctx, m.Digest)
	if errors.Is(err, registry.CodeNotFound) {
		c, err = stored{Credential: registry.Credential{Tenant: tenant, ID: m.ID, Digest: m.Digest}}, nil
	}
	if err != nil {
		return registry.Credential{}, err
	}
	if err := s.remove(ctx, c.Next, m.Digest, c.Former); err != nil {
		return registry.Credential{}, err
	}
	change := registry.CredentialChange{Tenant: tenant, Kind: registry.ChangeCredential, ID: m.ID, Revoked: true}
	if m.Pairs {
		change.Device, change.User = m.Device, c.User
	}
	if _, err = s.AppendChange(ctx, change); err != nil {
		return registry.Credential{}, err
	}
	return c.Credential, s.unlist(ctx, m, tenant)
}

// remove removes what is stored under digests. Empty ones are left out.
func (s *store) remove(ctx context.Context, digests ...string) error {
	var writes []documents.Write
	for _, digest := range digests {
		if digest != "" {
			writes = append(writes, documents.Write{
				Space: secret(digest),
				Steps: []documents.Step{documents.Delete(credentialID), documents.Delete(usedID)},
			})
		}
	}
	_, err := s.docs.Write(ctx, writes...)
	return err
}

// renewal is how often a credential that is used renews its places on the lists.
const renewal = 24 * time.Hour

// TouchCredentials implements registry.CredentialStore. A use at the moment of a change is not noted: the change has
// renewed the credential's life.
func (s *store) TouchCredentials(ctx context.Context, digests ...string) error {
	refs := make([]documents.Ref, 0, 2*len(digests))
	for _, digest := range digests {
		refs = append(refs, secret(digest).Refs(credentialID, usedID)...)
	}
	found, err := s.docs.Read(ctx, refs...)
	if err != nil {
		return err
	}
	var touched []stored
	var writes []documents.Write
	for pair := range slices.Chunk(found, 2) {
		c, err := decode(pair[0], pair[1])
		if err != nil { // it is gone, or not readable: it cannot have been used
			continue
		}
		now := strconv.FormatInt(pair[0].Now.UnixMilli(), 10)
		touched = append(touched, c)
		writes = append(writes, documents.Write{Space: secret(c.Digest), Steps: []documents.Step{
			documents.Expect(credentialID, pair[0].Revision),
			documents.Extend(credentialID, registry.CredentialIdle).Until(c.ExpiresAt),
			documents.Put(usedID, []byte(now), registry.CredentialIdle).Until(c.ExpiresAt),
		}})
	}
	done, err := s.docs.Write(ctx, writes...)
	if err != nil {
		return err
	}
	for i, c := range touched {
		if c.LastUsed.IsZero() {
			c.LastUsed = c.CreatedAt
		}
		if done[i].Refused > 0 || done[i].Now.Sub(c.LastUsed) < renewal || c.Next != "" {
			continue
		}
		if err := s.renew(ctx, c.Credential); err != nil {
			return err
		}
	}
	return nil
}
