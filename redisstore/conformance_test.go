package redisstore_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/redisstore"
	"github.com/farhand/farhand/redisstore/redistest"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/registrytest"
)

func TestConformanceSingle(t *testing.T) {
	registrytest.Run(t, opener(redistest.Single(t)))
}

func TestConformanceCluster(t *testing.T) {
	registrytest.Run(t, opener(redistest.Cluster(t).URL))
}

func TestConformanceValkey(t *testing.T) {
	registrytest.Run(t, opener(redistest.Valkey(t).URL()))
}

// TestConformanceTLS: every connection of store and bus is encrypted, and trusts a private authority only. The
// groups with bursts ("routing", "activity") are left out: they would measure how fast the race detector does a hundred
// handshakes.
func TestConformanceTLS(t *testing.T) {
	url, ca := redistest.TLS(t)
	registrytest.Run(t, opener(url, func(o *redisstore.Options) { o.CAFile = ca }), "sessions", "bus", "calls")
	_, err := redisstore.Dial(t.Context(), redisstore.Options{URL: url, Timeout: testkit.Limit})
	if err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("a server of an unknown authority is trusted: %v", err)
	}
}

// TestConformanceACL: a user with the rights that docs/deploy.md names, and no other, is enough.
func TestConformanceACL(t *testing.T) {
	server := redistest.Start(t)
	out, err := server.Command(append([]string{"ACL", "SETUSER"}, documentedACL(t)...)...)
	if err != nil || out != "OK" {
		t.Fatalf("%s %v", out, err)
	}
	if out, err := server.Command("ACL", "SETUSER", "default", "off"); err != nil || out != "OK" {
		t.Fatalf("%s %v", out, err)
	}
	registrytest.Run(t, opener("redis://farhand:secret@"+server.Addr()))
}

// TestConformanceClusterACL: the same rights are enough to exchange messages on a Cluster.
func TestConformanceClusterACL(t *testing.T) {
	cluster := redistest.Cluster(t)
	for _, s := range cluster.Masters {
		out, err := s.Command(append([]string{"ACL", "SETUSER"}, documentedACL(t)...)...)
		if err != nil || out != "OK" {
			t.Fatalf("%s %v", out, err)
		}
		if out, err := s.Command("ACL", "SETUSER", "default", "off"); err != nil || out != "OK" {
			t.Fatalf("%s %v", out, err)
		}
	}
	url := strings.Replace(cluster.URL, "redis://", "redis://farhand:secret@", 1)
	registrytest.Run(t, opener(url), "bus", "routing")
}

// documentedACL returns the user line of docs/deploy.md, without its first word.
func documentedACL(t *testing.T) []string {
	text, err := os.ReadFile("../docs/deploy.md")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if words := strings.Fields(line); len(words) > 2 && words[0] == "user" && words[1] == "farhand" {
			return words[1:]
		}
	}
	t.Fatal("docs/deploy.md has no line of a user farhand")
	return nil
}

// TestClusterFromOneSeed: ?cluster=true finds the members behind one address; without it a member of a cluster is
// refused with a word about it.
func TestClusterFromOneSeed(t *testing.T) {
	seed := redistest.Cluster(t).Masters[0].URL()
	conn, err := redisstore.Dial(t.Context(), redisstore.Options{URL: seed + "?cluster=true", Timeout: testkit.Limit})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for i := range 20 { // over all slots
		v := registry.Session{Key: registry.Key{Tenant: "t", Session: fmt.Sprintf("s%d", i)}, Pod: "p"}
		if _, err := conn.Store().Claim(t.Context(), v); err != nil {
			t.Errorf("claim %d: %v", i, err)
		}
	}
	_, err = redisstore.Dial(t.Context(), redisstore.Options{URL: seed, Timeout: testkit.Limit})
	if err == nil || !strings.Contains(err.Error(), "cluster=true") {
		t.Errorf("a member of a cluster is taken for a server of its own: %v", err)
	}
}

// opener gives every subtest a store of its own on shared servers.
func opener(url string, changes ...func(*redisstore.Options)) registrytest.Open {
	return func(t *testing.T, l registry.Limits) (registry.Store, func() registry.Bus) {
		options := redisstore.Options{URL: url, Limits: l, Timeout: testkit.Limit} // the machine may stall
		for _, change := range changes {
			change(&options)
		}
		conn, err := redisstore.Dial(context.Background(), options)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn.Store(), func() registry.Bus { return conn.Bus() }
	}
}
