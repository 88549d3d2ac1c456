package redisstore

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync/atomic"

	"github.com/farhand/farhand/internal/cache"
	"github.com/farhand/farhand/redisstore/internal/redisconn"
	"github.com/farhand/farhand/registry"
)

// behindSeparator sorts right after offerSeparator: a name with anything after the separator sorts before the name with
// behindSeparator.
const behindSeparator = "\x01"

// offer is an entry of the offers index: a tool in a set.
type offer struct{ name, hash, set string }

func (o offer) member() string { return offerMember(o.name, o.hash, o.set) }

// offersRange returns the bounds of a name's entries, restricted to one specification if hash is not empty. An empty
// name selects all entries.
func offersRange(name, hash string) (low, high string) {
	if name == "" {
		return "-", "+"
	}
	if hash != "" {
		name += offerSeparator + hash
	}
	return "[" + name + offerSeparator, "(" + name + behindSeparator
}

// readOffers returns up to limit entries within bounds, and the last of them if there may be more.
func (s *Store) readOffers(
	ctx context.Context, tenant, low, high string, limit int,
) (offers []offer, last string, err error) {
	c, err := s.conn.Do(ctx, "ZRANGEBYLEX", offersIndex(tenant), low, high, "LIMIT", 0, limit)
	if err != nil {
		return nil, "", err
	}
	members := c.Strings()
	if len(members) == limit {
		last = members[limit-1]
	}
	return parseOffers(members), last, nil
}

func parseOffers(members []string) []offer {
	offers := make([]offer, 0, len(members))
	for _, member := range members {
		if o, ok := parseOfferMember(member); ok {
			offers = append(offers, o)
		}
	}
	return offers
}

// removeOffers removes entries of sets that no session has or is expected to have. A session that gets such a set
// meanwhile enters the index of the set before the set enters the offers. So the index is checked again after the
// removal.
func (s *Store) removeOffers(ctx context.Context, tenant string, offers []offer) error {
	if len(offers) == 0 {
		return nil
	}
	offers = offers[:min(len(offers), redisconn.MaxPipeline/2)] // the next listing removes the rest
	mirrors := make([]string, len(offers))
	for i, o := range offers {
		mirrors[i] = membersMirror(tenant, o.set)
	}
	expected, err := s.sizes(ctx, mirrors)
	if err != nil {
		return err
	}
	remove, indexes := []any{"ZREM", offersIndex(tenant)}, []string(nil)
	for i, o := range offers {
		if expected[i] == 0 {
			remove, indexes = append(remove, o.member()), append(indexes, membersIndex(tenant, o.set))
		}
	}
	if len(indexes) == 0 {
		return nil
	}
	if _, err := s.conn.Do(ctx, remove...); err != nil {
		return err
	}
	sizes, err := s.sizes(ctx, indexes)
	pipe := s.conn.Pipeline()
	for i, member := range remove[2:] {
		if sizes[i] > 0 {
			s.enter(pipe, offersIndex(tenant), "0", member.(string))
		}
	}
	return errors.Join(err, pipe.Exec(ctx))
}

// Readers remove entries that they find without sessions, but a tenant's tools may never be listed. So a pod that has
// written collectEvery entries checks twice as many, and the entries that are in use are at least about half of all.
const (
	collectEvery    = redisconn.MaxPipeline / 4
	maxOfferTenants = 1 << 13 // whose written entries a pod counts
)

// noteOffers counts entries that are written.
func (s *Store) noteOffers(tenant string, n int) {
	written, _ := s.offers.GetOrPut(tenant, new(atomic.Int64), 1)
	written.Add(int64(n))
}

// collectOffers checks random entries of the offers index, twice as many as were written, and removes those of sets
// that no session has.
func (s *Store) collectOffers(ctx context.Context, tenant string) {
	written, ok := s.offers.Get(tenant)
	if !ok {
		return
	}
	for n := written.Load(); n >= collectEvery; n = written.Load() {
		if !written.CompareAndSwap(n, n-collectEvery) {
			continue
		}
		if err := s.checkOffers(ctx, tenant, 2*collectEvery); err != nil {
			s.log.Debug("unused tool sets not removed", "tenant", tenant, "error", err)
			return
		}
	}
}

func (s *Store) checkOffers(ctx context.Context, tenant string, n int) error {
	c, err := s.conn.Do(ctx, "ZRANDMEMBER", offersIndex(tenant), n)
	if err != nil {
		return err
	}
	offers := parseOffers(c.Strings())
	indexes := setIndexes(tenant, offers)
	slices.Sort(indexes)
	indexes = slices.Compact(indexes) // many entries are of one set
	sizes, err := s.sizes(ctx, indexes)
	if err != nil {
		return err
	}
	unused := slices.DeleteFunc(offers, func(o offer) bool {
		i, _ := slices.BinarySearch(indexes, membersIndex(tenant, o.set))
		return sizes[i] > 0
	})
	return s.removeOffers(ctx, tenant, unused)
}

// maxMerge is the maximum number of sets whose indexes are merged to find the sessions of a tool.
const maxMerge = 64

// toolSource returns where to find the sessions that offer a tool, and how many there are. ok is false if too many
// different sets have the tool.
func (s *Store) toolSource(ctx context.Context, q registry.Query) (from source, sessions int64, ok bool, err error) {
	low, high := offersRange(q.Tool, q.Spec)
	offers, _, err := s.readOffers(ctx, q.Tenant, low, high, maxMerge+1)
	if err != nil || len(offers) > maxMerge {
		return source{}, math.MaxInt64, false, err
	}
	from = source{tenant: q.Tenant, tool: q.Tool, spec: q.Spec, indexes: setIndexes(q.Tenant, offers)}
	sizes, err := s.sizes(ctx, from.indexes)
	if err != nil {
		return source{}, 0, false, err
	}
	for _, n := range sizes {
		sessions += n
	}
	return from, sessions, true, nil
}

func setIndexes(tenant string, offers []offer) []string {
	indexes := make([]string, len(offers))
	for i, o := range offers {
		indexes[i] = membersIndex(tenant, o.set)
	}
	return indexes
}

const (
	// cacheBytes bounds the memory of each cache of contents. A value under the hash of its content never changes, so
	// it is dropped only to bound memory.
	cacheBytes = 32 << 20

	// cacheOverhead is about how many bytes a value takes besides its content, with its hash and its place in a map.
	cacheOverhead = 364
)

// fetch returns values that are stored under the hash of their content, by hash. It reads values that are not in the
// cache from Redis. keyOf returns the key of a hash. parse reads a text, and returns about how many bytes the value
// takes. Missing and unreadable values are left out.
func fetch[V any](
	ctx context.Context, s *Store, known *cache.Cache[string, V], hashes map[string]bool,
	form redisconn.Form, keyOf func(hash string) string, parse func(hash, text string) (v V, size int, err error),
) (map[string]V, error) {
	found := make(map[string]V, len(hashes))
	missing := make(map[string]*redisconn.Command)
	pipe := s.conn.Pipeline()
	for hash := range hashes {
		if v, ok := known.Get(hash); ok {
			found[hash] = v
			continue
		}
		missing[hash] = pipe.Do("GET", keyOf(hash))
	}
	if len(missing) == 0 {
		return found, nil
	}
	if err := pipe.Exec(ctx); err != nil {
		return nil, err
	}
	for hash, c := range missing {
		text, ok := c.Text()
		if !ok {
			continue
		}
		if s.conn.Forms().CheckText(form, text) != nil {
			continue
		}
		v, size, err := parse(hash, text)
		if err != nil {
			s.log.Warn("content not readable; sessions that need it are not listed", "key", keyOf(hash), "error", err)
			continue
		}
		known.Put(hash, v, size+cacheOverhead)
		found[hash] = v
	}
	return found, nil
}
