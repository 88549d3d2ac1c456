package redisstore

import (
	"context"
	"time"

	"github.com/farhand/farhand/redisstore/internal/redisconn"
	"github.com/farhand/farhand/registry"
)

// AppendChange implements registry.CredentialStore.
func (s *Store) AppendChange(
	ctx context.Context, c registry.CredentialChange,
) (registry.CredentialChange, error) {
	if err := c.Validate(); err != nil {
		return registry.CredentialChange{}, err
	}
	answer, err := s.conn.Eval(ctx, scriptChangeAppend, []string{changesKey, lastChangeKey},
		s.changeTTL, registry.ChangeCap, c.Tenant, string(c.Kind), c.ID, flag(c.Revoked))
	if err != nil {
		return registry.CredentialChange{}, redisconn.Unavailable("append change", err)
	}
	place := answer.List()
	if len(place) != 2 {
		return registry.CredentialChange{}, redisconn.Unavailable("append change", answer.ErrShape())
	}
	id, _ := place[0].(string)
	if c.Place, err = registry.ParseFeedID(id); err != nil {
		return registry.CredentialChange{}, err
	}
	c.Seq, c.At = redisconn.Int(place[1]), time.UnixMilli(c.Place.Milli).UTC()
	return c, nil
}

// Changes implements registry.CredentialStore. It is one round trip.
func (s *Store) Changes(ctx context.Context, after registry.FeedID, limit int) (registry.ChangePage, error) {
	pipe := s.conn.Pipeline()
	last := pipe.Do("GET", lastChangeKey) // first, so that what is appended meanwhile is not taken to be in the page
	entries := pipe.Do("XRANGE", changesKey, "("+after.String(), "+", "COUNT", pageSize(limit))
	if err := pipe.Exec(ctx); err != nil {
		return registry.ChangePage{}, redisconn.Unavailable("read changes", err)
	}
	page := registry.ChangePage{Last: last.Int()}
	for _, raw := range entries.List() {
		entry, _ := raw.([]any)
		if len(entry) != 2 {
			return registry.ChangePage{}, redisconn.Unavailable("read changes", entries.ErrShape())
		}
		place, _ := entry[0].(string)
		c, err := parseChange(place, redisconn.Map(entry[1]))
		if err != nil {
			return registry.ChangePage{}, redisconn.Unavailable("read changes", err)
		}
		page.Changes = append(page.Changes, c)
	}
	return page, nil
}
