package memory

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/farhand/farhand/registry"
)

// changeLog is the log of changes of credentials, and the revocations of all tenants.
type changeLog struct {
	mu  sync.Mutex
	log capped[registry.CredentialChange]
	seq int64 // of the last change

	revoked map[revokedKey]map[string]time.Time // times of stored revocations
}

// AppendChange implements registry.ChangeStore.
func (m *Store) AppendChange(
	ctx context.Context, c registry.CredentialChange,
) (appended registry.CredentialChange, err error) {
	if err := c.Validate(); err != nil {
		return registry.CredentialChange{}, err
	}
	err = m.keeper.write(ctx, func(tx *change) error {
		m.changeLog.mu.Lock()
		defer tx.unlock(&m.changeLog.mu)
		if c.Remembered() {
			if err := m.changeLog.remember(tx, m, c); err != nil {
				return err
			}
		}
		appended = m.changeLog.append(tx, m, c)
		return nil
	})
	if err != nil {
		return registry.CredentialChange{}, err
	}
	return appended, nil
}

// revokedKey identifies a tenant's revocations of one kind.
type revokedKey struct {
	tenant string
	kind   registry.ChangeKind
}

// record returns the key of a revocation's record.
func (k revokedKey) record(id string) string { return key(k.tenant, string(k.kind), id) }

// remember stores a revocation for its tenant. It drops those that are too old.
func (s *changeLog) remember(tx *change, m *Store, c registry.CredentialChange) error {
	now, key := m.opts.Now(), revokedKey{c.Tenant, c.Kind}
	oldest := s.purge(tx, m, key, now)
	if _, known := s.revoked[key][c.ID]; !known && len(s.revoked[key]) >= m.opts.Revocations {
		return registry.ErrTooManyRevocations(c.Kind, m.opts.Revocations, oldest.Add(m.opts.ChangeTTL).Sub(now))
	}
	if s.revoked[key] == nil {
		s.revoked[key] = make(map[string]time.Time)
	}
	at := now.UTC().Truncate(time.Millisecond)
	s.revoked[key][c.ID] = at
	tx.put(kindRevocation, key.record(c.ID), packed(nil, nanos(at)))
	return nil
}

// purge drops a tenant's revocations that are too old, and returns the time of the oldest other one.
func (s *changeLog) purge(tx *change, m *Store, key revokedKey, now time.Time) (oldest time.Time) {
	oldest = now
	for id, at := range s.revoked[key] {
		switch {
		case now.Sub(at) >= m.opts.ChangeTTL:
			delete(s.revoked[key], id)
			tx.drop(kindRevocation, key.record(id))
		case at.Before(oldest):
			oldest = at
		}
	}
	return oldest
}

// loadRevocation takes a revocation into memory, or out of it.
func (m *Store) loadRevocation(r Record) error {
	var key revokedKey
	var kind, id string
	if err := split(r.Key, &key.tenant, &kind, &id); err != nil {
		return err
	}
	key.kind = registry.ChangeKind(kind)
	s := &m.changeLog
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Value == nil {
		delete(s.revoked[key], id)
		return nil
	}
	var at int64
	if _, err := unpack(r.Value, &at); err != nil {
		return err
	}
	if s.revoked[key] == nil {
		s.revoked[key] = make(map[string]time.Time)
	}
	s.revoked[key][id] = fromNanos(at)
	return nil
}

func (m *Store) Revocations(_ context.Context, tenant string) ([]registry.CredentialChange, error) {
	s := &m.changeLog
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
func (s *changeLog) append(tx *change, m *Store, c registry.CredentialChange) registry.CredentialChange {
	now := m.opts.Now()
	s.seq++
	c.Place = s.log.last.Next(now)
	c.Seq, c.At = s.seq, time.UnixMilli(c.Place.Milli).UTC()
	s.log.add(c.Place, c, 0)
	keepChange(tx, c)
	for s.log.isOver(registry.ChangeCap, 0) {
		tx.drop(kindChange, changeKey(s.log.dropFirst().id))
	}
	s.purgeLog(tx, m, now)
	return c
}

func changeKey(id registry.FeedID) string { return ordered(id.Milli, id.Seq) }

// keepChange records a change.
func keepChange(tx *change, c registry.CredentialChange) {
	if tx.kept() {
		value, _ := json.Marshal(c) // cannot fail
		tx.put(kindChange, changeKey(c.Place), value)
	}
}

// purgeLog drops changes that are too old.
func (s *changeLog) purgeLog(tx *change, m *Store, now time.Time) {
	for len(s.log.lines) > 0 && now.Sub(s.log.lines[0].entry.At) >= m.opts.ChangeTTL {
		tx.drop(kindChange, changeKey(s.log.dropFirst().id))
	}
}

// loadChange takes a change into memory, or out of it.
func (m *Store) loadChange(r Record) error {
	var id registry.FeedID
	if err := numbers(r.Key, &id.Milli, &id.Seq); err != nil {
		return err
	}
	s := &m.changeLog
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Value == nil {
		s.log.remove(id)
		return nil
	}
	var c registry.CredentialChange
	if err := json.Unmarshal(r.Value, &c); err != nil {
		return err
	}
	s.log.insert(id, c, 0)
	s.seq = max(s.seq, c.Seq)
	return nil
}

func (m *Store) Changes(_ context.Context, after registry.FeedID, limit int) (registry.ChangePage, error) {
	s := &m.changeLog
	s.mu.Lock()
	defer s.mu.Unlock()
	return registry.ChangePage{Changes: s.log.after(after, limit), Last: s.seq}, nil
}
