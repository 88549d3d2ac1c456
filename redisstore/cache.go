package redisstore

import "sync"

// cacheBytes bounds what each cache of contents keeps in memory. What is stored under the hash of its content never
// changes, so the only reason to drop it is room.
const cacheBytes = 32 << 20

// cache keeps contents by their hash. When half of its room is used, what was not asked for since the last time that
// happened goes. It is safe for concurrent use.
type cache[V any] struct {
	half int // bytes

	mu         sync.Mutex
	young, old map[string]cached[V]
	size       int // bytes in young
}

type cached[V any] struct {
	value V
	size  int
}

func newCache[V any](limit int) *cache[V] {
	return &cache[V]{half: limit / 2, young: make(map[string]cached[V])}
}

func (c *cache[V]) get(hash string) (V, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	x, ok := c.young[hash]
	if !ok {
		if x, ok = c.old[hash]; ok {
			c.putLocked(hash, x)
		}
	}
	return x.value, ok
}

// put keeps a value of about size bytes.
func (c *cache[V]) put(hash string, value V, size int) {
	const overhead = 300 // of the value and its place in a map, roughly
	c.mu.Lock()
	defer c.mu.Unlock()
	c.putLocked(hash, cached[V]{value, size + overhead + len(hash)})
}

func (c *cache[V]) putLocked(hash string, x cached[V]) {
	if _, ok := c.young[hash]; ok {
		return
	}
	if c.size+x.size > c.half && len(c.young) > 0 {
		c.old, c.young, c.size = c.young, make(map[string]cached[V]), 0
	}
	c.young[hash] = x
	c.size += x.size
}
