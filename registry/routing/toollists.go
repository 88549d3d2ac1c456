package routing

import (
	"strings"
	"sync"

	"github.com/farhand/farhand/registry"
)

const (
	// toolListBytes bounds what the shared lists take, per generation, with their keys and definitions.
	toolListBytes = 4 << 20

	// toolOverhead is about what a definition takes beside its texts.
	toolOverhead = 150
)

// toolLists gives sessions that offer the same tools one list in memory: a fleet of phones runs one app. It is safe
// for concurrent use.
type toolLists struct {
	mu       sync.Mutex
	current  map[string][]registry.ToolSpec // by the hashes of the tools
	previous map[string][]registry.ToolSpec
	size     int // bytes of current
}

func newToolLists() *toolLists { return &toolLists{current: make(map[string][]registry.ToolSpec)} }

// share returns a list equal to tools, which must be ordered by name: the same one for all that ask, unless it is too
// large to be kept.
func (l *toolLists) share(tools []registry.ToolSpec) []registry.ToolSpec {
	var b strings.Builder
	size := 0
	for _, t := range tools {
		b.WriteString(t.Hash())
		size += t.Size() + toolOverhead
	}
	key := b.String()
	if size += len(key); size > toolListBytes {
		return tools
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if known, ok := l.current[key]; ok {
		return known
	}
	if known, ok := l.previous[key]; ok {
		tools = known
	}
	if l.size+size > toolListBytes {
		l.previous, l.current, l.size = l.current, make(map[string][]registry.ToolSpec), 0
	}
	l.current[key] = tools
	l.size += size
	return tools
}
