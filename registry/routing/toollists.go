package routing

import (
	"hash/maphash"

	"github.com/farhand/farhand/internal/cache"
	"github.com/farhand/farhand/registry"
)

const (
	// toolListBytes bounds the bytes of each generation of the lists that local sessions share.
	toolListBytes = 4 << 20

	// toolOverhead is about how many bytes a definition takes beside its texts.
	toolOverhead = 200
)

// toolLists gives sessions that offer the same tools one list in memory: a fleet of phones runs one app. It is safe
// for concurrent use.
type toolLists struct {
	seeds  [2]maphash.Seed
	hashed *cache.Cache[toolListKey, []registry.ToolSpec]
}

// toolListKey is a hash of 128 bits of a list, under secret seeds.
type toolListKey [2]uint64

// newToolLists returns lists of which each of two generations takes a number of bytes, with their definitions.
func newToolLists(bytes int) toolLists {
	return toolLists{
		seeds:  [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()},
		hashed: cache.New[toolListKey, []registry.ToolSpec](bytes, 0),
	}
}

// share returns a list equal to tools, which must be ordered by name: the same one for every caller, unless it is too
// large to be kept.
func (l toolLists) share(tools []registry.ToolSpec) []registry.ToolSpec {
	shared, _ := l.keep(tools)
	return shared
}

// keep is share, and returns the list's key, too.
func (l toolLists) keep(tools []registry.ToolSpec) ([]registry.ToolSpec, toolListKey) {
	var key toolListKey
	for i, seed := range l.seeds {
		var h maphash.Hash
		h.SetSeed(seed)
		for _, t := range tools {
			_, _ = h.WriteString(t.Hash()) // never fails
		}
		key[i] = h.Sum64()
	}
	size := toolOverhead
	for _, t := range tools {
		size += t.Size() + toolOverhead
	}
	shared, _ := l.hashed.GetOrPut(key, tools, size)
	return shared, key
}

// get returns the list of a key, if it is still kept.
func (l toolLists) get(key toolListKey) ([]registry.ToolSpec, bool) { return l.hashed.Get(key) }
