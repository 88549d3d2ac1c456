// Package cache has one bounded cache for everything that Farhand remembers because it is read again and again: routes,
// schemas, tool lists and the like. It is bounded by the sizes of the values, which may be bytes or a count.
//
// Start with Cache in cache.go; it is all there is. It imports nothing of ours.
package cache
