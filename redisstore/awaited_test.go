package redisstore

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/farhand/farhand/registry"
)

// commands counts the commands that a client sends.
type commands struct {
	crash
	n atomic.Int64
}

// ProcessHook implements redis.Hook.
func (c *commands) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.n.Add(1)
		return next(ctx, cmd)
	}
}

// ProcessPipelineHook implements redis.Hook.
func (c *commands) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		c.n.Add(int64(len(cmds)))
		return next(ctx, cmds)
	}
}

// What nothing is expected of costs no more than twice what the listing does that has found nothing.
func TestAMissIsCheap(t *testing.T) {
	s, ctx := storeOn(t, Options{}), t.Context()
	heartbeat(t, s, "a")
	for i := range 50 {
		sess := claim(t, s, fmt.Sprint(i), "a")
		sess.UserID = ""
		if err := s.Update(ctx, sess); err != nil {
			t.Fatal(err)
		}
		putTools(t, s, sess, spec(t, "camera", "x"))
	}
	putTools(t, s, claim(t, s, "other", "a"), spec(t, "lamp", "x"))
	counted := new(commands)
	s.conn.Client().AddHook(counted)
	for name, q := range map[string]registry.Query{
		"a label that no session has": {
			Tool: "camera", Target: registry.Target{Labels: map[string]string{"site": "b"}},
		},
		"a tool that no session has":   {Tool: "camra"},
		"such a tool, for a user":      {Tool: "camra", Target: registry.Target{Viewer: "u1"}},
		"such a tool, of a device":     {Tool: "camra", Target: registry.Target{DeviceID: "device-1"}},
		"a tool of others, for a user": {Tool: "lamp", Target: registry.Target{Viewer: "u1"}},
	} {
		q.Tenant, q.Limit = tenant, 20
		counted.n.Store(0)
		if page, _, err := s.List(ctx, q); err != nil || len(page) != 0 {
			t.Fatalf("%s: %v, %v", name, page, err)
		}
		list := counted.n.Swap(0)
		if due, err := s.Awaited(ctx, q); err != nil || len(due) != 0 {
			t.Fatalf("%s: %v, %v", name, due, err)
		}
		if awaited := counted.n.Load(); awaited > 2*list {
			t.Errorf("%s: %d commands, and %d for the listing", name, awaited, list)
		}
	}
}
