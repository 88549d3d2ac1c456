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
	candidates := attributeIndexes(registry.Session{
		Key: registry.Key{Tenant: q.Tenant}, DeviceID: q.DeviceID, UserID: q.UserID, Labels: q.Labels,
	})[1:] // the one of all sessions is never smaller than another
	if len(candidates) == 1 && q.Tool == "" {
		return source{indexes: candidates}, nil
	}
	pipe := s.conn.Pipeline()
	sizes := make([]*redisconn.Command, len(candidates))
	for i, index := range candidates {
		sizes[i] = pipe.Do("ZCARD", index)
	}
	if err := pipe.Exec(ctx); err != nil {
		return source{}, err
	}
	for i, c := range sizes {
		if c.Int() < size {
			best, size = source{indexes: candidates[i : i+1]}, c.Int()
		}
	}
	return best, nil
}

// maxRereads bounds how often a page is read again because a tool got into another set meanwhile.
const maxRereads = 3

// readPlaces returns up to limit places behind the cursor, in order. A session that changes its set while this looks
// is in the index of the new one, and the new set among the offers, before it leaves the old one's: so when the offers
// name another set after the indexes were read, they are read again with that one.
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
