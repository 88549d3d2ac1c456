// Package cache has the cache for what Farhand reads again and again: routes, schemas, tool lists and the like. Its
// bound is the total size of the values, in bytes or as a count.
package cache

import (
	"sync"
	"time"
)

// Cache keeps values in two generations. When the newer generation is full, it becomes the older one. Values of the
// previous older generation that were not read since are dropped. So a value in use stays, an unused value is dropped,
// and the cost of adding does not depend on the number of values. It is safe for concurrent use.
type Cache[K comparable, V any] struct {
	limit  int
	maxAge time.Duration

	mu    sync.Mutex
	newer map[K]entry[V]
	older map[K]entry[V]
	size  int       // total size of the values in newer
	began time.Time // when newer was made
}

type entry[V any] struct {
	value V
	size  int
}

// New returns a cache with generations of a total size up to limit each, in the unit of Put's sizes. A generation that
// has been the newer one for longer than maxAge also counts as full. A maxAge of zero means no age limit.
func New[K comparable, V any](limit int, maxAge time.Duration) *Cache[K, V] {
	return &Cache[K, V]{limit: limit, maxAge: maxAge, newer: make(map[K]entry[V]), began: time.Now()}
}

// Get returns the value of a key, and counts as a use of it.
func (c *Cache[K, V]) Get(key K) (V, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.getLocked(key)
}

// Has reports whether the cache has a value for a key. It does not count as a use.
func (c *Cache[K, V]) Has(key K) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ageLocked()
	_, newer := c.newer[key]
	_, older := c.older[key]
	return newer || older
}

// Put stores a value, and replaces the previous one. A value that is larger than a generation is not stored.
func (c *Cache[K, V]) Put(key K, value V, size int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.putLocked(key, entry[V]{value, size})
}

// GetOrPut returns the value of a key, and stores value if there is none. known reports whether there was one.
func (c *Cache[K, V]) GetOrPut(key K, value V, size int) (kept V, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if kept, known = c.getLocked(key); known {
		return kept, true
	}
	c.putLocked(key, entry[V]{value, size})
	return value, false
}

// Delete removes the value of a key.
func (c *Cache[K, V]) Delete(key K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deleteLocked(key)
}

func (c *Cache[K, V]) getLocked(key K) (V, bool) {
	c.ageLocked()
	e, ok := c.newer[key]
	if !ok {
		if e, ok = c.older[key]; ok {
			c.putLocked(key, e)
		}
	}
	return e.value, ok
}

func (c *Cache[K, V]) putLocked(key K, e entry[V]) {
	c.ageLocked()
	c.deleteLocked(key)
	if e.size > c.limit {
		return
	}
	if c.size+e.size > c.limit {
		c.turnLocked()
	}
	c.newer[key] = e
	c.size += e.size
}

func (c *Cache[K, V]) deleteLocked(key K) {
	c.size -= c.newer[key].size
	delete(c.newer, key)
	delete(c.older, key)
}

// ageLocked turns the generations if the newer one has reached maxAge.
func (c *Cache[K, V]) ageLocked() {
	if c.maxAge > 0 && time.Since(c.began) > c.maxAge {
		c.turnLocked()
	}
}

// turnLocked makes the newer generation the older one, and begins a new one.
func (c *Cache[K, V]) turnLocked() {
	c.older, c.newer, c.size = c.newer, make(map[K]entry[V]), 0
	if c.maxAge > 0 {
		c.began = time.Now()
	}
}
