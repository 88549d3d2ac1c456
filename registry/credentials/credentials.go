// Package credentials keeps API keys and the credentials of devices as documents of a store. Every store uses it to
// implement registry.CredentialStore.
//
// A credential is a document in a space of its own, named by its digest: a presented credential does not tell its
// tenant. The space also has the time of its last use, so that a use does not collide with a change. The space of the
// tenant lists its credentials: a document for each id and for each paired device names the digest, and indexes have
// the ids of all, those of a device, and the paired devices. The credential is written before it is listed, and removed
// before it is unlisted. So a member of a list without a credential counts until it expires, and is not shown.
//
// Imports: only registry and registry/documents, of the packages of this module.
package credentials

import (
	"context"
	"errors"
	"log/slog"
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
	c.LastUsed = time.Time{}
	if !c.ExpiresAt.IsZero() {
		c.ExpiresAt = c.ExpiresAt.UTC().Truncate(time.Millisecond)
	}
	var life time.Duration
	create := func(found []documents.Document) ([]documents.Step, error) {
		if found[0].Exists() {
			return nil, registry.ErrCredentialExists
		}
		var err error
		c.CreatedAt = found[0].Now
		if life, err = lifeOf(c, found[0].Now); err != nil {
			return nil, err
		}
		return []documents.Step{documents.PutJSON(credentialID, c, life)}, nil
	}
	if err := documents.Change(ctx, s.docs, secret(c.Digest), []string{credentialID}, create); err != nil {
		return registry.Credential{}, err
	}
	if err := s.add(ctx, memberOf(c), c.Tenant, life); err != nil {
		_, failed := documents.Commit(ctx, s.docs, secret(c.Digest), documents.Delete(credentialID))
		return registry.Credential{}, errors.Join(err, failed)
	}
	return c, nil
}

// lifeOf returns how long a credential lives that is used or changed now.
func lifeOf(c registry.Credential, now time.Time) (time.Duration, error) {
	switch left := c.ExpiresAt.Sub(now); {
	case c.ExpiresAt.IsZero():
		return registry.CredentialIdle, nil
	case left <= 0:
		return 0, registry.ErrCredentialExpires
	default:
		return min(left, registry.CredentialIdle), nil
	}
}

// decode reads a credential and its last use.
func decode(stored, used documents.Document) (c registry.Credential, err error) {
	if c, err = documents.Decode[registry.Credential](stored, registry.ErrNoCredential); err != nil {
		return c, err
	}
	if err = c.Validate(); err != nil {
		return c, registry.StoreUnavailable("read a credential", err)
	}
	if _, err = lifeOf(c, stored.Now); err != nil { // the store may keep it for some ms more
		return registry.Credential{}, registry.ErrNoCredential
	}
	if ms, err := strconv.ParseInt(string(used.Data), 10, 64); err == nil {
		c.LastUsed = time.UnixMilli(ms).UTC()
	}
	return c, nil
}

// CredentialByDigest implements registry.CredentialStore.
func (s *store) CredentialByDigest(ctx context.Context, digest string) (registry.Credential, error) {
	found, err := s.docs.Read(ctx, secret(digest).Ref(credentialID), secret(digest).Ref(usedID))
	if err != nil {
		return registry.Credential{}, err
	}
	return decode(found[0], found[1])
}

// Credential implements registry.CredentialStore.
func (s *store) Credential(ctx context.Context, tenant, id string) (registry.Credential, error) {
	m, err := s.member(ctx, tenant, id)
	if err != nil {
		return registry.Credential{}, err
	}
	return s.CredentialByDigest(ctx, m.Digest)
}

// UpdateCredential implements registry.CredentialStore.
func (s *store) UpdateCredential(
	ctx context.Context, tenant, id string, change func(*registry.Credential) error,
) (registry.Credential, error) {
	m, err := s.member(ctx, tenant, id)
	if err != nil {
		return registry.Credential{}, err
	}
	var c registry.Credential
	var life time.Duration
	update := func(found []documents.Document) ([]documents.Step, error) {
		used, err := s.docs.Read(ctx, secret(m.Digest).Ref(usedID))
		if err != nil {
			return nil, err
		}
		if c, err = decode(found[0], used[0]); err != nil {
			return nil, err
		}
		if c, err = registry.ChangedCredential(c, change); err != nil {
			return nil, err
		}
		if life, err = lifeOf(c, found[0].Now); err != nil {
			return nil, err
		}
		return []documents.Step{documents.PutJSON(credentialID, c, life), documents.Extend(usedID, life)}, nil
	}
	err = documents.Change(ctx, s.docs, secret(m.Digest), []string{credentialID}, update)
	if errors.Is(err, documents.ErrContended) {
		return registry.Credential{}, registry.ErrCredentialChanges
	}
	if err == nil {
		err = s.renew(ctx, m, tenant, life)
	}
	if err != nil {
		return registry.Credential{}, err
	}
	_, err = s.AppendChange(ctx, registry.CredentialChange{Tenant: tenant, Kind: registry.ChangeCredential, ID: id})
	return c, err
}

// RevokeCredential implements registry.CredentialStore. It removes the credential, announces the change, and unlists it
// last. If a step fails, the next attempt finds it on the list and does the rest.
func (s *store) RevokeCredential(ctx context.Context, tenant, id string) (registry.Credential, error) {
	m, err := s.member(ctx, tenant, id)
	if err != nil {
		return registry.Credential{}, err
	}
	c, err := s.CredentialByDigest(ctx, m.Digest)
	if errors.Is(err, registry.CodeNotFound) {
		c, err = registry.Credential{Tenant: tenant, ID: id, Digest: m.Digest}, nil
	}
	if err != nil {
		return registry.Credential{}, err
	}
	remove := []documents.Step{documents.Delete(credentialID), documents.Delete(usedID)}
	if _, err := documents.Commit(ctx, s.docs, secret(m.Digest), remove...); err != nil {
		return registry.Credential{}, err
	}
	if _, err = s.AppendChange(ctx, registry.CredentialChange{
		Tenant: tenant, Kind: registry.ChangeCredential, ID: id, Revoked: true,
	}); err != nil {
		return registry.Credential{}, err
	}
	return c, s.unlist(ctx, m, tenant)
}

// renewal is how often a credential that is used renews its places on the lists.
const renewal = 24 * time.Hour

// TouchCredentials implements registry.CredentialStore.
func (s *store) TouchCredentials(ctx context.Context, digests ...string) error {
	for range documents.MaxTries {
		var err error
		if digests, err = s.touch(ctx, digests); err != nil || len(digests) == 0 {
			return err
		}
	}
	return registry.ErrCredentialChanges
}

// touch notes uses. It returns the digests of credentials that were changed in between.
func (s *store) touch(ctx context.Context, digests []string) (changed []string, err error) {
	refs := make([]documents.Ref, 0, 2*len(digests))
	for _, digest := range digests {
		refs = append(refs, secret(digest).Ref(credentialID), secret(digest).Ref(usedID))
	}
	found, err := s.docs.Read(ctx, refs...)
	if err != nil {
		return nil, err
	}
	var touched []registry.Credential
	var writes []documents.Write
	for i := range digests {
		stored, used := found[2*i], found[2*i+1]
		c, err := decode(stored, used)
		if err != nil { // it is gone, or not readable: it cannot have been used
			continue
		}
		life, _ := lifeOf(c, stored.Now) // it has not expired
		touched = append(touched, c)
		writes = append(writes, documents.Write{Space: secret(c.Digest), Steps: []documents.Step{
			documents.Expect(credentialID, stored.Revision), documents.Extend(credentialID, life),
			documents.Put(usedID, []byte(strconv.FormatInt(stored.Now.UnixMilli(), 10)), life),
		}})
	}
	done, err := s.docs.Write(ctx, writes...)
	if err != nil {
		return nil, err
	}
	for i, c := range touched {
		if done[i].Refused > 0 {
			changed = append(changed, c.Digest)
			continue
		}
		last := c.LastUsed
		if last.IsZero() {
			last = c.CreatedAt
		}
		if life, err := lifeOf(c, done[i].Now); err == nil && done[i].Now.Sub(last) >= renewal {
			if err := s.renew(ctx, memberOf(c), c.Tenant, life); err != nil {
				return nil, err
			}
		}
	}
	return changed, nil
}
