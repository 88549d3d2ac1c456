package routing

import (
	"hash/maphash"
	"maps"
	"slices"
	"sync"
	"weak"

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

// toolList is what a local session offers, ordered by name. It never changes. Nil is the empty list.
type toolList struct{ tools []registry.ToolSpec }

func (l *toolList) all() []registry.ToolSpec {
	if l == nil {
		return nil
	}
	return l.tools
}

// sharedLists gives local sessions that offer the same tools one list in memory: a fleet of phones runs one app. It
// keeps no list alive, so that a list goes with the last session that has it, and all that are in use are shared. It is
// safe for concurrent use.
type sharedLists struct {
	seeds toolListSeeds

	mu      sync.Mutex
	lists   map[toolListKey]weak.Pointer[toolList]
	sweepAt int // at so many lists those that are gone are removed
}

// minSweep is how many lists there are at least when those that are gone are removed.
const minSweep = 64

func newSharedLists() *sharedLists {
	return &sharedLists{
		seeds: newToolListSeeds(), lists: make(map[toolListKey]weak.Pointer[toolList]), sweepAt: minSweep,
	}
}

// share returns a list equal to tools, which must be ordered by name: the same one for all who have it now.
func (s *sharedLists) share(tools []registry.ToolSpec) *toolList {
	key := s.seeds.key(tools)
	s.mu.Lock()
	defer s.mu.Unlock()
	if list := s.lists[key].Value(); list != nil {
		return list
	}
	if len(s.lists) >= s.sweepAt {
		maps.DeleteFunc(s.lists, func(_ toolListKey, p weak.Pointer[toolList]) bool { return p.Value() == nil })
		s.sweepAt = max(minSweep, 2*len(s.lists))
	}
	if cap(tools) > len(tools) { // the rest would stay as long as the list
		tools = slices.Clone(tools)
	}
	list := &toolList{tools}
	s.lists[key] = weak.Make(list)
	return list
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
