package registry

import (
	"strings"
	"sync"
)

// toolListBytes bounds what the keys of the shared lists take, per generation.
const toolListBytes = 4 << 20

// toolLists gives sessions that offer the same tools one list in memory: a fleet of phones runs one app. It is safe
// for concurrent use.
type toolLists struct {
	mu       sync.Mutex
	current  map[string][]ToolSpec // by the hashes of the tools
	previous map[string][]ToolSpec
	size     int // bytes of the keys of current
}

func newToolLists() *toolLists { return &toolLists{current: make(map[string][]ToolSpec)} }

// share returns a list equal to tools, which must be ordered by name: the same one for all that ask.
func (l *toolLists) share(tools []ToolSpec) []ToolSpec {
	var b strings.Builder
	for _, t := range tools {
		b.WriteString(t.Hash())
	}
	key := b.String()
	l.mu.Lock()
	defer l.mu.Unlock()
	if known, ok := l.current[key]; ok {
		return known
	}
	if known, ok := l.previous[key]; ok {
		tools = known
	}
	if l.size+len(key) > toolListBytes {
		l.previous, l.current, l.size = l.current, make(map[string][]ToolSpec), 0
	}
	l.current[key] = tools
	l.size += len(key)
	return tools
}
