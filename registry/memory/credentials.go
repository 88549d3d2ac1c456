package memory

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/farhand/farhand/registry"
)

// credentials are the credentials of all tenants, and the log of their changes.
type credentials struct {
	mu       sync.Mutex
	byDigest expiring[string, *storedCredential]
	byID     map[tenantKey]*storedCredential
	paired   map[tenantKey]*storedCredential // credentials of paired devices, by device id
	counts   map[string]int                  // by tenant, including expired ones that were not removed
	purges   throttle

	log  []registry.CredentialChange
	last registry.CredentialChange // zero if the log is empty

	revoked map[revokedKey]map[string]time.Time // times of stored revocations
}

type storedCredential struct {
	life
	credential registry.Credential
}

// renew sets the expiry of a credential that is used or changed now.
func (c *storedCredential) renew(now time.Time) {
	c.expires = now.Add(registry.CredentialIdle)
	if end := c.credential.ExpiresAt; !end.IsZero() && end.Before(c.expires) {
		c.expires = end
	}
}

// CreateCredential implements registry.CredentialStore.
func (m *Store) CreateCredential(_ context.Context, c registry.Credential) (registry.Credential, error) {
	if err := c.Validate(); err != nil {
		return registry.Credential{}, err
	}
	s, now := &m.credentials, m.opts.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.purges.due(now, time.Minute) || s.counts[c.Tenant] >= m.opts.Credentials {
		s.purge(now)
	}
	switch {
	case !c.ExpiresAt.IsZero() && !now.Before(c.ExpiresAt):
		return registry.Credential{}, registry.ErrCredentialExpires
	case s.byDigest.get(c.Digest, now) != nil:
		return registry.Credential{}, registry.ErrCredentialExists
	case s.counts[c.Tenant] >= m.opts.Credentials:
		return registry.Credential{}, registry.ErrTooManyCredentials(m.opts.Credentials)
	case isPaired(c) && s.pairedTo(c.Tenant, c.DeviceID, now) != nil:
		return registry.Credential{}, registry.ErrDevicePaired
	}
	stored := &storedCredential{credential: c.Clone()}
	stored.credential.CreatedAt = now.UTC().Truncate(time.Millisecond)
	stored.credential.LastUsed = time.Time{}
	if !c.ExpiresAt.IsZero() {
		stored.credential.ExpiresAt = c.ExpiresAt.UTC().Truncate(time.Millisecond)
	}
	stored.renew(now)
	s.drop(s.byDigest[c.Digest]) // an expired one, if there is one
	s.byDigest[c.Digest], s.byID[tenantKey{c.Tenant, c.ID}] = stored, stored
	if isPaired(c) {
		s.paired[tenantKey{c.Tenant, c.DeviceID}] = stored
	}
	s.counts[c.Tenant]++
	return stored.credential.Clone(), nil
}

// isPaired reports whether a credential belongs to a paired device.
func isPaired(c registry.Credential) bool {
	return c.Kind == registry.CredentialDevice && c.DeviceID != ""
}

// pairedTo returns the credential of the paired device with an id, nil if there is none.
func (s *credentials) pairedTo(tenant, deviceID string, now time.Time) *storedCredential {
	if stored := s.paired[tenantKey{tenant, deviceID}]; stored != nil && now.Before(stored.expires) {
		return stored
	}
	return nil
}

// PairedDevices implements registry.CredentialStore.
func (m *Store) PairedDevices(
	_ context.Context, tenant string, deviceIDs ...string,
) ([]registry.Credential, error) {
	s, now := &m.credentials, m.opts.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []registry.Credential
	for _, id := range distinct(deviceIDs) {
		if stored := s.pairedTo(tenant, id, now); stored != nil {
			found = append(found, stored.credential.Clone())
		}
	}
	return found, nil
}

// PairedIDs implements registry.CredentialStore.
func (m *Store) PairedIDs(_ context.Context, tenant string) ([]string, error) {
	s, now := &m.credentials, m.opts.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	var ids []string
	for key, stored := range s.paired {
		if stored.credential.Tenant == tenant && now.Before(stored.expires) {
			ids = append(ids, key.id)
		}
	}
	return ids, nil
}

// distinct returns the ids sorted and without duplicates.
func distinct(ids []string) []string {
	ids = slices.Clone(ids)
	slices.Sort(ids)
	return slices.Compact(ids)
}

// CredentialByDigest implements registry.CredentialStore.
func (m *Store) CredentialByDigest(_ context.Context, digest string) (registry.Credential, error) {
	m.credentials.mu.Lock()
	defer m.credentials.mu.Unlock()
	stored := m.credentials.byDigest.get(digest, m.opts.Now())
	if stored == nil {
		return registry.Credential{}, registry.ErrNoCredential
	}
	return stored.credential.Clone(), nil
}

// Credential implements registry.CredentialStore.
func (m *Store) Credential(_ context.Context, tenant, id string) (registry.Credential, error) {
	m.credentials.mu.Lock()
	defer m.credentials.mu.Unlock()
	stored := m.credentials.get(tenant, id, m.opts.Now())
	if stored == nil {
		return registry.Credential{}, registry.ErrNoCredential
	}
	return stored.credential.Clone(), nil
}

// get returns a credential that has not expired, nil if there is none.
func (s *credentials) get(tenant, id string, now time.Time) *storedCredential {
	if stored := s.byID[tenantKey{tenant, id}]; stored != nil && now.Before(stored.expires) {
		return stored
	}
	return nil
}

// Credentials implements registry.CredentialStore.
func (m *Store) Credentials(
	_ context.Context, q registry.CredentialQuery,
) ([]registry.Credential, string, error) {
	s, now, limit := &m.credentials, m.opts.Now(), pageSize(q.Limit)
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []registry.Credential
	for _, stored := range s.byID {
		if now.Before(stored.expires) && q.Selects(stored.credential) && stored.credential.ID > q.After {
			found = append(found, stored.credential)
		}
	}
	slices.SortFunc(found, func(a, b registry.Credential) int { return strings.Compare(a.ID, b.ID) })
	next := ""
	if len(found) > limit {
		found = found[:limit]
		next = found[limit-1].ID
	}
	for i := range found {
		found[i] = found[i].Clone()
	}
	return found, next, nil
}

// UpdateCredential implements registry.CredentialStore.
func (m *Store) UpdateCredential(
	ctx context.Context, tenant, id string, change func(*registry.Credential) error,
) (registry.Credential, error) {
	for range registry.MaxCredentialUpdates {
		before, err := m.Credential(ctx, tenant, id)
		if err != nil {
			return registry.Credential{}, err
		}
		after, err := registry.ChangedCredential(before, change) // without the lock: it is the caller's code
		if err != nil {
			return registry.Credential{}, err
		}
		if done, err := m.replaceCredential(before, after); done || err != nil {
			return after, err
		}
	}
	return registry.Credential{}, registry.ErrCredentialChanges
}

// replaceCredential replaces before with after. It returns false if before has changed.
func (m *Store) replaceCredential(before, after registry.Credential) (bool, error) {
	s, now := &m.credentials, m.opts.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	stored := s.get(before.Tenant, before.ID, now)
	switch {
	case stored == nil:
		return false, registry.ErrNoCredential
	case !after.ExpiresAt.IsZero() && !now.Before(after.ExpiresAt):
		return false, registry.ErrCredentialExpires
	case !sameCredential(stored.credential, before):
		return false, nil
	}
	used := stored.credential.LastUsed // may be later than the update's read
	stored.credential = after.Clone()
	stored.credential.LastUsed = used
	stored.renew(now)
	s.append(m, registry.CredentialChange{Tenant: after.Tenant, Kind: registry.ChangeCredential, ID: after.ID})
	return true, nil
}

// sameCredential reports whether a credential was not updated between two reads.
func sameCredential(a, b registry.Credential) bool {
	return a.Name == b.Name && slices.Equal(a.Roles, b.Roles) && a.Tools == b.Tools && a.Context == b.Context &&
		slices.Equal(a.PublicKey, b.PublicKey) && slices.Equal(a.Approved, b.Approved) &&
		a.ExpiresAt.Equal(b.ExpiresAt) && a.CreatedAt.Equal(b.CreatedAt)
}

// RevokeCredential implements registry.CredentialStore.
func (m *Store) RevokeCredential(_ context.Context, tenant, id string) (registry.Credential, error) {
	s, now := &m.credentials, m.opts.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	stored := s.get(tenant, id, now)
	if stored == nil {
		return registry.Credential{}, registry.ErrNoCredential
	}
	s.drop(stored)
	s.append(m, registry.CredentialChange{
		Tenant: tenant, Kind: registry.ChangeCredential, ID: id, Revoked: true,
	})
	return stored.credential, nil
}

// TouchCredentials implements registry.CredentialStore.
func (m *Store) TouchCredentials(_ context.Context, digests ...string) error {
	s, now := &m.credentials, m.opts.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, digest := range digests {
		if stored := s.byDigest.get(digest, now); stored != nil {
			stored.credential.LastUsed = now.UTC().Truncate(time.Millisecond)
			stored.renew(now)
		}
	}
	return nil
}

// purge removes expired credentials.
func (s *credentials) purge(now time.Time) {
	for _, stored := range s.byDigest {
		if !now.Before(stored.expires) {
			s.drop(stored)
		}
	}
}

// drop removes a credential. It does nothing for nil.
func (s *credentials) drop(stored *storedCredential) {
	if stored == nil {
		return
	}
	c := stored.credential
	delete(s.byDigest, c.Digest)
	delete(s.byID, tenantKey{c.Tenant, c.ID})
	if device := (tenantKey{c.Tenant, c.DeviceID}); s.paired[device] == stored {
		delete(s.paired, device)
	}
	if s.counts[c.Tenant]--; s.counts[c.Tenant] <= 0 {
		delete(s.counts, c.Tenant)
	}
}

// AppendChange implements registry.CredentialStore.
func (m *Store) AppendChange(
	_ context.Context, c registry.CredentialChange,
) (registry.CredentialChange, error) {
	if err := c.Validate(); err != nil {
		return registry.CredentialChange{}, err
	}
	m.credentials.mu.Lock()
	defer m.credentials.mu.Unlock()
	if c.Remembered() {
		if err := m.credentials.remember(m, c); err != nil {
			return registry.CredentialChange{}, err
		}
	}
	return m.credentials.append(m, c), nil
}

// revokedKey identifies a tenant's revocations of one kind.
type revokedKey struct {
	tenant string
	kind   registry.ChangeKind
}

// remember stores a revocation for its tenant. It drops those that are too old.
func (s *credentials) remember(m *Store, c registry.CredentialChange) error {
	now, key := m.opts.Now(), revokedKey{c.Tenant, c.Kind}
	oldest := now
	maps.DeleteFunc(s.revoked[key], func(_ string, at time.Time) bool {
		if at.Before(oldest) {
			oldest = at
		}
		return now.Sub(at) >= m.opts.ChangeTTL
	})
	if _, known := s.revoked[key][c.ID]; !known && len(s.revoked[key]) >= m.opts.Revocations {
		return registry.ErrTooManyRevocations(c.Kind, m.opts.Revocations, oldest.Add(m.opts.ChangeTTL).Sub(now))
	}
	if s.revoked[key] == nil {
		s.revoked[key] = make(map[string]time.Time)
	}
	s.revoked[key][c.ID] = now.UTC().Truncate(time.Millisecond)
	return nil
}

// Revocations implements registry.CredentialStore.
func (m *Store) Revocations(_ context.Context, tenant string) ([]registry.CredentialChange, error) {
	s := &m.credentials
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []registry.CredentialChange
	for _, kind := range registry.RememberedKinds() {
		for id, at := range s.revoked[revokedKey{tenant, kind}] {
			all = append(all, registry.CredentialChange{At: at, Tenant: tenant, Kind: kind, ID: id, Revoked: true})
		}
	}
	return all, nil
}

// append appends to the log. It drops changes that are too old, and the oldest while the log is too long.
func (s *credentials) append(m *Store, c registry.CredentialChange) registry.CredentialChange {
	now := m.opts.Now()
	c.Place = s.last.Place.Next(now)
	c.Seq, c.At = s.last.Seq+1, time.UnixMilli(c.Place.Milli).UTC()
	old := 0
	for _, former := range s.log {
		if len(s.log)-old < registry.ChangeCap && now.Sub(former.At) < m.opts.ChangeTTL {
			break
		}
		old++
	}
	s.log, s.last = append(s.log[old:], c), c
	return c
}

// Changes implements registry.CredentialStore.
func (m *Store) Changes(_ context.Context, after registry.FeedID, limit int) (registry.ChangePage, error) {
	s := &m.credentials
	s.mu.Lock()
	defer s.mu.Unlock()
	first, found := slices.BinarySearchFunc(s.log, after, func(c registry.CredentialChange, id registry.FeedID) int {
		return c.Place.Compare(id)
	})
	if found {
		first++
	}
	page := s.log[first:min(len(s.log), first+pageSize(limit))]
	return registry.ChangePage{Changes: slices.Clone(page), Last: s.last.Seq}, nil
}
