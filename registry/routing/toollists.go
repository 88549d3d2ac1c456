package routing

import (
	"strings"

	"github.com/farhand/farhand/internal/cache"
	"github.com/farhand/farhand/registry"
)

const (
	// toolListBytes bounds the bytes of each generation of the shared lists, with their keys and definitions.
	toolListBytes = 4 << 20

	// toolOverhead is about how many bytes a definition takes beside its texts.
	toolOverhead = 150
)

// toolLists gives sessions that offer the same tools one list in memory: a fleet of phones runs one app. It is safe
// for concurrent use.
type toolLists struct {
	byHashes *cache.Cache[string, []registry.ToolSpec]
}

func newToolLists() toolLists {
	return toolLists{cache.New[string, []registry.ToolSpec](toolListBytes, 0)}
}

// share returns a list equal to tools, which must be ordered by name: the same one for every caller, unless it is too
// large to be kept.
func (l toolLists) share(tools []registry.ToolSpec) []registry.ToolSpec {
	var key strings.Builder
	size := 0
	for _, t := range tools {
		key.WriteString(t.Hash())
		size += t.Size() + toolOverhead
	}
	shared, _ := l.byHashes.GetOrPut(key.String(), tools, size+key.Len())
	return shared
}
