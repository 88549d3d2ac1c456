package redisstore

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand/redisstore/redistest"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/registrytest"
)

func newCall(id string) registry.Record {
	return registry.Record{
		CallID: id, Tenant: tenant, Tool: "camera", SessionID: "s1", Mode: registry.ModeAsync, Pod: "a",
		TimeoutMS: time.Minute.Milliseconds(), IdempotencyKey: "key-" + id,
	}
}

// busyCalls takes calls through their lives, and after their ends.
func busyCalls(t *testing.T, s *Store) {
	t.Helper()
	ctx := context.Background()
	for i, e := range registry.Events() {
		r := newCall(fmt.Sprintf("call%d", i))
		must[bool](t)(second(s.CreateCall(ctx, r)))
		r.CallID = "loses the key"
		must[bool](t)(second(s.CreateCall(ctx, r)))
		r = newCall(fmt.Sprintf("call%d", i))
		must[registry.Record](t)(s.WatchCall(ctx, tenant, r.CallID, "a"))
		change := registry.Change{
			Session: registry.Key{Tenant: tenant, Session: "s1"}, Result: &registry.Result{Output: "x"},
		}
		for _, event := range []registry.Event{e, registry.EventFail} {
			must[registry.Moved](t)(s.MoveCall(ctx, tenant, r.CallID, event, change))
		}
		kept := newCall(fmt.Sprintf("kept%d", i))
		kept.State = registry.StateTimedOut
		if err := s.KeepCalls(ctx, []registry.Record{kept, r}); err != nil {
			t.Fatal(err)
		}
		if err := s.AppendCallEvents(ctx, []registry.CallEvent{
			{Tenant: tenant, CallID: r.CallID}, {Tenant: tenant, CallID: fmt.Sprintf("unknown%d", i)},
		}); err != nil {
			t.Fatal(err)
		}
		if err := s.AppendActivity(ctx, []registry.Activity{{Tenant: tenant, Call: &r}}); err != nil {
			t.Fatal(err)
		}
	}
	delKeys(t, s, callKey(tenant, "call0"))
	heir := registry.Record{CallID: "heir", Tenant: tenant, IdempotencyKey: "key-call0"}
	must[bool](t)(second(s.CreateCall(ctx, heir)))
	delKeys(t, s, callKey(tenant, "call1"), callKey(tenant, "call2"))
	for _, id := range []string{"call1", "call2"} { // none of this may bring a record back to life
		_, _ = s.ReadCall(ctx, tenant, id)
		_, _ = s.WatchCall(ctx, tenant, id, "a")
		_, _ = s.MoveCall(ctx, tenant, id, registry.EventCancel, registry.Change{})
		if n := s.conn.Client().Exists(ctx, callKey(tenant, id)).Val(); n != 0 {
			t.Errorf("%s is back", id)
		}
	}
}

func second[A, B any](_ A, b B, err error) (B, error) { return b, err }

func TestEventsLiveAsLongAsTheirCall(t *testing.T) {
	s := storeOn(t, Options{Limits: registry.Limits{Retention: time.Minute}})
	ctx := context.Background()
	r := newCall("c1")
	r.TimeoutMS = time.Hour.Milliseconds()
	must[bool](t)(second(s.CreateCall(ctx, r)))
	life := func(key string) time.Duration { return s.conn.Client().PTTL(ctx, key).Val() }
	record, events := callKey(tenant, "c1"), callEventsKey(tenant, "c1")
	note := func() {
		t.Helper()
		if err := s.AppendCallEvents(ctx, []registry.CallEvent{{Tenant: tenant, CallID: "c1"}}); err != nil {
			t.Fatal(err)
		}
	}
	note()
	if life(record) <= time.Hour || life(events) <= time.Hour {
		t.Errorf("an unfinished call lives %v, its events %v", life(record), life(events))
	}
	must[registry.Moved](t)(s.MoveCall(ctx, tenant, "c1", registry.EventDeliver, registry.Change{}))
	if life(record) <= time.Hour {
		t.Errorf("a delivered call lives %v", life(record))
	}
	must[registry.Moved](t)(s.MoveCall(ctx, tenant, "c1", registry.EventCancel, registry.Change{}))
	note()
	if life(record) > time.Minute || life(events) > time.Minute {
		t.Errorf("a finished call lives %v, its events %v", life(record), life(events))
	}
}

func TestAFullRedisTakesNoCall(t *testing.T) {
	server := redistest.Start(t)
	s := storeOn(t, Options{URL: server.URL()})
	if out, err := server.Command("config", "set", "maxmemory", "1"); err != nil || out != "OK" {
		t.Fatal(out, err)
	}
	_, created, err := s.CreateCall(context.Background(), newCall("c1"))
	if created || !strings.Contains(fmt.Sprint(err), string(registry.CodeStoreUnavailable)) {
		t.Errorf("created %v, %v", created, err)
	}
	if content, _ := keyspace(t, s.conn); len(content) != 0 {
		t.Errorf("left behind: %q", content)
	}
}

func TestACallThatCannotGetItsKeyLeavesNothing(t *testing.T) {
	s := storeOn(t, Options{})
	ctx := context.Background()
	r := newCall("c1")
	if err := s.conn.Client().HSet(ctx, idemKey(tenant, r.IdempotencyKey), "not", "a string").Err(); err != nil {
		t.Fatal(err)
	}
	if _, created, err := s.CreateCall(ctx, r); created || err == nil {
		t.Errorf("created %v, %v", created, err)
	}
	if n := s.conn.Client().Exists(ctx, callKey(tenant, "c1")).Val(); n != 0 {
		t.Error("the record of a call that will not run is there")
	}
}

// TestAKeyNeverLeadsNowhere looks at the servers themselves while calls are created.
func TestAKeyNeverLeadsNowhere(t *testing.T) {
	s := storeOn(t, Options{URL: redistest.Cluster(t).URL})
	ctx := context.Background()
	for i := range 200 {
		r := newCall(fmt.Sprintf("c%d", i))
		done := make(chan error, 1)
		go func() {
			_, _, err := s.CreateCall(ctx, r)
			done <- err
		}()
		for created := false; !created; {
			select {
			case err := <-done:
				if err != nil {
					t.Fatal(err)
				}
				created = true
			default:
			}
			id, err := s.conn.Client().Get(ctx, idemKey(tenant, r.IdempotencyKey)).Result()
			if err == nil && s.conn.Client().Exists(ctx, callKey(tenant, id)).Val() != 1 {
				t.Fatalf("the key of %s leads nowhere", id)
			}
		}
	}
}

func TestAHangingRedisEndsTheWaiting(t *testing.T) {
	server := redistest.Start(t)
	s := storeOn(t, Options{URL: server.URL()})
	ended := make(chan error, 1)
	go func() {
		_, err := s.ReadActivity(context.Background(), tenant, "", 10, time.Hour)
		ended <- err
	}()
	registrytest.Eventually(t, "somebody waits", func() bool {
		out, err := server.Command("info", "clients")
		return err == nil && strings.Contains(out, "blocked_clients:1")
	})
	server.Pause()
	defer server.Resume()
	select {
	case err := <-ended:
		if !strings.Contains(fmt.Sprint(err), string(registry.CodeStoreUnavailable)) {
			t.Errorf("ended with %v", err)
		}
	case <-time.After(testTimeout):
		t.Error("still waiting for a Redis that hangs")
	}
}

func TestKeysAreTakenOverFromTheExpectedHolderOnly(t *testing.T) {
	s := storeOn(t, Options{})
	ctx := context.Background()
	const key = "k"
	setIf := func(expected, value string) string {
		t.Helper()
		pipe := s.conn.Pipeline()
		c := pipe.Eval(scriptSetIf, []string{key}, expected, value, 60_000)
		if err := pipe.Exec(ctx); err != nil {
			t.Fatal(err)
		}
		holder, _ := c.Text()
		return holder
	}
	for i, step := range []struct{ expected, value, refusedFor, after string }{
		{"old", "a", "", "a"}, // gone: free
		{"a", "b", "", "b"},
		{"a", "c", "b", "b"}, // somebody else was faster
	} {
		if got := setIf(step.expected, step.value); got != step.refusedFor {
			t.Errorf("step %d: refused for %q, want %q", i, got, step.refusedFor)
		}
		if got := s.conn.Client().Get(ctx, key).Val(); got != step.after {
			t.Errorf("step %d: held by %q, want %q", i, got, step.after)
		}
		if ttl := s.conn.Client().PTTL(ctx, key).Val(); ttl <= 0 || ttl > time.Minute {
			t.Errorf("step %d: lives %v", i, ttl)
		}
	}
}
