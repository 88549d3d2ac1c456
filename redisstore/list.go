package redisstore

import (
	"context"

	"github.com/farhand/farhand/redisstore/internal/redisconn"
	"github.com/farhand/farhand/registry"
)

const (
	defaultPage = 100
	maxPage     = 1000
	listChunk   = 200  // index entries looked at with one pipeline
	maxScan     = 2000 // index entries looked at by one call
)

func pageSize(limit int) int {
	if limit <= 0 {
		return defaultPage
	}
	return min(limit, maxPage)
}

// List implements registry.Directory. One call looks at a bounded part of an index, so a query that few sessions
// match may give short pages.
func (s *Store) List(ctx context.Context, q registry.Query) ([]registry.Entry, *registry.Cursor, error) {
	if q.SessionID != "" {
		entries, err := s.listOne(ctx, q)
		return entries, nil, redisconn.Unavailable("list", err)
	}
	from, err := s.smallestSource(ctx, q)
	if err != nil {
		return nil, nil, redisconn.Unavailable("list", err)
	}
	limit := pageSize(q.Limit)
	var entries []registry.Entry
	for scanned, at := 0, q.After; ; {
		want := min(limit-len(entries), listChunk)
		page, err := s.readPlaces(ctx, &from, at, want+1, q.Newest)
		if err != nil {
			return nil, nil, redisconn.Unavailable("list", err)
		}
		more := len(page) > want
		page = page[:min(want, len(page))]
		matches, err := s.resolve(ctx, page, q)
		if err != nil {
			return nil, nil, redisconn.Unavailable("list", err)
		}
		entries = append(entries, matches...)
		if !more {
			return entries, nil, nil
		}
		at = page[len(page)-1].Cursor
		scanned += len(page)
		if len(entries) >= limit || scanned >= maxScan {
			return entries, &at, nil
		}
	}
}

// listOne answers a query that names its session.
func (s *Store) listOne(ctx context.Context, q registry.Query) ([]registry.Entry, error) {
	list, err := s.read(ctx, []registry.Key{{Tenant: q.Tenant, Session: q.SessionID}})
	if err != nil || !list[0].matches(q) || !behind(q, list[0].session) {
		return nil, err
	}
	return s.entries(ctx, q.Tenant, list)
}

// behind reports whether a session comes after the query's cursor.
func behind(q registry.Query, s registry.Session) bool {
	if q.After == (registry.Cursor{}) {
		return true
	}
	if s.Generation == q.After.Generation {
		return s.Key.Session != q.After.Session && (s.Key.Session > q.After.Session) != q.Newest
	}
	return (s.Generation > q.After.Generation) != q.Newest
}

func (f found) matches(q registry.Query) bool {
	if !f.exists || !q.Matches(f.session) {
		return false
	}
	return q.Tool == "" || f.set.offers(q.Tool, q.Spec)
}

// resolve returns the entries at the given places that match the query, and removes places that lead nowhere.
func (s *Store) resolve(ctx context.Context, places []place, q registry.Query) ([]registry.Entry, error) {
	if len(places) == 0 {
		return nil, nil
	}
	keys := make([]registry.Key, len(places))
	for i, p := range places {
		keys[i] = registry.Key{Tenant: q.Tenant, Session: p.Session}
	}
	list, err := s.read(ctx, keys)
	if err != nil {
		return nil, err
	}
	stale := make(removals)
	matches := list[:0]
	for i, f := range list {
		switch {
		case !f.exists || f.session.Generation != places[i].Generation:
			// A session of a newer claim has, or gets, a place of its own. Only the one seen here is removed.
			stale.add(places[i].index, places[i].Session, places[i].Generation)
		case f.matches(q):
			matches = append(matches, f)
		}
	}
	if len(stale) == 0 {
		return s.entries(ctx, q.Tenant, matches)
	}
	pipe := s.conn.Pipeline()
	stale.into(pipe)
	s.changed(pipe, q.Tenant) // an expired session changed no version by itself
	if err := pipe.Exec(ctx); err != nil {
		s.log.Debug("stale index entries not removed", "tenant", q.Tenant, "error", err)
	}
	return s.entries(ctx, q.Tenant, matches)
}
