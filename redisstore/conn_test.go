package redisstore

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand/redisstore/bus"
	"github.com/farhand/farhand/redisstore/redistest"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/registrytest"
)

func TestDialWarnsOfWhatLosesData(t *testing.T) {
	const aof, noConfig = "--appendonly yes", "--rename-command CONFIG hidden"
	for name, c := range map[string]struct {
		args string
		want string // in the only warning; empty: none
	}{
		"no limit":           {aof, ""},
		"limit":              {aof + " --maxmemory 100mb", ""},
		"limit and eviction": {aof + " --maxmemory 100mb --maxmemory-policy allkeys-lru", "noeviction"},
		"snapshots":          {"--save 60 1", ""},
		"nothing":            {"", "Redis saves nothing"},
		"hidden settings":    {noConfig, "may save nothing"},
	} {
		conn := dial(t, Options{URL: redistest.Start(t, strings.Fields(c.args)...).URL()})
		got := conn.Warnings()
		if c.want == "" && len(got) > 0 || c.want != "" && (len(got) != 1 || !strings.Contains(got[0], c.want)) {
			t.Errorf("%s: warnings %q", name, got)
		}
	}
	saved := redistest.Start(t, strings.Fields(noConfig)...)
	if out, err := saved.Command("SAVE"); err != nil || out != "OK" {
		t.Fatal(out, err)
	}
	if got := dial(t, Options{URL: saved.URL()}).Warnings(); len(got) > 0 {
		t.Errorf("a server that has saved: warnings %q", got)
	}
}

func TestDialOfServersThatDoNotFit(t *testing.T) {
	cluster := redistest.Cluster(t)
	_, err := Dial(context.Background(), Options{URL: cluster.Masters[0].URL(), Timeout: testTimeout})
	if err == nil || !strings.Contains(err.Error(), "?cluster=true") {
		t.Errorf("a member of a cluster as a single server: %v", err)
	}
	conn := dial(t, Options{URL: cluster.Masters[0].URL() + "?cluster=true"})
	if err := conn.Store().Ping(context.Background()); err != nil {
		t.Error(err)
	}
	single := redistest.Start(t)
	if _, err := Dial(context.Background(), Options{URL: single.URL() + "?cluster=true"}); err == nil {
		t.Error("a single server was taken for a cluster")
	}
	single.Kill()
	if _, err := Dial(context.Background(), Options{URL: single.URL()}); err == nil {
		t.Error("dialled a server that is not there")
	}
}

func TestPasswordsAndUsersWithFewRights(t *testing.T) {
	server := redistest.Start(t, "--requirepass", "s3cret/@")
	if _, err := Dial(context.Background(), Options{URL: server.URL()}); err == nil {
		t.Error("dialled without the password")
	}
	url := strings.Replace(server.URL(), "redis://", "redis://:s3cret%2F%40@", 1)
	conn := dial(t, Options{URL: url})
	err := conn.conn.Client().ACLSetUser(context.Background(), "farhand", "on", ">pw", "~fh:*", "&fh:*",
		"+@read", "+@write", "+@pubsub", "+@scripting", "+@connection", "+@blocking", "+time", "-@dangerous").Err()
	if err != nil {
		t.Fatal(err)
	}
	url = strings.Replace(server.URL(), "redis://", "redis://farhand:pw@", 1)
	restricted := dial(t, Options{URL: url})
	if w := restricted.Warnings(); len(w) != 1 {
		t.Errorf("warnings %q", w)
	}
	s := restricted.Store()
	heartbeat(t, s, "a")
	putTools(t, s, claim(t, s, "s1", "a"), spec(t, "camera", "x"))
	if got := listed(t, s, registry.Query{Tool: "camera"}); got != "s1" {
		t.Errorf("listed %q", got)
	}
	listen(t, restricted, "a", registrytest.NewInbox())
}

// TestSentinelFailover kills the master and goes on with the replica.
func TestSentinelFailover(t *testing.T) {
	servers := redistest.Sentinel(t)
	conn := dial(t, Options{URL: servers.URL, ProbeInterval: 200 * time.Millisecond})
	s, inbox, ctx := conn.Store(), registrytest.NewInbox(), context.Background()
	b := listen(t, conn, "a", inbox)
	heartbeat(t, s, "a")
	e := putTools(t, s, claim(t, s, "s1", "a"), spec(t, "camera", "x"))
	if err := b.Send(ctx, "a", registry.Envelope{CallID: "before"}); err != nil {
		t.Fatal(err)
	}
	registrytest.Receive(t, "the call", inbox.Envelopes)

	servers.Masters[0].Kill()
	servers.Promoted()
	registrytest.Eventually(t, "the store can be written again", func() bool { return s.Ping(ctx) == nil })
	registrytest.Eventually(t, "the bus is healthy again", func() bool { return b.Healthy() == nil })
	registrytest.Eventually(t, "calls arrive again", func() bool {
		return b.Send(ctx, "a", registry.Envelope{CallID: "after"}) == nil
	})
	if got := registrytest.Receive(t, "the call", inbox.Envelopes).CallID; got != "after" {
		t.Errorf("call %s arrived", got)
	}
	if err := b.Reply("a", registry.Reply{CallID: "r", Delivered: true}); err != nil {
		t.Fatal(err)
	}
	registrytest.Receive(t, "the reply", inbox.Replies)

	// Replication is asynchronous: what the old master had not passed on is lost, and comes back.
	heartbeat(t, s, "a")
	missing, lost, err := s.Refresh(ctx, []registry.Entry{e})
	if err != nil || len(lost) != 0 {
		t.Fatalf("missing %v, lost %v, %v", missing, lost, err)
	}
	if len(missing) > 0 {
		if _, err := s.Restore(ctx, e); err != nil {
			t.Fatal(err)
		}
	}
	later := claim(t, s, "s1", "a")
	if later.Generation <= e.Session.Generation {
		t.Errorf("generation %d after %d", later.Generation, e.Session.Generation)
	}
}

// listen starts a bus for pod and closes it when the test ends.
func listen(t *testing.T, c *Conn, pod string, h registry.BusHandler) *bus.Bus {
	t.Helper()
	b := c.Bus()
	if err := b.Listen(context.Background(), pod, h); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close(context.Background()) })
	return b
}

// TestAServerThatForgotTheScriptsGetsThem: it was restarted, empty.
func TestAServerThatForgotTheScriptsGetsThem(t *testing.T) {
	server := redistest.Start(t)
	s := dial(t, Options{URL: server.URL()}).Store()
	server.Kill()
	if err := s.Ping(t.Context()); !errors.Is(err, registry.CodeStoreUnavailable) {
		t.Errorf("ping: %v", err)
	}
	server.Restart()
	registrytest.Eventually(t, "the store can be written again", func() bool { return s.Ping(t.Context()) == nil })
	heartbeat(t, s, "a")
	putTools(t, s, claim(t, s, "s1", "a"), spec(t, "camera", "x"))
	if got := listed(t, s, registry.Query{Tool: "camera"}); got != "s1" {
		t.Errorf("listed %q", got)
	}
}

// TestPingShowsAFullMemory: a Redis that is out of memory still answers reads.
func TestPingShowsAFullMemory(t *testing.T) {
	server := redistest.Start(t)
	s := dial(t, Options{URL: server.URL()}).Store()
	if out, err := server.Command("config", "set", "maxmemory", "1"); err != nil || out != "OK" {
		t.Fatalf("%s, %v", out, err)
	}
	if err := s.Ping(t.Context()); !errors.Is(err, registry.CodeStoreUnavailable) {
		t.Errorf("ping does not show that nothing can be written: %v", err)
	}
}

func TestErrorsAreTranslated(t *testing.T) {
	server := redistest.Start(t)
	s := dial(t, Options{URL: server.URL()}).Store()
	sess := claim(t, s, "s1", "a")
	server.Kill()
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	q := registry.Query{Tenant: tenant}
	_, claimErr := s.Claim(ctx, sess)
	_, restoreErr := s.Restore(ctx, registry.Entry{Session: sess})
	_, _, refreshErr := s.Refresh(ctx, []registry.Entry{{Session: sess}})
	_, releaseErr := s.Release(ctx, sess, 0)
	_, entryErr := s.Entry(ctx, sess.Key)
	_, _, listErr := s.List(ctx, q)
	_, _, groupsErr := s.OfferedTools(ctx, registry.OfferedToolQuery{Tenant: tenant})
	_, versionErr := s.Version(ctx, tenant)
	_, heartbeatErr := s.Heartbeat(ctx, "a")
	_, liveErr := s.Live(ctx)
	_, sweepErr := s.Sweep(ctx)
	for what, err := range map[string]error{
		"claim": claimErr, "restore": restoreErr, "refresh": refreshErr, "release": releaseErr, "entry": entryErr,
		"list": listErr, "groups": groupsErr, "version": versionErr, "heartbeat": heartbeatErr, "live": liveErr,
		"sweep":  sweepErr,
		"update": s.Update(ctx, sess), "put": s.SetTools(ctx, sess, nil),
		"leave": s.Leave(ctx, "a"), "ping": s.Ping(ctx),
	} {
		var e *registry.Error
		if !errors.As(err, &e) || e.Code != registry.CodeStoreUnavailable {
			t.Errorf("%s: %v", what, err)
		} else if strings.Contains(e.Message, "127.0.0.1") {
			t.Errorf("%s: the message shows the store: %s", what, e.Message)
		}
	}
}
