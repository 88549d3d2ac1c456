package redistest

import (
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// Single starts one server and returns its URL.
func Single(t testing.TB) string {
	t.Helper()
	return Start(t).URL()
}

// Servers are those of a topology, and the URL that reaches them.
type Servers struct {
	URL       string
	Masters   []*Server
	Replicas  []*Server
	Sentinels []*Server
}

// Cluster starts a cluster of three masters.
func Cluster(t testing.TB) *Servers {
	t.Helper()
	var c Servers
	var addrs []string
	for range 3 {
		s := Start(t, "--cluster-enabled", "yes",
			"--cluster-config-file", "nodes.conf", "--cluster-node-timeout", "2000")
		c.Masters = append(c.Masters, s)
		addrs = append(addrs, s.Addr())
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	args := append([]string{"--cluster", "create"}, append(addrs, "--cluster-yes")...)
	if out, err := exec.CommandContext(ctx, "redis-cli", args...).CombinedOutput(); err != nil {
		t.Fatalf("redistest: create cluster: %v\n%s", err, out)
	}
	for _, s := range c.Masters {
		mustBecome(t, s, "cluster_state:ok", "cluster", "info")
	}
	c.URL = "redis://" + strings.Join(addrs, ",")
	return &c
}

// masterName is what the sentinel calls the master.
const masterName = "farhand"

// Sentinel starts a master with a replica, and one sentinel that watches them and decides alone.
func Sentinel(t testing.TB) *Servers {
	t.Helper()
	master := Start(t)
	port := strconv.Itoa(master.port)
	replica := Start(t, "--replicaof", host+" "+port, "--repl-diskless-sync-delay", "0")
	mustBecome(t, replica, "master_link_status:up", "info", "replication")

	needPrograms(t)
	sentinel := &Server{t: t, port: freePort(t)}
	sentinel.args = []string{config(t,
		fmt.Sprintf("port %d", sentinel.port), "bind "+host,
		fmt.Sprintf("sentinel monitor %s %s %s 1", masterName, host, port),
		"sentinel down-after-milliseconds "+masterName+" 1000",
		"sentinel failover-timeout "+masterName+" 3000",
	), "--sentinel"}
	if err := sentinel.start(); err != nil {
		t.Fatalf("redistest: start sentinel: %v", err)
	}
	t.Cleanup(sentinel.Kill)
	mustBecome(t, sentinel, replica.Addr(), "sentinel", "replicas", masterName)
	return &Servers{
		URL:     "redis+sentinel://" + sentinel.Addr() + "/" + masterName,
		Masters: []*Server{master}, Replicas: []*Server{replica}, Sentinels: []*Server{sentinel},
	}
}

// mustBecome waits until a command prints something.
func mustBecome(t testing.TB, s *Server, want string, command ...string) {
	t.Helper()
	err := poll(func() error {
		out, err := s.Command(command...)
		if err == nil && !strings.Contains(out, want) {
			err = fmt.Errorf("%s printed:\n%s", strings.Join(command, " "), out)
		}
		return err
	})
	if err != nil {
		t.Fatalf("redistest: waiting for %q: %v", want, err)
	}
}
