package agent

import (
	"sync"

	"github.com/farhand/farhand/registry"
)

// sharedSpecBytes bounds the definitions that are shared, per generation.
const sharedSpecBytes = 8 << 20

// sharedSpecs gives equal definitions of many devices one copy in memory: a fleet of phones runs one app.
type sharedSpecs struct {
	mu       sync.Mutex
	current  map[string]registry.ToolSpec // by hash
	previous map[string]registry.ToolSpec
	size     int // bytes in current
}

func newSharedSpecs() *sharedSpecs { return &sharedSpecs{current: make(map[string]registry.ToolSpec)} }

// get returns a definition equal to spec, the same one for all that ask.
func (s *sharedSpecs) get(spec registry.ToolSpec) registry.ToolSpec {
	hash := spec.Hash()
	s.mu.Lock()
	defer s.mu.Unlock()
	if known, ok := s.current[hash]; ok {
		return known
	}
	if known, ok := s.previous[hash]; ok {
		spec = known
	}
	if s.size+spec.Size() > sharedSpecBytes {
		s.previous, s.current, s.size = s.current, make(map[string]registry.ToolSpec), 0
	}
	s.current[hash] = spec
	s.size += spec.Size()
	return spec
}
