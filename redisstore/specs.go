package redisstore

import (
	"context"

	"github.com/farhand/farhand/redisstore/internal/redisconn"
	"github.com/farhand/farhand/registry"
)

// putSpecs adds writes of the specifications to the batch, each distinct one once.
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
	found := make(map[string]registry.ToolSpec, len(hashes))
	missing := make(map[string]*redisconn.Command)
	pipe := s.conn.Pipeline()
	for hash := range hashes {
		if t, ok := s.specs.Get(hash); ok {
			found[hash] = t
			continue
		}
		missing[hash] = pipe.Do("GET", specKey(tenant, hash))
	}
	if len(missing) == 0 {
		return found, nil
	}
	if err := pipe.Exec(ctx); err != nil {
		return nil, err
	}
	for hash, c := range missing {
		text, ok := c.Text()
		if !ok {
			continue
		}
		t, err := decodeSpec(text)
		if err != nil {
			s.log.Warn("specification not readable; its tool is not listed",
				"tenant", tenant, "hash", hash, "error", err)
			continue
		}
		s.specs.Put(hash, t, t.Size()+cacheOverhead)
		found[hash] = t
	}
	return found, nil
}
