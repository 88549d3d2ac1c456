package redisstore

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/farhand/farhand/registry"
)

// Large batches of several tenants keep their order, expire and are capped, also when the server has forgotten the
// scripts.
func TestALargeBatchOfActivity(t *testing.T) {
	const lines, limit = 500, 200
	ctx := context.Background()
	s := storeOn(t, Options{Limits: registry.Limits{ActivityCap: limit, ActivityTTL: time.Hour}})
	tenants := []string{tenant, "other"}
	next := 0
	write := func(n int) {
		t.Helper()
		var batch []registry.Activity
		for range n {
			for _, name := range tenants {
				a := registry.Activity{Tenant: name, Type: registry.ActivityUpdated, Reason: fmt.Sprint(next)}
				batch = append(batch, a)
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
			left := must[time.Duration](t)(s.conn.Client().PTTL(ctx, activityKey(name)).Result())
			if left < 59*time.Minute || left > time.Hour {
				t.Errorf("the feed expires in %v", left)
			}
		}
	}
	for _, n := range []int{1, feedHead, feedWhole, feedWhole + 1, lines} {
		if err := s.conn.Client().ScriptFlush(ctx).Err(); err != nil {
			t.Fatal(err)
		}
		write(n)
		check()
	}
	if err := s.conn.Client().FlushAll(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	write(2 * feedWhole)
	if n := len(must[[]registry.Activity](t)(s.LastActivity(ctx, tenant, "", lines))); n != 2*feedWhole {
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
	s, ctx := storeOn(t, Options{Limits: registry.Limits{ActivityTTL: time.Hour}}), context.Background()
	s.conn.Client().AddHook(emptying{sync.OnceFunc(func() {
		if err := s.conn.Client().FlushAll(ctx).Err(); err != nil {
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
	if left := must[time.Duration](t)(s.conn.Client().PTTL(ctx, activityKey(tenant)).Result()); left <= 0 {
		t.Error("the feed has no expiry")
	}
}

// A line that cannot be read, of another release or another program, hides neither what is before nor what is behind
// it.
func TestUnreadableLinesOfAFeed(t *testing.T) {
	s, ctx := storeOn(t, Options{}), context.Background()
	add := func(reason string) {
		t.Helper()
		a := registry.Activity{Tenant: tenant, Type: registry.ActivityUpdated, Reason: reason}
		err := s.AppendActivity(ctx, []registry.Activity{a})
		if err != nil {
			t.Fatal(err)
		}
	}
	spoil := func(key string, n int) {
		t.Helper()
		for range n {
			err := s.conn.Client().XAdd(ctx, &redis.XAddArgs{Stream: key, Values: []any{streamField, "{"}}).Err()
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	add("first")
	spoil(activityKey(tenant), 25) // more than a page
	add("second")
	first := must[[]registry.Activity](t)(s.ReadActivity(ctx, tenant, "", 10, 0))
	if len(first) != 1 || first[0].Reason != "first" {
		t.Fatalf("the first page is %+v", first)
	}
	next := must[[]registry.Activity](t)(s.ReadActivity(ctx, tenant, first[0].ID, 10, 0))
	if len(next) != 1 || next[0].Reason != "second" {
		t.Errorf("behind the unreadable lines stands %+v", next)
	}
	last := must[[]registry.Activity](t)(s.LastActivity(ctx, tenant, "", 10))
	if len(last) != 1 || last[0].Reason != "second" {
		t.Fatalf("the last page is %+v", last)
	}
	before := must[[]registry.Activity](t)(s.LastActivity(ctx, tenant, last[0].ID, 10))
	if len(before) != 1 || before[0].Reason != "first" {
		t.Errorf("before the unreadable lines stands %+v", before)
	}

	// A reader that waits behind them does not ask again and again.
	spoil(activityKey(tenant), 3)
	commands := commandsOf(t, s)
	got := must[[]registry.Activity](t)(s.ReadActivity(ctx, tenant, last[0].ID, 10, 300*time.Millisecond))
	if len(got) != 0 {
		t.Errorf("read %+v", got)
	}
	if asked := commandsOf(t, s) - commands; asked > 20 {
		t.Errorf("%d commands to wait once", asked)
	}

	err := s.AppendCallEvents(ctx, []registry.CallEvent{{Tenant: tenant, CallID: "c1", Type: registry.CallEventState}})
	if err != nil {
		t.Fatal(err)
	}
	spoil(callEventsKey(tenant, "c1"), 1)
	if events := must[[]registry.CallEvent](t)(s.CallEvents(ctx, tenant, "c1", "", 10)); len(events) != 1 {
		t.Errorf("%d events", len(events))
	}
}

// commandsOf returns how many commands the server has run.
func commandsOf(t testing.TB, s *Store) int64 {
	t.Helper()
	for line := range strings.Lines(must[string](t)(s.conn.Client().Info(context.Background(), "stats").Result())) {
		if n, ok := strings.CutPrefix(strings.TrimSpace(line), "total_commands_processed:"); ok {
			return must[int64](t)(strconv.ParseInt(n, 10, 64))
		}
	}
	t.Fatal("the server does not count its commands")
	return 0
}

// Whether a call is in the feed or not, finding that out reads a line at most.
func TestFindingACallIsCheap(t *testing.T) {
	s, ctx := storeOn(t, Options{}), context.Background()
	var batch []registry.Activity
	for range 5000 {
		batch = append(batch, benchActivity())
	}
	if err := s.AppendActivity(ctx, batch); err != nil {
		t.Fatal(err)
	}
	if err := s.conn.Client().ConfigResetStat(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	for _, a := range batch[:100] {
		if r, err := s.FindCall(ctx, tenant, a.Call.CallID); err != nil || r.CallID != a.Call.CallID {
			t.Fatalf("found %+v, %v", r, err)
		}
		if _, err := s.FindCall(ctx, tenant, registry.NewCallID()); !registry.IsCallNotFound(err) {
			t.Fatal(err)
		}
	}
	if n := commandsOf(t, s); n > 100*(3+2)+5 {
		t.Errorf("%d commands for 100 hits and 100 misses", n)
	}
}

func BenchmarkFindCall(b *testing.B) {
	s, ctx := storeOn(b, Options{}), context.Background()
	var batch []registry.Activity
	for range 10_000 {
		batch = append(batch, benchActivity())
	}
	if err := s.AppendActivity(ctx, batch); err != nil {
		b.Fatal(err)
	}
	b.Run("hit", func(b *testing.B) {
		for i := range b.N {
			if _, err := s.FindCall(ctx, tenant, batch[i*37%len(batch)].Call.CallID); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("miss", func(b *testing.B) {
		for range b.N {
			if _, err := s.FindCall(ctx, tenant, registry.NewCallID()); !registry.IsCallNotFound(err) {
				b.Fatal(err)
			}
		}
	})
}
