package redisstore

const (
	// cacheBytes bounds what each cache of contents keeps in memory. What is stored under the hash of its content never
	// changes, so the only reason to drop it is room.
	cacheBytes = 32 << 20

	// cacheOverhead is about what a value takes beside its bytes, with its hash and its place in a map.
	cacheOverhead = 364
)
