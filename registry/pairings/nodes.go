package pairings

import (
	"context"
	"errors"
	"time"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/documents"
)

// AskPairing implements registry.PairingStore.
func (s store) AskPairing(
	ctx context.Context, p registry.Pairing, ttl, most time.Duration,
) (registry.Pairing, error) {
	p.CreatedAt, p.ExpiresAt = time.Time{}, time.Time{}
	asked := request{Pairing: p, Life: ttl}
	id := requestID + docID(p.ID)
	for range documents.MaxTries {
		found, err := s.docs.Read(ctx, requests().Ref(id))
		if err != nil {
			return registry.Pairing{}, err
		}
		d := found[0]
		var before request
		if d.Exists() {
			if before, err = documents.Decode[request](d, nil); err != nil {
				return registry.Pairing{}, err
			}
		}
		stays := d.Exists() && (before.Decision != nil && before.Collected == "" ||
			before.Decision == nil && before.SameAsk(p) && d.Now.Sub(d.Created) < most)
		if stays && (before.Decision != nil || d.Expires.Sub(d.Now) > ttl/2) {
			return before.pairing(d), nil
		}
		if stays {
			before.Life = min(d.Now.Sub(d.Created)+ttl, most)
			left := before.Life - d.Now.Sub(d.Created)
			done, err := documents.Commit(ctx, s.docs, requests(),
				append(before.put(before.ID, left), documents.Expect(id, d.Revision))...)
			if err == nil && done.Refused > 0 {
				continue
			}
			return before.pairing(d), err
		}
		now, err := s.supersede(ctx, before, d, asked)
		if errors.Is(err, documents.ErrContended) {
			continue
		}
		if err != nil {
			return registry.Pairing{}, err
		}
		return asked.pairing(documents.Document{Created: now}), nil
	}
	return registry.Pairing{}, documents.ErrContended
}

// supersede stores a request in the place of the node's earlier one, if there is one.
func (s store) supersede(
	ctx context.Context, before request, d documents.Document, asked request,
) (time.Time, error) {
	id := requestID + docID(asked.ID)
	steps := asked.limits()
	limits := len(steps)
	steps = append(steps, documents.Expect(codeID+asked.CodeDigest, ""), documents.Expect(id, d.Revision))
	if d.Exists() {
		steps = append(append(steps, before.leave()...), documents.Delete(id))
		if before.Decision == nil {
			steps = append(steps, documents.Delete(codeID+before.CodeDigest))
		}
	}
	done, err := documents.Commit(ctx, s.docs, requests(), append(steps, asked.put(asked.ID, asked.Life)...)...)
	switch {
	case err != nil:
		return time.Time{}, err
	case done.Refused > limits+1:
		return time.Time{}, documents.ErrContended
	case done.Refused > limits:
		return time.Time{}, registry.ErrCodeTaken
	case done.Refused > 0:
		return time.Time{}, registry.ErrPairingsFull
	}
	return done.Now, nil
}

// NodePairing implements registry.PairingStore.
func (s store) NodePairing(ctx context.Context, deviceID string) (registry.Pairing, error) {
	found, err := s.docs.Read(ctx, requests().Ref(requestID+docID(registry.NodePairingID(deviceID, ""))))
	if err != nil {
		return registry.Pairing{}, err
	}
	r, err := documents.Decode[request](found[0], registry.ErrNoPairing)
	if err == nil && r.DeviceID != deviceID {
		return registry.Pairing{}, registry.ErrNoPairing
	}
	return r.pairing(found[0]), err
}

// CollectPairing implements registry.PairingStore.
func (s store) CollectPairing(
	ctx context.Context, id, credential string, ttl time.Duration,
) (p registry.Pairing, err error) {
	collect := func(r request, stored documents.Document) ([]documents.Step, error) {
		if !r.isReady(id) {
			return nil, registry.ErrNoPairing
		}
		r.Collected = credential
		p = r.pairing(stored)
		return append(r.leave(), documents.PutJSON(requestID+docID(id), r, ttl)), nil
	}
	err = documents.ChangeOne(ctx, s.docs, requests(), requestID+docID(id), registry.ErrNoPairing, collect)
	if err != nil {
		return registry.Pairing{}, err
	}
	return p, nil
}

// Documents and indexes of setup codes, in the space of requests: a node does not tell its tenant.
const (
	setupID     = "setup."
	setupsIndex = "setups."
)

// CreateSetup implements registry.PairingStore.
func (s store) CreateSetup(ctx context.Context, c registry.Setup, ttl time.Duration) (registry.Setup, error) {
	c.CreatedAt, c.ExpiresAt, c.UsedBy, c.Credential = time.Time{}, time.Time{}, "", ""
	tenant := setupsIndex + c.Tenant
	approver := tenant + "/" + c.By + "/" + c.ByUser
	done, err := documents.Commit(ctx, s.docs, requests(),
		documents.Expect(setupID+c.Digest, ""),
		documents.AtMost(registry.MaxSetups-1, documents.Term{Index: tenant, Weight: 1}),
		documents.AtMost(registry.MaxSetupsOfApprover-1, documents.Term{Index: approver, Weight: 1}),
		documents.PutJSON(setupID+c.Digest, c, ttl),
		documents.Join(tenant, c.Digest, ttl, 0), documents.Join(approver, c.Digest, ttl, 0))
	if err != nil {
		return registry.Setup{}, err
	}
	if done.Refused > 0 {
		return registry.Setup{}, registry.ErrManySetups
	}
	c.CreatedAt, c.ExpiresAt = done.Now, done.Now.Add(ttl)
	return c, nil
}

// UseSetup implements registry.PairingStore.
func (s store) UseSetup(ctx context.Context, digest, deviceID string) (c registry.Setup, err error) {
	use := func(stored registry.Setup, d documents.Document) ([]documents.Step, error) {
		if stored.UsedBy != "" && stored.UsedBy != deviceID {
			return nil, registry.ErrNoSetup
		}
		stored.UsedBy = deviceID
		c = stored
		c.CreatedAt, c.ExpiresAt = d.Created, d.Expires
		return []documents.Step{documents.PutJSON(setupID+digest, stored, 0)}, nil
	}
	err = documents.ChangeOne(ctx, s.docs, requests(), setupID+digest, registry.ErrNoSetup, use)
	if err != nil {
		return registry.Setup{}, err
	}
	return c, nil
}

// VoidSetups implements registry.PairingStore.
func (s store) VoidSetups(ctx context.Context, tenant, deviceID string) error {
	index := setupsIndex + tenant
	made, err := s.docs.Members(ctx, documents.Query{Space: requests(), Index: index, Limit: registry.MaxSetups})
	if err != nil || len(made[0]) == 0 {
		return err
	}
	refs := make([]documents.Ref, len(made[0]))
	for i, digest := range made[0] {
		refs[i] = requests().Ref(setupID + digest)
	}
	found, err := s.docs.Read(ctx, refs...)
	if err != nil {
		return err
	}
	for i := range found {
		c, err := documents.Decode[registry.Setup](found[i], registry.ErrNoSetup)
		if err != nil || c.UsedBy != deviceID {
			continue // it has expired, or is another device's
		}
		if _, err := documents.Commit(ctx, s.docs, requests(), documents.Delete(setupID+c.Digest),
			documents.Leave(index, c.Digest), documents.Leave(index+"/"+c.By+"/"+c.ByUser, c.Digest)); err != nil {
			return err
		}
	}
	return nil
}

// PairSetup implements registry.PairingStore.
func (s store) PairSetup(ctx context.Context, digest, credential string) error {
	pair := func(stored registry.Setup, _ documents.Document) ([]documents.Step, error) {
		stored.Credential = credential
		return []documents.Step{documents.PutJSON(setupID+digest, stored, 0)}, nil
	}
	return documents.ChangeOne(ctx, s.docs, requests(), setupID+digest, registry.ErrNoSetup, pair)
}
