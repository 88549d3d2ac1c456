package redisstore

import (
	"context"
	"time"

	"github.com/farhand/farhand/redisstore/internal/redisconn"
	"github.com/farhand/farhand/registry"
)

// KeepContinuation implements registry.ContinuationStore.
func (s *Store) KeepContinuation(
	ctx context.Context, o registry.ContinuationOwner, id string, data []byte, ttl time.Duration,
) error {
	if len(data) > registry.MaxContinuation {
		return registry.ErrContinuationTooLarge
	}
	_, err := s.conn.Eval(ctx, scriptContinuationKeep, continuationKeys(o),
		id, data, millis(ttl), registry.MaxHeldContinuations, registry.ContinuationOverhead)
	return redisconn.Unavailable("keep continuation", err)
}

// Continuations implements registry.ContinuationStore.
func (s *Store) Continuations(
	ctx context.Context, o registry.ContinuationOwner, limit int, ids ...string,
) (map[string][]byte, error) {
	found := make(map[string][]byte)
	if len(ids) == 0 {
		return found, nil
	}
	args := make([]any, 0, 1+len(ids))
	args = append(args, limit)
	for _, id := range ids {
		args = append(args, id)
	}
	c, err := s.conn.Eval(ctx, scriptContinuationRead, continuationKeys(o), args...)
	if err != nil {
		return nil, redisconn.Unavailable("read continuations", err)
	}
	answer := c.Strings()
	for i := 0; i+1 < len(answer); i += 2 {
		found[answer[i]] = []byte(answer[i+1])
	}
	return found, nil
}
