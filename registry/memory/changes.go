package memory

import (
	"context"
	"slices"
	"time"

	"github.com/farhand/farhand/registry"
)

// AppendChange implements registry.CredentialStore.
func (m *Store) AppendChange(
	_ context.Context, c registry.CredentialChange,
) (registry.CredentialChange, error) {
	if err := c.Validate(); err != nil {
		return registry.CredentialChange{}, err
	}
	m.credentials.mu.Lock()
	defer m.credentials.mu.Unlock()
	return m.credentials.append(m, c), nil
}

// append appends to the log. What is too old leaves it, and the oldest while it is too long.
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
