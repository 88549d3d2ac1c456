package redisstore

import (
	"context"
	"encoding/json"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/farhand/farhand/redisstore/internal/redisconn"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/approvals"
	"github.com/farhand/farhand/registry/defaults"
	"github.com/farhand/farhand/registry/toolmemory"
	"github.com/farhand/farhand/registry/wakes"
)

// EraseOf implements registry.EraseStore.
func (s *Store) EraseOf(ctx context.Context, tenant, user string, kind registry.PersonalKind) (int, error) {
	switch kind {
	case registry.PersonalApprovals:
		return approvals.Erase(ctx, s.Documents(), tenant, user)
	case registry.PersonalDefault:
		return defaults.Erase(ctx, s.Documents(), tenant, user)
	case registry.PersonalMemories:
		return toolmemory.Erase(ctx, s.Documents(), tenant, user)
	case registry.PersonalWakes:
		return wakes.Erase(ctx, s.Documents(), tenant, user)
	case registry.PersonalCalls:
		return s.eraseCalls(ctx, tenant, user)
	case registry.PersonalUsage:
		return s.eraseUsage(ctx, tenant, user)
	default:
		keys := continuationKeys(registry.ContinuationsOf(tenant, user))
		c, err := s.conn.Do(ctx, "UNLINK", keys[0], keys[1])
		return int(min(c.Int(), 1)), err
	}
}

// eraseScan is about how many keys of Redis one step looks at. No index has the calls of a user, because calls are many
// and erasures few.
const eraseScan = 500

func (s *Store) eraseCalls(ctx context.Context, tenant, user string) (int, error) {
	begin := tenantKey(tenant, "{call:")
	var removed atomic.Int64
	err := s.conn.EachMaster(ctx, func(ctx context.Context, c redis.Cmdable) error {
		for cursor := uint64(0); ; {
			keys, next, err := c.Scan(ctx, cursor, escapeGlob(begin)+"*}", eraseScan).Result()
			if err != nil {
				return redisconn.Unavailable("scan", err)
			}
			n, err := s.eraseCallsAt(ctx, tenant, user, keys)
			removed.Add(n)
			if err != nil || next == 0 {
				return err
			}
			cursor = next
		}
	})
	return int(removed.Load()), err
}

func (s *Store) eraseCallsAt(ctx context.Context, tenant, user string, keys []string) (removed int64, err error) {
	if len(keys) == 0 {
		return 0, nil
	}
	pipe, records := s.conn.Pipeline(), make([]*redisconn.Command, len(keys))
	for i, key := range keys {
		records[i] = pipe.Do("HGET", key, fieldRest)
	}
	if err := pipe.Exec(ctx); err != nil {
		return 0, err
	}
	pipe = s.conn.Pipeline()
	for i, key := range keys {
		text, _ := records[i].Text()
		var r registry.Record
		if json.Unmarshal([]byte(text), &r) != nil || r.UserID != user { // one that is not readable expires
			continue
		}
		removed++
		pipe.Do("UNLINK", key, key+":events")
		if r.IdempotencyKey != "" {
			pipe.Eval(scriptDelIf, []string{idemKey(tenant, r.IdempotencyKey)}, r.CallID)
		}
	}
	if removed == 0 {
		return 0, nil
	}
	return removed, pipe.Exec(ctx)
}

func (s *Store) eraseUsage(ctx context.Context, tenant, user string) (removed int, err error) {
	now := time.Now().UTC()
	for at := now.Add(-s.opts.UsageTTL).AddDate(0, 0, -1); at.Before(now.AddDate(0, 0, 2)); at = at.AddDate(0, 0, 1) {
		day := at.Format(time.DateOnly)
		rows, err := s.ReadUsage(ctx, tenant, day)
		if err != nil {
			return removed, err
		}
		args := []any{"HDEL", usageKey(tenant, day)}
		for _, r := range rows {
			if r.User == user {
				args = append(args, usageField(r))
			}
		}
		if len(args) == 2 {
			continue
		}
		if _, err := s.conn.Do(ctx, args...); err != nil {
			return removed, err
		}
		removed += len(args) - 2
	}
	return removed, nil
}

// escapeGlob escapes the characters that have a meaning in patterns of Redis.
func escapeGlob(text string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`, "]", `\]`).Replace(text)
}
