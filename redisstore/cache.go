package redisstore

import (
	"context"

	"github.com/farhand/farhand/internal/cache"
	"github.com/farhand/farhand/redisstore/internal/redisconn"
)

const (
	// cacheBytes bounds the memory of each cache of contents. What is stored under the hash of its content never
	// changes, so it is dropped for lack of memory only.
	cacheBytes = 32 << 20

	// cacheOverhead is about what a value takes beside its bytes, with its hash and its place in a map.
	cacheOverhead = 364
)

// fetch returns, by the hash of their content, values that are stored under it: those the cache has, and the others as
// Redis has them. keyOf names the key of a hash. parse reads a text, and says about how many bytes the value takes. A
// value that Redis does not have, or that cannot be read, is left out.
func fetch[V any](
	ctx context.Context, s *Store, known *cache.Cache[string, V], hashes map[string]bool,
	keyOf func(hash string) string, parse func(hash, text string) (v V, size int, err error),
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
		v, size, err := parse(hash, text)
		if err != nil {
			s.log.Warn("content not readable; what needs it is not listed", "key", keyOf(hash), "error", err)
			continue
		}
		known.Put(hash, v, size+cacheOverhead)
		found[hash] = v
	}
	return found, nil
}
