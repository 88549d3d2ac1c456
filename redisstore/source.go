package redisstore

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strings"

	"github.com/farhand/farhand/redisstore/internal/redisconn"
	"github.com/farhand/farhand/registry"
)

// source is where a query finds its sessions: one index, or those of the sets that offer a tool, read as if they were
// one.
type source struct {
	indexes []string

	tenant, tool string // not empty when the indexes are those of sets
	spec         string // the specification that is asked for, empty: any
}

// place is an entry of an index.
type place struct {
	registry.Cursor
	index string
}

// sessionsAt returns the sessions that places of a tenant name.
func sessionsAt(tenant string, places []place) []registry.Key {
	keys := make([]registry.Key, len(places))
	for i, p := range places {
		keys[i] = registry.Key{Tenant: tenant, Session: p.Session}
	}
	return keys
}

// sizes returns how many entries each index has.
func (s *Store) sizes(ctx context.Context, indexes []string) ([]int64, error) {
	pipe := s.conn.Pipeline()
	counts := make([]*redisconn.Command, len(indexes))
	for i, index := range indexes {
		counts[i] = pipe.Do("ZCARD", index)
	}
	err := pipe.Exec(ctx)
	sizes := make([]int64, len(indexes))
	for i, c := range counts {
		sizes[i] = c.Int()
	}
	return sizes, err
}

// smallestSource returns the source with the fewest entries among those that hold every match.
func (s *Store) smallestSource(ctx context.Context, q registry.Query) (source, error) {
	best, size := source{indexes: []string{sessionsIndex(q.Tenant)}}, int64(math.MaxInt64)
	if q.Tool != "" {
		from, sessions, ok, err := s.toolSource(ctx, q)
		if err != nil {
			return source{}, err
		}
		if ok {
			best, size = from, sessions
		}
	}
	candidates := candidateIndexes(q)
	if len(candidates) == 1 && q.Tool == "" {
		return source{indexes: candidates[0]}, nil
	}
	sizes, err := s.sizes(ctx, slices.Concat(candidates...))
	if err != nil {
		return source{}, err
	}
	for _, indexes := range candidates {
		n := int64(0)
		for range indexes {
			n, sizes = n+sizes[0], sizes[1:]
		}
		if n < size {
			best, size = source{indexes: indexes}, n
		}
	}
	return best, nil
}

// candidateIndexes returns the groups of indexes that hold every match, each by itself. The index of all sessions is
// not among them: it is never smaller than another.
func candidateIndexes(q registry.Query) (candidates [][]string) {
	if q.DeviceID != "" {
		candidates = append(candidates, []string{deviceIndex(q.Tenant, q.DeviceID)})
	}
	switch {
	case q.UserID != "":
		candidates = append(candidates, []string{userIndex(q.Tenant, q.UserID)})
	case q.Viewer != "":
		candidates = append(candidates, []string{userIndex(q.Tenant, q.Viewer), userIndex(q.Tenant, "")})
	}
	for k, v := range q.Labels {
		candidates = append(candidates, []string{labelIndex(q.Tenant, k, v)})
	}
	return candidates
}

// maxRereads bounds how often a page is read again because a tool got into another set meanwhile.
const maxRereads = 3

// readPlaces returns up to limit places after the cursor, in order. A session that changes its set meanwhile enters the
// index of the new set, and the new set the offers, before it leaves the index of the old one. So if the offers name a
// further set after the indexes were read, the indexes are read again with that one.
func (s *Store) readPlaces(
	ctx context.Context, from *source, after registry.Cursor, limit int, newest bool,
) ([]place, error) {
	direction := "up"
	if newest {
		direction = "down"
	}
	low, high := offersRange(from.tool, from.spec)
	for try := 0; ; try++ {
		pipe := s.conn.Pipeline()
		pages := make([]*redisconn.Command, len(from.indexes))
		for i, index := range from.indexes {
			pages[i] = pipe.Eval(scriptPage, []string{index},
				direction, decimal(after.Generation), after.Session, limit)
		}
		var again *redisconn.Command
		if from.tool != "" {
			pipe.Then()
			again = pipe.Do("ZRANGEBYLEX", offersIndex(from.tenant), low, high, "LIMIT", 0, maxMerge)
		}
		if err := pipe.Exec(ctx); err != nil {
			return nil, err
		}
		if again != nil && try < maxRereads && from.widen(parseOffers(again.Strings())) {
			continue
		}
		return merge(from.indexes, pages, limit, newest), nil
	}
}

// widen adds the indexes of sets the source does not have yet, and reports whether there were any.
func (f *source) widen(offers []offer) bool {
	before := len(f.indexes)
	for _, index := range setIndexes(f.tenant, offers) {
		if !slices.Contains(f.indexes[:before], index) {
			f.indexes = append(f.indexes, index)
		}
	}
	return len(f.indexes) > before
}

// merge makes one page of the pages of several indexes.
func merge(indexes []string, pages []*redisconn.Command, limit int, newest bool) []place {
	var places []place
	for n, page := range pages {
		flat := page.Strings()
		for i := 0; i+1 < len(flat); i += 2 {
			at := registry.Cursor{Generation: redisconn.Int(flat[i+1]), Session: flat[i]}
			places = append(places, place{at, indexes[n]})
		}
	}
	if len(indexes) == 1 {
		return places
	}
	slices.SortFunc(places, func(a, b place) int {
		order := cmp.Or(cmp.Compare(a.Generation, b.Generation), strings.Compare(a.Session, b.Session))
		if newest {
			return -order
		}
		return order
	})
	places = slices.CompactFunc(places, func(a, b place) bool { return a.Cursor == b.Cursor })
	return places[:min(limit, len(places))]
}
