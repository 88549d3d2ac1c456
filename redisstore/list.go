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
	entries, next, err := scan(q.After, pageSize(q.Limit),
		func(at registry.Cursor, limit int) ([]place, error) {
			return s.readPlaces(ctx, &from, at, limit, q.Newest)
		},
		func(places []place) ([]registry.Entry, error) { return s.resolve(ctx, places, q) })
	return entries, next, redisconn.Unavailable("list", err)
}

// scan returns up to limit of what is behind a cursor, and the cursor for the rest, nil if there is none. read returns
// places of an index, and resolve what is at those of them that match the query. What one call looks at is bounded, so
// it may return less than limit although there is more.
func scan[T any](
	at registry.Cursor, limit int,
	read func(at registry.Cursor, limit int) ([]place, error), resolve func([]place) ([]T, error),
) (all []T, next *registry.Cursor, err error) {
	for scanned := 0; ; {
		want := min(limit-len(all), listChunk)
		places, err := read(at, want+1)
		if err != nil {
			return nil, nil, err
		}
		more := len(places) > want
		places = places[:min(want, len(places))]
		matches, err := resolve(places)
		if err != nil {
			return nil, nil, err
		}
		all = append(all, matches...)
		if !more {
			return all, nil, nil
		}
		at = places[len(places)-1].Cursor
		scanned += len(places)
		if len(all) >= limit || scanned >= maxScan {
			return all, &at, nil
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
	list, err := s.read(ctx, sessionsAt(q.Tenant, places))
	if err != nil {
		return nil, err
	}
	stale := make(removals)
	matches := list[:0]
	for i, f := range list {
		switch {
		case !f.exists && f.gone, f.exists && f.session.Generation > places[i].Generation && f.set.hash == "":
			// It is being released, or has been claimed anew. Who does that removes the place, and Awaited needs it
			// until then.
		case !f.exists || f.session.Generation != places[i].Generation:
			// A newer claim of the session has, or gets, a place of its own. Only the place seen here is removed.
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
