package redisstore

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand/redisstore/redistest"
	"github.com/farhand/farhand/registry"
)

// TestAMovedSlotIsFollowed moves the slot of a pod's channel, and of its reply list, to another member.
func TestAMovedSlotIsFollowed(t *testing.T) {
	cluster := redistest.Cluster(t)
	conn := dial(t, Options{URL: cluster.URL, ProbeInterval: 200 * time.Millisecond})
	ear := newEar()
	b := listen(t, conn, "b", ear)
	for _, key := range []string{podChannel("b"), podRepliesKey("b")} {
		moveSlot(t, cluster, key)
	}
	eventually(t, "the subscription has moved", func() bool { return b.Stats().Resubscribed > 0 && b.Healthy() == nil })
	eventually(t, "calls arrive again", func() bool { return b.Send(context.Background(), "b", call1("c")) == nil })
	if got := heard(t, ear.envelopes).CallID; got != "c" {
		t.Errorf("heard %s", got)
	}
	if err := b.Reply("b", registry.Reply{CallID: "c", Delivered: true}); err != nil {
		t.Fatal(err)
	}
	heard(t, ear.replies)
}

// moveSlot gives the empty slot of a key to the next member.
func moveSlot(t *testing.T, cluster *redistest.Servers, key string) {
	t.Helper()
	run := func(s *redistest.Server, args ...string) string {
		out, err := s.Command(args...)
		if err != nil || strings.HasPrefix(out, "ERR") {
			t.Fatalf("%v: %s, %v", args, out, err)
		}
		return out
	}
	slot := run(cluster.Masters[0], "cluster", "keyslot", key)
	owner := 0
	for i, m := range cluster.Masters {
		if out, _ := m.Command("get", key); !strings.HasPrefix(out, "MOVED") {
			owner = i
		}
	}
	target := cluster.Masters[(owner+1)%len(cluster.Masters)]
	id := run(target, "cluster", "myid")
	run(target, "cluster", "setslot", slot, "node", id)
	run(target, "cluster", "bumpepoch") // or the members may agree on the former owner again
	for _, m := range cluster.Masters {
		run(m, "cluster", "setslot", slot, "node", id)
	}
}

// TestADeafSubscriptionIsRebuilt: the connection stays open, Redis counts a receiver, and nothing arrives.
func TestADeafSubscriptionIsRebuilt(t *testing.T) {
	server := redistest.Start(t)
	p := newProxy(t, server.Addr())
	ear := newEar()
	b := listen(t, dial(t, Options{URL: p.url(), ProbeInterval: 100 * time.Millisecond}), "b", ear)
	sender := dial(t, Options{URL: server.URL()}).Bus()
	p.mute()
	eventually(t, "the bus notices", func() bool { return b.Stats().Resubscribed > 0 })
	eventually(t, "the bus is healthy again", func() bool { return b.Healthy() == nil })
	if err := sender.Send(context.Background(), "b", call1("after")); err != nil {
		t.Fatal(err)
	}
	if got := heard(t, ear.envelopes).CallID; got != "after" {
		t.Errorf("heard %s", got)
	}
}

// TestWithoutTheProbeADeafSubscriptionStaysDeaf is the reason for the probe.
func TestWithoutTheProbeADeafSubscriptionStaysDeaf(t *testing.T) {
	server := redistest.Start(t)
	p := newProxy(t, server.Addr())
	ear := newEar()
	b := listen(t, dial(t, Options{URL: p.url(), ProbeInterval: time.Hour}), "b", ear)
	p.mute()
	sender := dial(t, Options{URL: server.URL()}).Bus()
	if err := sender.Send(context.Background(), "b", call1("lost")); err != nil {
		t.Fatalf("Redis noticed, so the probe may have become needless: %v", err)
	}
	select {
	case got := <-ear.envelopes:
		t.Errorf("heard %+v", got)
	case <-time.After(500 * time.Millisecond):
	}
	if n := b.Stats().Resubscribed; n != 0 {
		t.Errorf("rebuilt %d times", n)
	}
}

// TestASubscriptionAtADetachedReplicaIsNoticed: the subscription has come to a server that was a replica and is none any
// more. Its connection is well and answers pings, and nothing that is published arrives there.
func TestASubscriptionAtADetachedReplicaIsNoticed(t *testing.T) {
	master := redistest.Start(t)
	host, port, _ := strings.Cut(master.Addr(), ":")
	replica := redistest.Start(t, "--replicaof", host+" "+port, "--repl-diskless-sync-delay", "0")
	p := newProxy(t, master.Addr())
	ear := newEar()
	b := listen(t, dial(t, Options{URL: p.url(), ProbeInterval: 100 * time.Millisecond}), "b", ear)
	sender := dial(t, Options{URL: master.URL()}).Bus()
	run := func(s *redistest.Server, args ...string) string {
		out, err := s.Command(args...)
		if err != nil || strings.HasPrefix(out, "ERR") {
			t.Fatalf("%v: %s, %v", args, out, err)
		}
		return out
	}
	run(replica, "replicaof", "no", "one")
	p.lead(replica.Addr())
	run(master, "client", "kill", "type", "pubsub")
	eventually(t, "the subscription is at the replica", func() bool {
		return strings.Contains(run(replica, "client", "list", "type", "pubsub"), "id=")
	})
	eventually(t, "the bus notices", func() bool { return b.Healthy() != nil })
	p.lead(master.Addr())
	eventually(t, "the bus is healthy again", func() bool { return b.Healthy() == nil })
	if err := sender.Send(context.Background(), "b", call1("after")); err != nil {
		t.Fatal(err)
	}
	if got := heard(t, ear.envelopes).CallID; got != "after" {
		t.Errorf("heard %s", got)
	}
}

func TestProbesKeepAQuietBusHealthy(t *testing.T) {
	b := listen(t, dial(t, Options{URL: redistest.Single(t), ProbeInterval: 300 * time.Millisecond}), "b", newEar())
	quiet := time.Now()
	eventually(t, "the bus stays healthy for five probes", func() bool {
		if err := b.Healthy(); err != nil {
			t.Errorf("after %v: %v", time.Since(quiet), err)
			return true
		}
		return time.Since(quiet) > 1500*time.Millisecond
	})
	if n := b.Stats().Malformed; n != 0 {
		t.Errorf("%d probes were taken for messages", n)
	}
}

func TestRedisRestartsEmpty(t *testing.T) {
	server := redistest.Start(t)
	conn := dial(t, Options{URL: server.URL(), ProbeInterval: 200 * time.Millisecond})
	ear := newEar()
	b := listen(t, conn, "a", ear)
	server.Kill()
	eventually(t, "the bus is unhealthy", func() bool { return b.Healthy() != nil })
	eventually(t, "calls are refused before they leave", func() bool {
		err := b.Send(context.Background(), "a", call1("refused"))
		return registry.AsError(err).Dispatched == registry.DispatchedNo && !errors.Is(err, registry.ErrNoReceiver)
	})
	if err := conn.Store().Ping(context.Background()); !errors.Is(err, registry.CodeStoreUnavailable) {
		t.Errorf("ping: %v", err)
	}
	server.Restart()
	eventually(t, "the bus is healthy again", func() bool { return b.Healthy() == nil })
	eventually(t, "calls arrive again", func() bool {
		return b.Send(context.Background(), "a", call1("again")) == nil
	})
	if got := heard(t, ear.envelopes).CallID; got != "again" {
		t.Errorf("heard %s", got)
	}
	s := conn.Store() // the scripts are gone from the server's cache
	beat(t, s, "a")
	putTools(t, s, claim(t, s, "s1", "a"), spec(t, "camera", "x"))
	if got := listed(t, s, registry.Query{Tool: "camera"}); got != "s1" {
		t.Errorf("listed %q", got)
	}
	if err := b.Reply("a", registry.Reply{CallID: "r", Delivered: true}); err != nil {
		t.Fatal(err)
	}
	heard(t, ear.replies)
}

func TestAHangingRedisIsNotWaitedFor(t *testing.T) {
	server := redistest.Start(t)
	b := listen(t, dial(t, Options{URL: server.URL(), ProbeInterval: 100 * time.Millisecond}), "a", newEar())
	if err := b.Send(context.Background(), "a", call1("warm")); err != nil {
		t.Fatal(err)
	}
	server.Pause()
	start := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	wantDispatched(t, b.Send(ctx, "a", call1("x")), registry.DispatchedUnknown)
	if took := time.Since(start); took > time.Second {
		t.Errorf("waited %v with 300 ms left", took)
	}
	eventually(t, "the bus is unhealthy", func() bool { return b.Healthy() != nil })
	server.Resume()
	eventually(t, "the bus is healthy again", func() bool { return b.Healthy() == nil })
}

func TestAnswersGetThroughWhenMemoryIsFull(t *testing.T) {
	server := redistest.Start(t)
	conn := dial(t, Options{URL: server.URL()})
	ear := newEar()
	b := listen(t, conn, "a", ear)
	b.patience = 300 * time.Millisecond
	if out, err := server.Command("config", "set", "maxmemory", "1"); err != nil || out != "OK" {
		t.Fatalf("%s, %v", out, err)
	}
	if err := b.Reply("a", registry.Reply{CallID: "c", Result: &registry.Result{Output: "x"}}); err != nil {
		t.Fatal(err)
	}
	if got := heard(t, ear.replies); got.CallID != "c" || got.Result == nil {
		t.Errorf("heard %+v", got)
	}
	if err := b.Reply("nobody", registry.Reply{CallID: "d", Delivered: true}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "what could not be delivered is counted", func() bool { return b.Stats().RepliesLost == 1 })
	if got := b.Stats().RepliesPublished; got != 1 {
		t.Errorf("%d answers published, want 1", got)
	}
	if err := conn.Store().Ping(context.Background()); !errors.Is(err, registry.CodeStoreUnavailable) {
		t.Errorf("ping does not show that nothing can be written: %v", err)
	}
}
