package redisstore

import (
	"context"

	"github.com/farhand/farhand/redisstore/internal/redisconn"
	"github.com/farhand/farhand/registry"
)

// putSpecs adds writes of the specifications to the pipeline, each distinct one once.
func (s *Store) putSpecs(pipe *redisconn.Pipeline, tenant string, tools []registry.ToolSpec) error {
	done := make(map[string]bool, len(tools))
	for _, t := range tools {
		hash := t.Hash()
		if done[hash] {
			continue
		}
		done[hash] = true
		text, err := encodeJSON(t)
		if err != nil {
			return registry.Errorf(registry.CodeInvalidRequest, "The parameters of %q are not valid JSON.", t.Name)
		}
		pipe.Do("SET", specKey(tenant, hash), text, "PX", s.indexTTL)
	}
	return nil
}

// fetchSpecs returns the specifications of the hashes. One that cannot be found or read is left out: it can only
// belong to a session that is about to expire or to be restored.
func (s *Store) fetchSpecs(
	ctx context.Context, tenant string, hashes map[string]bool,
) (map[string]registry.ToolSpec, error) {
	keyOf := func(hash string) string { return specKey(tenant, hash) }
	return fetch(ctx, s, s.specs, hashes, keyOf, func(_, text string) (t registry.ToolSpec, size int, err error) {
		t, err = decodeSpec(text)
		return t, t.Size(), err
	})
}
