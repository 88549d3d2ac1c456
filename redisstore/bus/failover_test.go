package bus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/farhand/farhand/redisstore/redistest"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/registrytest"
)

// ownerOf returns the place of the master that owns the slot of a channel.
func ownerOf(t *testing.T, cluster *redistest.Servers, channel string) int {
	t.Helper()
	for i, m := range cluster.Masters {
		if out, err := m.Command("get", channel); err == nil && !strings.HasPrefix(out, "MOVED") {
			return i
		}
	}
	t.Fatalf("nobody owns the slot of %s", channel)
	return 0
}

// failOver makes the replica of a master its successor, and waits until both know.
func failOver(t *testing.T, cluster *redistest.Servers, place int) {
	t.Helper()
	if out, err := cluster.Replicas[place].Command("cluster", "failover"); err != nil || out != "OK" {
		t.Fatalf("failover: %s, %v", out, err)
	}
	for s, role := range map[*redistest.Server]string{
		cluster.Replicas[place]: "master", cluster.Masters[place]: "slave",
	} {
		registrytest.Eventually(t, "the member is a "+role, func() bool {
			out, _ := s.Command("role")
			return strings.HasPrefix(out, role)
		})
	}
}

// TestAPlannedFailoverIsFollowed: the member that a pod is subscribed to becomes a replica. A replica lets clients
// subscribe and publish, passes messages on within its shard, and counts its own subscribers only: a pod that has
// subscribed there hears everything, and those that publish to the master are told that nobody did.
func TestAPlannedFailoverIsFollowed(t *testing.T) {
	cluster := redistest.ReplicatedCluster(t)
	inbox := registrytest.NewInbox()
	b := listen(t, dial(t, cluster.URL), "b", inbox, 200*time.Millisecond)
	late := New(dial(t, cluster.URL), Options{})
	failOver(t, cluster, ownerOf(t, cluster, podChannel("b")))
	informed := New(dial(t, cluster.URL), Options{})
	for _, sender := range []*Bus{late, informed, b} {
		wantTrueCounts(t, b, sender, inbox)
	}
}

// TestALostMemberIsFollowed: the member that a pod is subscribed to dies.
func TestALostMemberIsFollowed(t *testing.T) {
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { // a pool that dials a dead member looks once a second whether it has been closed
		registrytest.Eventually(t, "no pool dials any more", func() bool { return goleak.Find(before) == nil })
	})
	cluster := redistest.ReplicatedCluster(t)
	inbox := registrytest.NewInbox()
	b := listen(t, dial(t, cluster.URL), "b", inbox, 200*time.Millisecond)
	sender := New(dial(t, cluster.URL), Options{})
	cluster.Masters[ownerOf(t, cluster, podChannel("b"))].Kill()
	wantTrueCounts(t, b, sender, inbox)
}

// wantTrueCounts sends until a hundred calls in a row were reported as received, and fails if a call arrives that was
// reported as not received.
func wantTrueCounts(t *testing.T, b, sender *Bus, inbox *registrytest.Inbox) {
	t.Helper()
	reported := make(map[string]error)
	sent, row := 0, 0
	defer func() {
		for len(inbox.Envelopes) > 0 {
			if id := (<-inbox.Envelopes).CallID; errors.Is(reported[id], registry.ErrNoReceiver) {
				t.Errorf("call %s arrived and was reported as not received", id)
				return
			}
		}
	}()
	registrytest.Eventually(t, "calls arrive again", func() bool {
		id := fmt.Sprint(sent)
		sent++
		err := sender.Send(context.Background(), "b", call1(id))
		reported[id] = err
		if row++; err != nil {
			row = 0
		}
		return row >= 100 && b.Healthy() == nil
	})
	untrue := 0
	for id := ""; id != fmt.Sprint(sent-1); {
		id = receive(t, inbox.Envelopes).CallID
		if errors.Is(reported[id], registry.ErrNoReceiver) {
			untrue++
		}
	}
	if untrue > 0 {
		t.Errorf("%d calls arrived and were reported as not received", untrue)
	}
}

// TestASubscriptionAtAReplicaIsRefused: the replica confirms it, and would deliver what its master passes on.
func TestASubscriptionAtAReplicaIsRefused(t *testing.T) {
	cluster := redistest.ReplicatedCluster(t)
	channel := podChannel("b")
	s := newSubscription(dial(t, cluster.URL), channel, Options{Log: slog.New(slog.DiscardHandler)}, nil, nil)
	defer func() { _ = s.close(context.Background()) }()
	_ = s.client.Close()
	s.client = redis.NewClient(&redis.Options{Addr: cluster.Replicas[ownerOf(t, cluster, channel)].Addr(), Protocol: 2})
	// A replica that does not know its master yet answers MOVED itself.
	if err := s.open(t.Context()); !errors.Is(err, errElsewhere) && !redis.HasErrorPrefix(err, "MOVED") {
		t.Errorf("subscribed: %v", err)
	}
}
