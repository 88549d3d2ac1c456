package credentials

import (
	"context"
	"errors"
	"time"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/documents"
)

// current returns the digest of the current secret of a listed credential. It differs from the listed one only if a
// rotation did not finish.
func (s *store) current(ctx context.Context, m member) (string, error) {
	c, err := s.under(ctx, m.Digest)
	if err != nil || c.Next == "" {
		return m.Digest, err
	}
	return c.Next, nil
}

// RotateCredential implements registry.CredentialStore. The steps are in an order in which each attempt that failed can
// be repeated, and in which a revocation at the same time wins:
//
//  1. the credential is written under the new secret, which no client knows yet
//  2. what is under the kept secret becomes a copy that names the new one, unless it has changed
//  3. the lists get the new secret, unless they have another by now, or none
//  4. what the credential does not keep is removed
func (s *store) RotateCredential(
	ctx context.Context, tenant, id string, r registry.Rotation,
) (registry.Credential, error) {
	if r.Overlap < 0 || r.Overlap > registry.MaxOverlap {
		return registry.Credential{}, registry.Errorf(registry.CodeInvalidRequest,
			"The overlap must be between 0 and %d days.", registry.MaxOverlap/(24*time.Hour))
	}
	for range documents.MaxTries {
		m, err := s.member(ctx, tenant, id)
		if err != nil {
			return registry.Credential{}, err
		}
		c, err := s.rotate(ctx, m, tenant, r)
		switch {
		case errors.Is(err, errRotated) || errors.Is(err, documents.ErrContended):
			continue
		case err != nil:
			return registry.Credential{}, err
		}
		_, err = s.AppendChange(ctx, registry.CredentialChange{Tenant: tenant, Kind: registry.ChangeCredential, ID: id})
		return c, err
	}
	return registry.Credential{}, registry.ErrCredentialChanges
}

func (s *store) rotate(
	ctx context.Context, m member, tenant string, r registry.Rotation,
) (c registry.Credential, err error) {
	digest, err := s.current(ctx, m)
	if err != nil {
		return c, err
	}
	keep := m.Digest
	if r.Keep != "" {
		keep = r.Keep
	}
	found, err := s.docs.Read(ctx, secret(digest).Refs(credentialID, usedID)...)
	if err != nil {
		return c, err
	}
	before, err := decode(found[0], found[1])
	if err == nil && keep != m.Digest && keep != digest && keep != before.Former {
		err = registry.ErrNoCredential
	}
	if err != nil {
		return c, err
	}
	c = before.Clone()
	c.LastUsed = time.Time{}
	c.Digest, c.Former, c.FormerEnds = r.Digest, keep, inMillis(found[0].Now.Add(r.Overlap))
	if !c.ExpiresAt.IsZero() && c.ExpiresAt.Before(c.FormerEnds) {
		c.FormerEnds = c.ExpiresAt
	}
	if keep == before.Former && before.FormerEnds.Before(c.FormerEnds) {
		c.FormerEnds = before.FormerEnds // a former secret cannot prolong its own life
	}
	if r.Overlap == 0 {
		c.Former, c.FormerEnds = "", time.Time{}
	}
	if err := c.Validate(); err != nil {
		return c, err
	}
	fresh := append(put(c), documents.Expect(credentialID, ""))
	switch done, err := documents.Commit(ctx, s.docs, secret(c.Digest), fresh...); {
	case err != nil:
		return c, err
	case done.Refused > 0:
		return c, registry.ErrCredentialExists
	}
	if err := s.keep(ctx, before.Credential, found[0].Revision, keep, c); err != nil {
		return c, errors.Join(err, s.remove(context.WithoutCancel(ctx), c.Digest))
	}
	to := memberOf(c)
	err = s.change(ctx, m, tenant, func(pairs bool) []documents.Step {
		return append(to.join(c.ExpiresAt, pairs), documents.Has(allIndex, m.ID)) // it is not revoked
	})
	if err != nil {
		return c, errors.Join(err, s.remove(context.WithoutCancel(ctx), c.Digest))
	}
	return c, s.removeFormer(ctx, c.Former, m.Digest, digest, before.Former)
}

// removeFormer removes the secrets that a rotation has replaced, except the one that it keeps.
func (s *store) removeFormer(ctx context.Context, keep string, digests ...string) (err error) {
	for _, old := range digests {
		if old != "" && old != keep {
			err = errors.Join(err, s.remove(ctx, old))
		}
	}
	return err
}

// keep writes the copy of a rotated credential under the kept secret, unless the credential before, of this revision,
// has changed.
func (s *store) keep(
	ctx context.Context, before registry.Credential, revision, keep string, c registry.Credential,
) error {
	var steps []documents.Step
	if c.Former != "" {
		copied := stored{Credential: before, Next: c.Digest}
		copied.Digest, copied.ExpiresAt = keep, c.FormerEnds
		copied.Former, copied.FormerEnds = "", time.Time{}
		steps = putStored(copied)
	}
	if keep == before.Digest {
		steps = append(steps, documents.Expect(credentialID, revision))
	}
	if len(steps) == 0 {
		return nil
	}
	done, err := documents.Commit(ctx, s.docs, secret(keep), steps...)
	if err == nil && done.Refused > 0 {
		err = errRotated
	}
	return err
}
