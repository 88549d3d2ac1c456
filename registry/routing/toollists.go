package routing

import (
	"hash/maphash"

	"github.com/farhand/farhand/internal/cache"
	"github.com/farhand/farhand/registry"
)

// toolOverhead is about how many bytes a definition takes beside its texts.
const toolOverhead = 200

// toolListKey is a hash of 128 bits of a list, under secret seeds.
type toolListKey [2]uint64

type toolListSeeds [2]maphash.Seed

func newToolListSeeds() toolListSeeds { return toolListSeeds{maphash.MakeSeed(), maphash.MakeSeed()} }

// key returns the key of a list.
func (s toolListSeeds) key(tools []registry.ToolSpec) (key toolListKey) {
	for i, seed := range s {
		var h maphash.Hash
		h.SetSeed(seed)
		for _, t := range tools {
			_, _ = h.WriteString(t.Hash()) // never fails
		}
		key[i] = h.Sum64()
	}
	return key
}

// toolLists remembers the lists of sessions of other pods, each once. It is safe for concurrent use.
type toolLists struct {
	seeds  toolListSeeds
	hashed *cache.Cache[toolListKey, []registry.ToolSpec]
}

// newToolLists returns lists of which each of two generations takes a number of bytes, with their definitions.
func newToolLists(bytes int) toolLists {
	return toolLists{seeds: newToolListSeeds(), hashed: cache.New[toolListKey, []registry.ToolSpec](bytes, 0)}
}

// keep remembers a list, which must be ordered by name, unless it is too large, and returns its key.
func (l toolLists) keep(tools []registry.ToolSpec) toolListKey {
	key, size := l.seeds.key(tools), toolOverhead
	for _, t := range tools {
		size += t.Size() + toolOverhead
	}
	l.hashed.GetOrPut(key, tools, size)
	return key
}

// get returns the list of a key, if it is still kept.
func (l toolLists) get(key toolListKey) ([]registry.ToolSpec, bool) { return l.hashed.Get(key) }
