package bus

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand/redisstore/redistest"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/registrytest"
)

// TestAMovedSlotIsFollowed moves the slot of a pod's channel, and of its reply list, to another member.
func TestAMovedSlotIsFollowed(t *testing.T) {
	cluster := redistest.Cluster(t)
	conn := dial(t, cluster.URL)
	inbox := registrytest.NewInbox()
	b := listen(t, conn, "b", inbox, 200*time.Millisecond)
	for _, key := range []string{podChannel("b"), podRepliesKey("b")} {
		moveSlot(t, cluster, key)
	}
	registrytest.Eventually(t, "the subscription has moved", func() bool {
		return b.Stats().Resubscribed > 0 && b.Healthy() == nil
	})
	registrytest.Eventually(t, "calls arrive again", func() bool {
		return b.Send(context.Background(), "b", call1("c")) == nil
	})
	if got := receive(t, inbox.Envelopes).CallID; got != "c" {
		t.Errorf("heard %s", got)
	}
	if err := b.Reply("b", registry.Reply{CallID: "c", Delivered: true}); err != nil {
		t.Fatal(err)
	}
	receive(t, inbox.Replies)
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
	inbox := registrytest.NewInbox()
	b := listen(t, dial(t, p.url()), "b", inbox, 100*time.Millisecond)
	sender := New(dial(t, server.URL()), Options{})
	p.mute()
	registrytest.Eventually(t, "the bus notices", func() bool { return b.Stats().Resubscribed > 0 })
	registrytest.Eventually(t, "the bus is healthy again", func() bool { return b.Healthy() == nil })
	if err := sender.Send(context.Background(), "b", call1("after")); err != nil {
		t.Fatal(err)
	}
	if got := receive(t, inbox.Envelopes).CallID; got != "after" {
		t.Errorf("heard %s", got)
	}
}

// TestWithoutTheProbeADeafSubscriptionStaysDeaf is the reason for the probe.
func TestWithoutTheProbeADeafSubscriptionStaysDeaf(t *testing.T) {
	server := redistest.Start(t)
	p := newProxy(t, server.Addr())
	inbox := registrytest.NewInbox()
	b := listen(t, dial(t, p.url()), "b", inbox, time.Hour)
	p.mute()
	sender := New(dial(t, server.URL()), Options{})
	if err := sender.Send(context.Background(), "b", call1("lost")); err != nil {
		t.Fatalf("Redis noticed, so the probe may have become needless: %v", err)
	}
	select {
	case got := <-inbox.Envelopes:
		t.Errorf("heard %+v", got)
	case <-time.After(500 * time.Millisecond):
	}
	if n := b.Stats().Resubscribed; n != 0 {
		t.Errorf("rebuilt %d times", n)
	}
}

// TestASubscriptionAtADetachedReplicaIsNoticed: the subscription has come to a server that was a replica and is none
// any more. Its connection is well and answers pings, and nothing that is published arrives there.
func TestASubscriptionAtADetachedReplicaIsNoticed(t *testing.T) {
	master := redistest.Start(t)
	host, port, _ := strings.Cut(master.Addr(), ":")
	replica := redistest.Start(t, "--replicaof", host+" "+port, "--repl-diskless-sync-delay", "0")
	p := newProxy(t, master.Addr())
	inbox := registrytest.NewInbox()
	b := listen(t, dial(t, p.url()), "b", inbox, 100*time.Millisecond)
	sender := New(dial(t, master.URL()), Options{})
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
	registrytest.Eventually(t, "the subscription is at the replica", func() bool {
		return strings.Contains(run(replica, "client", "list", "type", "pubsub"), "id=")
	})
	registrytest.Eventually(t, "the bus notices", func() bool { return b.Healthy() != nil })
	p.lead(master.Addr())
	registrytest.Eventually(t, "the bus is healthy again", func() bool { return b.Healthy() == nil })
	// It may have come to the replica once more, and looks healthy there until its next probe is missed.
	registrytest.Eventually(t, "calls arrive again", func() bool {
		return sender.Send(context.Background(), "b", call1("after")) == nil
	})
	if got := receive(t, inbox.Envelopes).CallID; got != "after" {
		t.Errorf("heard %s", got)
	}
}

// TestProbesKeepAQuietBusHealthy: a bus whose probes do not come back is unhealthy, or rebuilt, after three intervals.
// So five intervals without either show that they do. If the machine stalls, the five begin again.
func TestProbesKeepAQuietBusHealthy(t *testing.T) {
	const interval = 300 * time.Millisecond
	b := listen(t, dial(t, redistest.Single(t)), "b", registrytest.NewInbox(), interval)
	quiet, rebuilt := time.Now(), b.Stats().Resubscribed
	registrytest.Eventually(t, "the bus stays healthy for five probes", func() bool {
		if err, n := b.Healthy(), b.Stats().Resubscribed; err != nil || n != rebuilt {
			t.Logf("after %v: rebuilt %d times, %v", time.Since(quiet), n-rebuilt, err)
			quiet, rebuilt = time.Now(), n
		}
		return time.Since(quiet) > 5*interval
	})
	if n := b.Stats().Malformed; n != 0 {
		t.Errorf("%d probes were taken for messages", n)
	}
}

func TestRedisRestartsEmpty(t *testing.T) {
	server := redistest.Start(t)
	conn := dial(t, server.URL())
	inbox := registrytest.NewInbox()
	b := listen(t, conn, "a", inbox, 200*time.Millisecond)
	server.Kill()
	registrytest.Eventually(t, "the bus is unhealthy", func() bool { return b.Healthy() != nil })
	registrytest.Eventually(t, "calls are refused before they leave", func() bool {
		err := b.Send(context.Background(), "a", call1("refused"))
		return registry.AsError(err).Dispatched == registry.DispatchedNo && !errors.Is(err, registry.ErrNoReceiver)
	})
	server.Restart()
	registrytest.Eventually(t, "the bus is healthy again", func() bool { return b.Healthy() == nil })
	registrytest.Eventually(t, "calls arrive again", func() bool {
		return b.Send(context.Background(), "a", call1("again")) == nil
	})
	if got := receive(t, inbox.Envelopes).CallID; got != "again" {
		t.Errorf("heard %s", got)
	}
	err := b.Reply("a", registry.Reply{CallID: "r", Delivered: true})
	if err != nil { // with a script the server forgot
		t.Fatal(err)
	}
	receive(t, inbox.Replies)
}

func TestAHangingRedisIsNotWaitedFor(t *testing.T) {
	server := redistest.Start(t)
	b := listen(t, dial(t, server.URL()), "a", registrytest.NewInbox(), 100*time.Millisecond)
	if err := b.Send(context.Background(), "a", call1("warm")); err != nil {
		t.Fatal(err)
	}
	server.Pause()
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	wantDispatched(t, b.Send(ctx, "a", call1("x")), registry.DispatchedUnknown) // Redis still hangs
	registrytest.Eventually(t, "the bus is unhealthy", func() bool { return b.Healthy() != nil })
	server.Resume()
	registrytest.Eventually(t, "the bus is healthy again", func() bool { return b.Healthy() == nil })
}

func TestAnswersGetThroughWhenMemoryIsFull(t *testing.T) {
	server := redistest.Start(t)
	conn := dial(t, server.URL())
	inbox := registrytest.NewInbox()
	b := listen(t, conn, "a", inbox)
	b.retryFor = 300 * time.Millisecond
	if out, err := server.Command("config", "set", "maxmemory", "1"); err != nil || out != "OK" {
		t.Fatalf("%s, %v", out, err)
	}
	if err := b.Reply("a", registry.Reply{CallID: "c", Result: &registry.Result{Output: "x"}}); err != nil {
		t.Fatal(err)
	}
	if got := receive(t, inbox.Replies); got.CallID != "c" || got.Result == nil {
		t.Errorf("heard %+v", got)
	}
	if err := b.Reply("nobody", registry.Reply{CallID: "d", Delivered: true}); err != nil {
		t.Fatal(err)
	}
	registrytest.Eventually(t, "what could not be delivered is counted", func() bool {
		return b.Stats().RepliesLost == 1
	})
	if got := b.Stats().RepliesPublished; got != 1 {
		t.Errorf("%d answers published, want 1", got)
	}
}
