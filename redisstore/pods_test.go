package redisstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/farhand/farhand/redisstore/bus"
	"github.com/farhand/farhand/redisstore/redistest"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/registrytest"
)

// lapse ends the lease of a pod now.
func lapse(t *testing.T, s *Store, pod string) {
	t.Helper()
	pipe := s.conn.Pipeline()
	pipe.Do("ZADD", podsKey, "XX", "1", pod)
	if err := pipe.Exec(context.Background()); err != nil {
		t.Fatal(err)
	}
	s.live.forget()
}

func TestSweepOfADeadPod(t *testing.T) {
	s := storeOn(t, Options{})
	ctx := context.Background()
	heartbeat(t, s, "dead", "alive")
	const n = sweepChunk*2 + 50
	var wg sync.WaitGroup
	for w := range 10 {
		wg.Go(func() {
			for i := w; i < n; i += 10 {
				own := spec(t, "own", fmt.Sprint(i%50))
				putTools(t, s, claim(t, s, fmt.Sprintf("s%03d", i), "dead"), spec(t, "camera", "x"), own)
			}
		})
	}
	wg.Wait()
	must[registry.Claim](t)(s.Claim(ctx, registry.Session{
		Key: registry.Key{Tenant: "other", Session: "s"}, Pod: "dead", Generation: registry.AnyHolder,
	}))
	moved := claim(t, s, "s000", "alive")
	putTools(t, s, moved, spec(t, "camera", "x"))
	if err := bus.New(s.conn, bus.Options{}).Reply("dead", registry.Reply{CallID: "c", Delivered: true}); err != nil {
		t.Fatal(err)
	}
	registrytest.Eventually(t, "an answer waits for the dead pod", func() bool {
		return s.conn.Client().Exists(ctx, "fh:{pod:dead}:replies").Val() == 1
	})

	lapse(t, s, "dead")
	if got := listed(t, s, registry.Query{}); got != "s000" {
		t.Errorf("listed before the sweep: %q", got)
	}
	const sweepers = 3 // all pods notice at the same time
	swept := make(chan []registry.DeadPod, sweepers)
	for range sweepers {
		wg.Go(func() { swept <- must[[]registry.DeadPod](t)(s.Sweep(ctx)) })
	}
	wg.Wait()
	tenants := make(map[string]bool)
	for range sweepers {
		for _, d := range <-swept {
			for _, tenant := range d.Tenants {
				tenants[tenant] = d.Pod == "dead"
			}
		}
	}
	if want := map[string]bool{tenant: true, "other": true}; !maps.Equal(tenants, want) {
		t.Errorf("the sweeps name the tenants %v, want %v", tenants, want)
	}
	content, _ := keyspace(t, s.conn)
	for key := range content { // the devices are not expected back any more
		if strings.Contains(key, ":away:") {
			must[int64](t)(s.conn.Client().Del(ctx, key).Result())
		}
	}
	if got := grouped(t, s); got != "camera:1" {
		t.Errorf("groups %q", got)
	}
	content, _ = keyspace(t, s.conn)
	for _, key := range []string{podSessionsKey("dead"), "fh:{pod:dead}:replies", deviceIndex(tenant, "device-s001")} {
		if _, ok := content[key]; ok {
			t.Errorf("%s is left", key)
		}
	}
	for index, want := range map[string]int64{
		sessionsIndex(tenant): 1, userIndex(tenant, "user"): 1, offersIndex(tenant): 1,
	} {
		if got := s.conn.Client().ZCard(ctx, index).Val(); got != want {
			t.Errorf("%s has %d entries, want %d", index, got, want)
		}
	}
	_, err := s.Entry(ctx, registry.Key{Tenant: tenant, Session: "s001"})
	if !errors.Is(err, registry.CodeNotConnected) {
		t.Errorf("a swept session: %v", err)
	}
	heartbeat(t, s, "alive") // on a busy machine its lease may be over
	if again := must[[]registry.DeadPod](t)(s.Sweep(ctx)); len(again) != 0 {
		t.Errorf("swept again: %v", again)
	}
}

func TestLeaveLeavesNoOneUncared(t *testing.T) {
	s := storeOn(t, Options{})
	ctx := context.Background()
	heartbeat(t, s, "tidy", "hasty")
	must[bool](t)(s.Release(ctx, claim(t, s, "s1", "tidy"), 0))
	claim(t, s, "s2", "hasty")
	for _, pod := range []string{"tidy", "hasty"} {
		if err := s.Leave(ctx, pod); err != nil {
			t.Fatal(err)
		}
	}
	if live := must[[]string](t)(s.Live(ctx)); len(live) != 0 {
		t.Errorf("live %v", live)
	}
	if got := must[[]registry.DeadPod](t)(s.Sweep(ctx)); len(got) != 1 || got[0].Pod != "hasty" ||
		!slices.Equal(got[0].Tenants, []string{tenant}) {
		t.Errorf("swept %v, want the one that left sessions behind", got)
	}
	if n := s.conn.Client().ZCard(ctx, sessionsIndex(tenant)).Val(); n != 0 {
		t.Errorf("%d sessions left", n)
	}
}

func TestALivePodIsSeenAtOnce(t *testing.T) {
	url := redistest.Single(t)
	reader, writer := storeOn(t, Options{URL: url}), storeOn(t, Options{URL: url})
	heartbeat(t, writer, "old")
	claim(t, writer, "s1", "old")
	if got := listed(t, reader, registry.Query{}); got != "s1" { // the reader now knows who is live
		t.Fatalf("listed %q", got)
	}
	heartbeat(t, writer, "new")
	claim(t, writer, "s2", "new")
	if got := listed(t, reader, registry.Query{}); got != "s1 s2" {
		t.Errorf("listed %q", got)
	}
}

func TestLiveSetSharesQuestions(t *testing.T) {
	var asked atomic.Int64
	release := make(chan struct{})
	l := newLiveSet(func(context.Context) ([]string, error) {
		asked.Add(1)
		<-release
		return []string{"a"}, nil
	}, time.Hour)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if live, err := l.has(context.Background(), []string{"a"}); err != nil || !live["a"] {
				t.Errorf("%v, %v", live, err)
			}
		})
	}
	registrytest.Eventually(t, "somebody asks", func() bool { return asked.Load() == 1 })
	close(release)
	wg.Wait()
	if n := asked.Load(); n != 1 {
		t.Errorf("asked %d times", n)
	}
	if _, err := l.has(context.Background(), []string{"unknown"}); err != nil || asked.Load() != 2 {
		t.Errorf("an unknown pod was not asked about: %d questions, %v", asked.Load(), err)
	}
}

func TestLiveSetFailures(t *testing.T) {
	failing := true
	l := newLiveSet(func(context.Context) ([]string, error) {
		if failing {
			return nil, errors.New("away")
		}
		return []string{"a"}, nil
	}, time.Hour)
	if _, err := l.has(context.Background(), []string{"a"}); err == nil {
		t.Error("a failure was taken for an answer")
	}
	failing = false
	if live, err := l.has(context.Background(), []string{"a"}); err != nil || !live["a"] {
		t.Errorf("%v, %v", live, err)
	}
}
