package redisstore

import (
	"context"
	"time"

	"github.com/farhand/farhand/registry"
)

// KeepContinuation implements registry.ContinuationStore.
func (s *Store) KeepContinuation(ctx context.Context, o registry.Holder, id string, data []byte, ttl time.Duration) error {
	if len(data) > registry.MaxContinuation {
		return registry.ErrContinuationTooLarge
	}
	b := s.conn.batch()
	b.eval(scriptContinuationKeep, continuationKeys(o), id, data, millis(ttl), registry.MaxHeldContinuations,
		registry.ContinuationOverhead)
	return unavailable("keep continuation", b.run(ctx))
}

// Continuations implements registry.ContinuationStore.
func (s *Store) Continuations(ctx context.Context, o registry.Holder, limit int, ids ...string) (map[string][]byte, error) {
	found := make(map[string][]byte)
	if len(ids) == 0 {
		return found, nil
	}
	args := make([]any, 0, 1+len(ids))
	args = append(args, limit)
	for _, id := range ids {
		args = append(args, id)
	}
	b := s.conn.batch()
	c := b.eval(scriptContinuationRead, continuationKeys(o), args...)
	if err := b.run(ctx); err != nil {
		return nil, unavailable("read continuations", err)
	}
	answer := toStrings(c.cmd.Val())
	for i := 0; i+1 < len(answer); i += 2 {
		found[answer[i]] = []byte(answer[i+1])
	}
	return found, nil
}
