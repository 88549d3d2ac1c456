package redisstore

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/farhand/farhand/redisstore/internal/redisconn"
	"github.com/farhand/farhand/redisstore/redistest"
	"github.com/farhand/farhand/registry"
)

const tenant = "acme"

// storeOn dials a server of its own and returns a store on it.
func storeOn(t testing.TB, o Options) *Store {
	t.Helper()
	if o.URL == "" {
		o.URL = redistest.Single(t)
	}
	return dial(t, o).Store()
}

func must[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func claim(t testing.TB, s *Store, session, pod string) registry.Session {
	t.Helper()
	c := must[registry.Claim](t)(s.Claim(context.Background(), registry.Session{
		Key: registry.Key{Tenant: tenant, Session: session}, Pod: pod, Generation: registry.AnyHolder,
		DeviceID: "device-" + session, UserID: "user", Labels: map[string]string{"site": "a"},
	}))
	return c.Session
}

func heartbeat(t testing.TB, s *Store, pods ...string) {
	t.Helper()
	for _, pod := range pods {
		must[bool](t)(s.Heartbeat(context.Background(), pod))
	}
}

func spec(t testing.TB, name, description string) registry.ToolSpec {
	t.Helper()
	return must[registry.ToolSpec](t)(registry.ToolSpec{
		Name: name, Description: description, Parameters: json.RawMessage(`{"type":"object"}`),
	}.Normalize())
}

func putTools(t testing.TB, s *Store, sess registry.Session, specs ...registry.ToolSpec) registry.Entry {
	t.Helper()
	if err := s.SetTools(context.Background(), sess, specs); err != nil {
		t.Fatal(err)
	}
	return registry.Entry{Session: sess, Tools: specs}
}

// listed renders the sessions a query finds, in order.
func listed(t testing.TB, s *Store, q registry.Query) string {
	t.Helper()
	q.Tenant = tenant
	var found []string
	for {
		page, next, err := s.List(context.Background(), q)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range page {
			found = append(found, e.Session.Key.Session)
		}
		if next == nil {
			return strings.Join(found, " ")
		}
		q.After = *next
	}
}

// grouped renders the distinct tools with their numbers of sessions, in order.
func grouped(t testing.TB, s *Store) string {
	t.Helper()
	groups, _, err := s.OfferedTools(context.Background(), registry.OfferedToolQuery{Tenant: tenant})
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, g := range groups {
		found = append(found, fmt.Sprintf("%s:%d", g.Spec.Name, g.Sessions))
	}
	return strings.Join(found, " ")
}

// keyspace returns the content of every key and, separately, how long each still lives.
func keyspace(t testing.TB, c *redisconn.Conn) (content map[string]string, life map[string]time.Duration) {
	t.Helper()
	content, life = make(map[string]string), make(map[string]time.Duration)
	var mu sync.Mutex
	err := c.EachMaster(context.Background(), func(ctx context.Context, server redis.Cmdable) error {
		iter := server.Scan(ctx, 0, "*", 1000).Iterator()
		for iter.Next(ctx) {
			key := iter.Val()
			dump, err := server.Dump(ctx, key).Result()
			if err == redis.Nil {
				continue // expired meanwhile
			}
			if err != nil {
				return err
			}
			ttl, err := server.PTTL(ctx, key).Result()
			if err != nil {
				return err
			}
			mu.Lock()
			content[key], life[key] = dump, ttl
			mu.Unlock()
		}
		return iter.Err()
	})
	if err != nil {
		t.Fatal(err)
	}
	return content, life
}

// unchanged runs a write and fails when any key was added, removed or altered by it.
func unchanged(t *testing.T, c *redisconn.Conn, what string, write func()) {
	t.Helper()
	before, _ := keyspace(t, c)
	write()
	after, _ := keyspace(t, c)
	for _, content := range []map[string]string{before, after} {
		delete(content, versionKey(tenant)) // that nothing changed after all is a change too many, never one too few
	}
	if maps.Equal(before, after) {
		return
	}
	for _, key := range slices.Sorted(maps.Keys(before)) {
		if after[key] != before[key] {
			t.Errorf("%s changed or removed %s", what, key)
		}
	}
	for key := range after {
		if _, ok := before[key]; !ok {
			t.Errorf("%s added %s", what, key)
		}
	}
}

// delKeys removes keys behind the store's back.
func delKeys(t testing.TB, s *Store, keys ...string) {
	t.Helper()
	for _, key := range keys {
		if n := must[int64](t)(s.conn.Client().Del(context.Background(), key).Result()); n != 1 {
			t.Fatalf("there was no key %s", key)
		}
	}
}
