package redisstore

import (
	"context"
	"fmt"
	"testing"
	"time"

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
