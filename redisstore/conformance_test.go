package redisstore_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

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

// TestConformanceMutualTLS: every connection of store and bus shows the client certificate that the server requires.
// Without it, and with one of another authority, there is none. A certificate that is replaced is used from then on.
func TestConformanceMutualTLS(t *testing.T) {
	url, ca, key := redistest.MutualTLS(t)
	dir := t.TempDir()
	dial := func(cert, key string) (*redisstore.Conn, error) {
		return redisstore.Dial(t.Context(), redisstore.Options{
			URL: url, CAFile: ca, CertFile: cert, KeyFile: key, Timeout: testkit.Limit,
		})
	}
	strangerCert, strangerKey := testkit.Certificate(t, dir, time.Now().Add(time.Hour))
	for what, pair := range map[string][2]string{"no": {}, "a stranger's": {strangerCert, strangerKey}} {
		conn, err := dial(pair[0], pair[1])
		if err == nil {
			t.Errorf("%s certificate is enough", what)
			_ = conn.Close()
		}
	}
	if _, err := dial(ca, ""); err == nil || !strings.Contains(err.Error(), "both or neither") {
		t.Errorf("a certificate without a key: %v", err)
	}

	for from, to := range map[string]string{ca: strangerCert, key: strangerKey} {
		text, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(to, text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	registrytest.Run(t, opener(url, func(o *redisstore.Options) {
		o.CAFile, o.CertFile, o.KeyFile = ca, strangerCert, strangerKey
	}), "sessions", "bus")
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
