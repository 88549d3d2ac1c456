package agent

import (
	"github.com/farhand/farhand/internal/cache"
	"github.com/farhand/farhand/registry"
)

// sharedSpecBytes bounds the definitions that are shared, per generation.
const sharedSpecBytes = 8 << 20

// sharedSpecs gives equal definitions of many devices one copy in memory: a fleet of phones runs one app. It is safe
// for concurrent use.
type sharedSpecs struct {
	byHash *cache.Cache[string, registry.ToolSpec]
}

func newSharedSpecs() sharedSpecs {
	return sharedSpecs{cache.New[string, registry.ToolSpec](sharedSpecBytes, 0)}
}

// get returns a definition equal to spec, the same one for every caller.
func (s sharedSpecs) get(spec registry.ToolSpec) registry.ToolSpec {
	shared, _ := s.byHash.GetOrPut(spec.Hash(), spec, spec.Size())
	return shared
}
