package redisstore

import (
	"context"
	"sync"

	"github.com/farhand/farhand/registry"
)

// specCacheBytes bounds the specifications kept in memory. They never change, so the only reason to drop one is room.
const specCacheBytes = 32 << 20

// specCache keeps specifications by their hash. When half of its room is used, what was not asked for since the last
// time that happened goes. It is safe for concurrent use.
type specCache struct {
	half int // bytes

	mu         sync.Mutex
	young, old map[string]registry.ToolSpec
	size       int // bytes in young
}

func newSpecCache(limit int) *specCache {
	return &specCache{half: limit / 2, young: make(map[string]registry.ToolSpec)}
}

func (c *specCache) get(hash string) (registry.ToolSpec, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t, ok := c.young[hash]
	if !ok {
		if t, ok = c.old[hash]; ok {
			c.putLocked(hash, t)
		}
	}
	return t, ok
}

func (c *specCache) put(hash string, t registry.ToolSpec) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.putLocked(hash, t)
}

func (c *specCache) putLocked(hash string, t registry.ToolSpec) {
	if _, ok := c.young[hash]; ok {
		return
	}
	const overhead = 300 // of the value and its place in a map, roughly
	size := overhead + len(hash) + len(t.Name) + len(t.Description) + len(t.Parameters)
	if c.size+size > c.half && len(c.young) > 0 {
		c.old, c.young, c.size = c.young, make(map[string]registry.ToolSpec), 0
	}
	c.young[hash] = t
	c.size += size
}

// putSpecs adds writes of the specifications to the batch, each distinct one once.
func (s *Store) putSpecs(b *batch, tenant string, tools []registry.ToolSpec) error {
	done := make(map[string]bool, len(tools))
	for _, t := range tools {
		hash := t.Hash()
		if done[hash] {
			continue
		}
		done[hash] = true
		text, err := encodeJSON(t)
		if err != nil {
			return registry.Errorf(registry.CodeInvalidRequest, "The parameters of %q are not valid JSON.", t.Name)
		}
		b.do("SET", specKey(tenant, hash), text, "PX", s.indexTTL)
	}
	return nil
}

// fetchSpecs returns the specifications of the hashes. One that cannot be found or read is left out: it can only
// belong to a session that is about to expire or to be restored.
func (s *Store) fetchSpecs(ctx context.Context, tenant string, hashes map[string]bool) (map[string]registry.ToolSpec, error) {
	found := make(map[string]registry.ToolSpec, len(hashes))
	missing := make(map[string]*call)
	b := s.conn.batch()
	for hash := range hashes {
		if t, ok := s.specs.get(hash); ok {
			found[hash] = t
			continue
		}
		missing[hash] = b.do("GET", specKey(tenant, hash))
	}
	if len(missing) == 0 {
		return found, nil
	}
	if err := b.run(ctx); err != nil {
		return nil, err
	}
	for hash, c := range missing {
		text, ok := c.text()
		if !ok {
			continue
		}
		t, err := decodeSpec(text)
		if err != nil {
			s.log.Warn("specification not readable; its tool is not listed", "tenant", tenant, "hash", hash, "error", err)
			continue
		}
		s.specs.put(hash, t)
		found[hash] = t
	}
	return found, nil
}
