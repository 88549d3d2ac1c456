package redisstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/farhand/farhand/redisstore/bus"
	"github.com/farhand/farhand/redisstore/redistest"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/registrytest"
)

// busy claims, moves, changes, refreshes and releases sessions from several goroutines.
func busy(t *testing.T, s *Store) {
	t.Helper()
	ctx := context.Background()
	heartbeat(t, s, "a", "b")
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(w)))
			for i := range 30 {
				sess := claim(t, s, fmt.Sprintf("s%d", random.IntN(12)), []string{"a", "b"}[random.IntN(2)])
				// Other goroutines claim the same sessions: losing one is part of it.
				_ = s.SetTools(ctx, sess, []registry.ToolSpec{
					spec(t, fmt.Sprintf("tool%d", i%5), "x"), spec(t, "own", fmt.Sprint(i)),
				})
				own := spec(t, fmt.Sprintf("tool%d", i%3), "x")
				_ = s.SetTools(ctx, sess, []registry.ToolSpec{spec(t, "common", "x"), own})
				sess.DeviceID = fmt.Sprintf("d%d", random.IntN(5))
				_ = s.Update(ctx, sess)
				_, _, _ = s.Refresh(ctx, []registry.Entry{{Session: sess}})
				tools := []registry.ToolSpec{spec(t, "own", "restored")}
				_, _ = s.Restore(ctx, registry.Entry{Session: sess, Tools: tools})
				if random.IntN(3) == 0 {
					_, _ = s.Release(ctx, sess, 0)
				}
				_, _, _ = s.List(ctx, registry.Query{Tenant: tenant, Limit: 3})
				_, _, _ = s.OfferedTools(ctx, registry.OfferedToolQuery{Tenant: tenant})
				_ = s.Ping(ctx)
			}
		})
	}
	wg.Wait()
	b := bus.New(s.conn, bus.Options{})
	defer b.Close(ctx)
	if err := b.Reply("nobody", registry.Reply{CallID: "c", Delivered: true}); err != nil {
		t.Fatal(err)
	}
	registrytest.Eventually(t, "the reply is pushed", func() bool {
		return s.conn.Client().Exists(ctx, "fh:{pod:nobody}:replies").Val() == 1
	})
}

// busyApprovals asks, decides, settles and grants.
func busyApprovals(t *testing.T, s *Store) {
	t.Helper()
	ctx := context.Background()
	for i := range 12 {
		a := registry.Approval{
			ID: registry.NewApprovalID(), Tenant: tenant, Tool: "camera", Deferred: i%2 == 0,
			Args:      registry.MustJSON("{}"),
			Requester: registry.Requester{User: fmt.Sprint("u", i%3)},
		}
		must[registry.Approval](t)(s.CreateApproval(ctx, a, time.Minute, []byte("request")))
		if i > 6 {
			must[bool](t)(second(s.DecideApproval(ctx, tenant, a.ID, registry.Vote{Person: "user:ann"}, "",
				registry.Verdict{State: registry.ApprovalAllowed})))
		}
		if i > 9 {
			if err := s.SettleApproval(ctx, tenant, a.ID); err != nil {
				t.Fatal(err)
			}
		}
		g := registry.GrantOf(a, registry.ScopeAlwaysTool)
		g.ID = registry.NewApprovalID()
		must[registry.Grant](t)(s.PutGrant(ctx, g, time.Minute))
	}
}

func TestEveryKeyExpires(t *testing.T) {
	for name, url := range map[string]func(testing.TB) string{
		"single":  redistest.Single,
		"cluster": func(t testing.TB) string { return redistest.Cluster(t).URL },
	} {
		t.Run(name, func(t *testing.T) {
			s := storeOn(t, Options{URL: url(t)})
			busy(t, s)
			busyCalls(t, s)
			busyConversations(t, s)
			busyCredentials(t, s)
			busyPairings(t, s)
			busyApprovals(t, s)
			_, life := keyspace(t, s.conn)
			if len(life) < 60 {
				t.Fatalf("only %d keys: not a busy scenario", len(life))
			}
			for key, ttl := range life {
				if ttl < 0 || ttl > longestLife(key) { // one that ends in this millisecond has zero
					t.Errorf("%s lives %v", key, ttl)
				}
			}
		})
	}
}

// longestLife is how long a key may live at most.
func longestLife(key string) time.Duration {
	switch {
	case strings.Contains(key, "{call:"):
		return registry.DefaultRetention + time.Minute
	case strings.Contains(key, "approvals"):
		return registry.ApprovalRetained + time.Minute
	case strings.Contains(key, ":idem:"), strings.Contains(key, ":activity"), strings.Contains(key, "}:chat"),
		strings.HasSuffix(key, "}:draft"), strings.HasSuffix(key, "}:trail"), strings.Contains(key, ":chats}"):
		return 24 * time.Hour
	case strings.Contains(key, ":credentials}"), strings.Contains(key, ":credentials/"),
		strings.Contains(key, ":devicetools/"), strings.Contains(key, ":waitingtools}"),
		strings.Contains(key, "{:wakes}"):
		return registry.CredentialIdle
	case key == changesKey, key == lastChangeKey, strings.Contains(key, ":revoked}:"):
		return registry.DefaultChangeTTL
	default:
		return 2 * time.Minute
	}
}

// busyCredentials makes, uses, changes and revokes credentials.
func busyCredentials(t *testing.T, s *Store) {
	t.Helper()
	ctx := context.Background()
	for i := range 6 {
		c := registry.Credential{
			Tenant: tenant, ID: fmt.Sprint("k", i), Kind: registry.CredentialDevice, DeviceID: fmt.Sprint("d ", i),
			Digest: fmt.Sprintf("%064x", i),
		}
		if i%2 == 0 {
			c.ExpiresAt = time.Now().Add(time.Hour)
		}
		c = must[registry.Credential](t)(s.CreateCredential(ctx, c))
		if err := s.TouchCredentials(ctx, c.Digest); err != nil {
			t.Fatal(err)
		}
		must[registry.Credential](t)(s.UpdateCredential(ctx, tenant, c.ID, func(c *registry.Credential) error {
			c.Name = "renamed"
			return nil
		}))
		if i > 3 {
			must[registry.Credential](t)(s.RevokeCredential(ctx, tenant, c.ID))
		}
	}
	for _, kind := range registry.RememberedKinds() {
		must[registry.CredentialChange](t)(s.AppendChange(ctx, registry.CredentialChange{
			Tenant: tenant, Kind: kind, ID: "x", Revoked: true,
		}))
	}
}

// busyPairings asks, decides and collects, guesses codes, and keeps nonces and tools of devices.
func busyPairings(t *testing.T, s *Store) {
	t.Helper()
	ctx := context.Background()
	for i := range 4 {
		p := registry.Pairing{
			ID: fmt.Sprint("p", i), CodeDigest: fmt.Sprint("code", i), Source: "10.0.0.1/32", Tenant: tenant,
			DeviceID: fmt.Sprint("cam-", i),
		}
		must[registry.Pairing](t)(s.CreatePairing(ctx, p, time.Minute))
		_, err := s.PairingByCode(ctx, "wrong", registry.Guess{Name: "source/10.0.0.1", Limit: 10, Window: time.Minute})
		if !errors.Is(err, registry.CodeNotFound) {
			t.Fatal(err)
		}
		if i > 1 {
			d := registry.PairingDecision{Approved: true, Tenant: tenant}
			must[registry.Pairing](t)(s.DecidePairing(ctx, p.ID, d, time.Minute))
		}
		if i > 2 {
			must[registry.Pairing](t)(s.TakePairing(ctx, p.ID))
		}
	}
	waiting := registry.DeviceTools{Waiting: []registry.ToolSpec{spec(t, "camera", "x")}}
	for _, err := range []error{
		s.PutNonce(ctx, tenant, "k1", "nonce", time.Minute), s.SetDeviceTools(ctx, tenant, "k1", waiting),
		s.SetWake(ctx, registry.WakeRecord{Tenant: tenant, DeviceID: "d", User: "u"}),
		s.PlanWake(ctx, registry.WakeRef{Tenant: tenant, User: "u", DeviceID: "d"},
			func(registry.WakeRecord) (registry.WakePlan, bool) {
				return registry.WakePlan{Next: time.Now().Add(time.Hour)}, true
			}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, part := range []string{
		":doc:request.", ":doc:code.", ":index:source.", ":doc:wrong.", ":nonces/", ":devicetools/",
		":waitingtools}", ":doc:paired.", "{:wakes}:doc:", "{:wakes}:index:due", "{:wakes}:index:planned",
	} {
		content, _ := keyspace(t, s.conn)
		if !slices.ContainsFunc(slices.Collect(maps.Keys(content)), func(k string) bool {
			return strings.Contains(k, part)
		}) {
			t.Errorf("no key %s was written", part)
		}
	}
}

func TestIndexesAgreeWithSessionsAfterBusyTimes(t *testing.T) {
	s := storeOn(t, Options{})
	busy(t, s)
	all := 0
	want := make(map[string]int)
	for cursor := (registry.Cursor{}); ; {
		page, next, err := s.List(context.Background(), registry.Query{Tenant: tenant, After: cursor})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range page {
			all++
			for _, tool := range e.Tools {
				want[tool.Name+tool.Hash()]++
			}
		}
		if next == nil {
			break
		}
		cursor = *next
	}
	if all == 0 {
		t.Fatal("no session left to compare")
	}
	groups, _, err := s.OfferedTools(context.Background(), registry.OfferedToolQuery{Tenant: tenant, Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string]int)
	for _, g := range groups {
		got[g.Spec.Name+g.Spec.Hash()] = g.Sessions
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("groups %v\nwant   %v", got, want)
	}
}

func TestNothingRemainsOfADeadFleet(t *testing.T) {
	s := storeOn(t, Options{Limits: registry.Limits{
		SessionTTL: 200 * time.Millisecond, PodLease: 100 * time.Millisecond,
		Retention: time.Second, IdempotencyTTL: time.Second, HistoryTTL: time.Second,
	}})
	heartbeat(t, s, "a")
	for i := range 20 {
		putTools(t, s, claim(t, s, fmt.Sprintf("s%d", i), "a"), spec(t, "camera", "x"), spec(t, "own", fmt.Sprint(i)))
	}
	must[bool](t)(s.Release(context.Background(), claim(t, s, "released", "a"), 0))
	r := newCall("c1")
	r.TimeoutMS = 1
	must[bool](t)(second(s.CreateCall(context.Background(), r)))
	turn := begin(t, s, chatKey, 2*time.Second)
	for _, op := range []string{"append", "trail", "title", "draft"} {
		if err := chatWrites(s, turn)[op](context.Background()); err != nil {
			t.Fatal(op, err)
		}
	}
	registrytest.Eventually(t, "every key has expired", func() bool {
		_, life := keyspace(t, s.conn)
		return len(life) == 0
	})
}
