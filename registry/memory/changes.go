package memory

import (
	"context"
	"maps"
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

func (m *Store) AppendChange(_ context.Context, c registry.CredentialChange) (registry.CredentialChange, error) {
	if err := c.Validate(); err != nil {
		return registry.CredentialChange{}, err
	}
	m.changeLog.mu.Lock()
	defer m.changeLog.mu.Unlock()
	if c.Remembered() {
		if err := m.changeLog.remember(m, c); err != nil {
			return registry.CredentialChange{}, err
		}
	}
	return m.changeLog.append(m, c), nil
}

// revokedKey identifies a tenant's revocations of one kind.
type revokedKey struct {
	tenant string
	kind   registry.ChangeKind
}

// remember stores a revocation for its tenant. It drops those that are too old.
func (s *changeLog) remember(m *Store, c registry.CredentialChange) error {
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
func (s *changeLog) append(m *Store, c registry.CredentialChange) registry.CredentialChange {
	now := m.opts.Now()
	s.seq++
	c.Place = s.log.last.Next(now)
	c.Seq, c.At = s.seq, time.UnixMilli(c.Place.Milli).UTC()
	s.log.add(c.Place, c, 0)
	for s.log.isOver(registry.ChangeCap, 0) || now.Sub(s.log.lines[0].entry.At) >= m.opts.ChangeTTL {
		s.log.dropFirst()
	}
	return c
}

func (m *Store) Changes(_ context.Context, after registry.FeedID, limit int) (registry.ChangePage, error) {
	s := &m.changeLog
	s.mu.Lock()
	defer s.mu.Unlock()
	return registry.ChangePage{Changes: s.log.after(after, limit), Last: s.seq}, nil
}
