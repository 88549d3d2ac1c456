package redisstore

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/farhand/farhand/registry"
)

// Large batches of several tenants keep their order, expire and are capped, also when the server has forgotten the scripts.
func TestALargeBatchOfActivity(t *testing.T) {
	const lines, limit = 500, 200
	s, ctx := storeOn(t, Options{ActivityCap: limit, ActivityTTL: time.Hour}), context.Background()
	tenants := []string{tenant, "other"}
	next := 0
	write := func(n int) {
		t.Helper()
		var batch []registry.Activity
		for range n {
			for _, name := range tenants {
				batch = append(batch, registry.Activity{Tenant: name, Type: registry.ActivityUpdated, Reason: fmt.Sprint(next)})
			}
			next++
		}
		if err := s.AppendActivity(ctx, batch); err != nil {
			t.Fatal(err)
		}
	}
	check := func() {
		t.Helper()
		for _, name := range tenants {
			found := must[[]registry.Activity](t)(s.LastActivity(ctx, name, "", 2*lines))
			if n := len(found); n < min(next, limit) || n > limit+100 {
				t.Errorf("%d of %d lines in a feed of about %d", n, next, limit)
			}
			for i, a := range found {
				if a.Reason != fmt.Sprint(next-1-i) || a.Tenant != name {
					t.Fatalf("line %d from the end is %+v", i, a)
				}
			}
			if left := must[time.Duration](t)(s.conn.client.PTTL(ctx, activityKey(name)).Result()); left < 59*time.Minute || left > time.Hour {
				t.Errorf("the feed expires in %v", left)
			}
		}
	}
	for _, n := range []int{1, feedHead, feedHead + 1, 2 * feedHead, lines} {
		if err := s.conn.client.ScriptFlush(ctx).Err(); err != nil {
			t.Fatal(err)
		}
		write(n)
		check()
	}
	if err := s.conn.client.FlushAll(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	write(2 * feedHead)
	if n := len(must[[]registry.Activity](t)(s.LastActivity(ctx, tenant, "", lines))); n != 2*feedHead {
		t.Errorf("%d lines after the server was emptied", n)
	}
}

// emptying is a server that is emptied once, right after the first script.
type emptying struct{ once func() }

func (emptying) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (emptying) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (e emptying) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, commands []redis.Cmder) error {
		err := next(ctx, commands)
		if strings.HasPrefix(commands[0].Name(), "eval") && commands[0].Err() == nil {
			e.once()
		}
		return err
	}
}

// What follows the first entries of a batch is not lost when the stream they are in goes in between.
func TestServerEmptiedWithinABatchOfActivity(t *testing.T) {
	const lines = 100
	s, ctx := storeOn(t, Options{ActivityTTL: time.Hour}), context.Background()
	s.conn.client.AddHook(emptying{sync.OnceFunc(func() {
		if err := s.conn.client.FlushAll(ctx).Err(); err != nil {
			t.Error(err)
		}
	})})
	var batch []registry.Activity
	for i := range lines {
		batch = append(batch, registry.Activity{Tenant: tenant, Type: registry.ActivityUpdated, Reason: fmt.Sprint(i)})
	}
	if err := s.AppendActivity(ctx, batch); err != nil {
		t.Fatal(err)
	}
	found := must[[]registry.Activity](t)(s.LastActivity(ctx, tenant, "", 2*lines))
	if len(found) != lines-feedHead || found[0].Reason != fmt.Sprint(lines-1) {
		t.Errorf("%d lines", len(found))
	}
	if left := must[time.Duration](t)(s.conn.client.PTTL(ctx, activityKey(tenant)).Result()); left <= 0 {
		t.Error("the feed has no expiry")
	}
}
