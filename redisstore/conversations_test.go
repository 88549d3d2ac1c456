package redisstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/farhand/farhand/redisstore/redistest"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/registrytest"
)

var chatKey = registry.Key{Tenant: tenant, Session: "chat"}

func begin(t testing.TB, s *Store, key registry.Key, lease time.Duration) registry.Turn {
	t.Helper()
	return must[registry.Turn](t)(s.BeginTurn(context.Background(), key, lease))
}

// chatWrites are all the writes to a conversation but BeginTurn.
func chatWrites(s *Store, turn registry.Turn) map[string]func(context.Context) error {
	said := 0 // no message is that before it, which would not be added again
	return map[string]func(context.Context) error{
		"renew": func(ctx context.Context) error { return s.RenewTurn(ctx, turn, time.Minute) },
		"append": func(ctx context.Context) error {
			said++
			_, err := s.AppendMessages(ctx, turn, json.RawMessage(fmt.Sprint(said)))
			return err
		},
		"draft":    func(ctx context.Context) error { return s.SaveDraft(ctx, turn, json.RawMessage(`"x"`)) },
		"title":    func(ctx context.Context) error { return s.SetTitle(ctx, turn, "x") },
		"owner":    func(ctx context.Context) error { return s.SetOwner(ctx, turn, registry.Owner{UserID: "u"}) },
		"truncate": func(ctx context.Context) error { return s.TruncateMessages(ctx, turn, 1) },
		"trail": func(ctx context.Context) error {
			_, err := s.AppendTrail(ctx, turn.Key, "x", 5)
			return err
		},
		"end": func(ctx context.Context) error { return s.EndTurn(ctx, turn) },
	}
}

// busyConversations holds conversations of which some are left in the middle of a turn.
func busyConversations(t *testing.T, s *Store) {
	t.Helper()
	ctx := context.Background()
	for i := range 8 {
		turn := begin(t, s, registry.Key{Tenant: tenant, Session: fmt.Sprintf("c%d", i)}, time.Minute)
		ops := []string{"append", "append", "title", "trail", "draft", "renew", "truncate", "draft", "end"}
		for _, op := range ops[:i+2] {
			if err := chatWrites(s, turn)[op](ctx); err != nil {
				t.Fatal(op, err)
			}
		}
	}
	must[[]string](t)(s.AppendTrail(ctx, registry.Key{Tenant: tenant, Session: "only a trail"}, "x", 5))
}

// TestEveryWriteExtendsAllOfAConversation: none of its keys may be gone before the others.
func TestEveryWriteExtendsAllOfAConversation(t *testing.T) {
	s := storeOn(t, Options{Limits: registry.Limits{HistoryTTL: time.Hour}})
	ctx := context.Background()
	for op := range chatWrites(s, registry.Turn{}) {
		key := registry.Key{Tenant: tenant, Session: op}
		turn := begin(t, s, key, time.Second)
		writes := chatWrites(s, turn)
		check := func(what string, write func(context.Context) error) {
			t.Helper()
			there := 0
			for _, k := range chatKeys(key) {
				if s.conn.Client().PExpire(ctx, k, time.Minute).Val() {
					there++
				}
			}
			if there != 4 {
				t.Fatalf("%d keys before %s", there, what)
			}
			if err := write(ctx); err != nil {
				t.Fatal(what, err)
			}
			for _, k := range chatKeys(key) {
				ttl := s.conn.Client().PTTL(ctx, k).Val()
				gone := ttl == -2
				if !gone && (ttl <= 59*time.Minute || ttl > time.Hour) || gone && !strings.HasSuffix(k, ":draft") {
					t.Errorf("after %s %s lives %v", what, k, ttl)
				}
			}
		}
		for _, fill := range []string{"append", "trail", "draft"} {
			if err := writes[fill](ctx); err != nil {
				t.Fatal(fill, err)
			}
		}
		check(op, writes[op])
	}
}

func TestBeginningExtendsAllOfAConversation(t *testing.T) {
	s := storeOn(t, Options{Limits: registry.Limits{HistoryTTL: time.Hour}})
	ctx := context.Background()
	turn := begin(t, s, chatKey, time.Millisecond)
	for _, fill := range []string{"append", "trail", "draft"} {
		if err := chatWrites(s, turn)[fill](ctx); err != nil {
			t.Fatal(fill, err)
		}
	}
	for _, k := range chatKeys(chatKey) {
		s.conn.Client().PExpire(ctx, k, time.Minute)
	}
	registrytest.Eventually(t, "another turn begins", func() bool {
		_, err := s.BeginTurn(ctx, chatKey, 3*time.Hour)
		return err == nil
	})
	for _, k := range chatKeys(chatKey) { // a turn longer than the TTL keeps all of it
		if ttl := s.conn.Client().PTTL(ctx, k).Val(); ttl <= 179*time.Minute || ttl > 3*time.Hour {
			t.Errorf("%s lives %v", k, ttl)
		}
	}
}

// TestStaleTurnsChangeNothing compares the whole keyspace around every write a lost turn can attempt.
func TestStaleTurnsChangeNothing(t *testing.T) {
	s := storeOn(t, Options{})
	ctx := context.Background()
	old := begin(t, s, chatKey, time.Millisecond)
	var current registry.Turn
	registrytest.Eventually(t, "another turn begins", func() bool {
		var err error
		current, err = s.BeginTurn(ctx, chatKey, time.Minute)
		return err == nil
	})
	for _, op := range []string{"append", "trail", "title", "draft"} {
		if err := chatWrites(s, current)[op](ctx); err != nil {
			t.Fatal(op, err)
		}
	}
	unknown := registry.Turn{Key: registry.Key{Tenant: tenant, Session: "unknown"}, Fence: current.Fence}
	for name, stale := range map[string]registry.Turn{"replaced": old, "unknown": unknown} {
		for op, write := range chatWrites(s, stale) {
			if op == "trail" { // needs no turn
				continue
			}
			unchanged(t, s.conn, name+": "+op, func() {
				if err := write(ctx); !errors.Is(err, registry.ErrTurnLost) {
					t.Errorf("%s: %v", op, err)
				}
			})
		}
	}
	unchanged(t, s.conn, "a turn that cannot begin", func() {
		if _, err := s.BeginTurn(ctx, chatKey, time.Minute); !errors.Is(err, registry.CodeBusy) {
			t.Errorf("got %v", err)
		}
	})
}

func TestFencesGrowThroughClockTrouble(t *testing.T) {
	s := storeOn(t, Options{})
	ctx := context.Background()
	if err := s.EndTurn(ctx, begin(t, s, chatKey, time.Minute)); err != nil {
		t.Fatal(err)
	}
	const ahead = 1 << 52 // as if the clock had been far ahead when the last turn began
	if err := s.conn.Client().HSet(ctx, chatKeys(chatKey)[1], "fence", ahead).Err(); err != nil {
		t.Fatal(err)
	}
	if turn := begin(t, s, chatKey, time.Minute); turn.Fence != ahead+1 {
		t.Errorf("fence %d, want %d", turn.Fence, ahead+1)
	}
}

func TestFencesGrowOverAnEmptiedRedis(t *testing.T) {
	s := storeOn(t, Options{})
	var last int64
	for range 20 {
		turn := begin(t, s, chatKey, time.Minute)
		if turn.Fence <= last {
			t.Fatalf("fence %d after %d", turn.Fence, last)
		}
		last = turn.Fence
		s.conn.Client().FlushAll(context.Background())
	}
}

// counter counts what is sent to Redis.
type counter struct {
	trips, commands atomic.Int64
}

func (c *counter) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *counter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.trips.Add(1)
		c.commands.Add(1)
		return next(ctx, cmd)
	}
}

func (c *counter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		c.trips.Add(1)
		c.commands.Add(int64(len(cmds)))
		return next(ctx, cmds)
	}
}

// TestAConversationIsOneRoundTrip: whatever is asked or written, and another for the lists that show what was.
func TestAConversationIsOneRoundTrip(t *testing.T) {
	s := storeOn(t, Options{URL: redistest.Cluster(t).URL})
	turn := begin(t, s, chatKey, time.Minute)
	operations := chatWrites(s, turn)
	operations["conversation"] = func(ctx context.Context) error {
		_, err := s.Conversation(ctx, chatKey)
		return err
	}
	operations["count"] = func(ctx context.Context) error {
		_, err := s.CountMessages(ctx, chatKey)
		return err
	}
	operations["read trail"] = func(ctx context.Context) error {
		_, err := s.Trail(ctx, chatKey, 5)
		return err
	}
	operations["begin"] = func(ctx context.Context) error {
		_, err := s.BeginTurn(ctx, registry.Key{Tenant: tenant, Session: "new"}, time.Minute)
		return err
	}
	var sent counter
	s.conn.Client().AddHook(&sent)
	for op, run := range operations {
		if op == "end" {
			continue // would end the turn of the others
		}
		sent.trips.Store(0)
		sent.commands.Store(0)
		if err := run(context.Background()); err != nil {
			t.Fatal(op, err)
		}
		want := int64(1)
		if op == "append" || op == "title" || op == "truncate" {
			want = 2
		}
		if sent.trips.Load() != want || sent.commands.Load() != want {
			t.Errorf("%s: %d commands in %d round trips", op, sent.commands.Load(), sent.trips.Load())
		}
	}
}

// TestAFullRedisTakesAllOfAWriteOrNothing: appending also forgets the draft, which a full Redis would still do.
func TestAFullRedisTakesAllOfAWriteOrNothing(t *testing.T) {
	server := redistest.Start(t)
	s := storeOn(t, Options{URL: server.URL()})
	ctx := context.Background()
	turn := begin(t, s, chatKey, time.Minute)
	writes := chatWrites(s, turn)
	for _, op := range []string{"append", "append", "draft"} {
		if err := writes[op](ctx); err != nil {
			t.Fatal(op, err)
		}
	}
	if out, err := server.Command("config", "set", "maxmemory", "1"); err != nil || out != "OK" {
		t.Fatal(out, err)
	}
	for _, op := range []string{"renew", "append", "draft", "title", "trail"} {
		unchanged(t, s.conn, op, func() {
			if err := writes[op](ctx); !errors.Is(err, registry.CodeStoreUnavailable) {
				t.Errorf("%s: %v", op, err)
			}
		})
	}
	for _, op := range []string{"truncate", "end"} { // they make room
		if err := writes[op](ctx); err != nil {
			t.Errorf("%s: %v", op, err)
		}
	}
	c := must[registry.Conversation](t)(s.Conversation(ctx, chatKey))
	if len(c.Messages) != 1 || c.Draft != nil || c.Busy {
		t.Errorf("conversation %+v", c)
	}
}

func TestConversationsOfARedisThatIsAway(t *testing.T) {
	server := redistest.Start(t)
	s := storeOn(t, Options{URL: server.URL()})
	ctx := context.Background()
	operations := chatWrites(s, begin(t, s, chatKey, time.Minute))
	operations["begin"] = func(ctx context.Context) error {
		_, err := s.BeginTurn(ctx, chatKey, time.Minute)
		return err
	}
	operations["conversation"] = func(ctx context.Context) error {
		_, err := s.Conversation(ctx, chatKey)
		return err
	}
	operations["count"] = func(ctx context.Context) error {
		_, err := s.CountMessages(ctx, chatKey)
		return err
	}
	operations["read trail"] = func(ctx context.Context) error {
		_, err := s.Trail(ctx, chatKey, 5)
		return err
	}
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	for op, run := range operations {
		if err := run(cancelled); !errors.Is(err, registry.CodeStoreUnavailable) || !errors.Is(err, context.Canceled) {
			t.Errorf("%s, called off: %v", op, err)
		}
	}
	server.Kill()
	for op, run := range operations {
		if err := run(ctx); !errors.Is(err, registry.CodeStoreUnavailable) {
			t.Errorf("%s: %v", op, err)
		}
	}
	server.Restart() // empty, and without our scripts
	begin(t, s, chatKey, time.Minute)
	if n := must[int](t)(s.CountMessages(ctx, chatKey)); n != 0 {
		t.Errorf("%d messages", n)
	}
}

func TestConversationsShareTheSlotOfTheirSession(t *testing.T) {
	keys := append(chatKeys(chatKey), sessionKeys(chatKey)...)
	tag := func(key string) string { return key[strings.Index(key, "{"):strings.Index(key, "}")] }
	if i := slices.IndexFunc(keys, func(k string) bool { return tag(k) != tag(keys[0]) }); i >= 0 {
		t.Errorf("%s is elsewhere than %s", keys[i], keys[0])
	}
}
