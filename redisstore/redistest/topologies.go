package redistest

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Single starts one server and returns its URL.
func Single(t testing.TB) string {
	t.Helper()
	return Start(t).URL()
}

// Servers are the servers of a topology, and the URL that reaches them.
type Servers struct {
	URL       string
	Masters   []*Server
	Replicas  []*Server
	Sentinels []*Server
}

// Cluster starts a cluster of three masters.
func Cluster(t testing.TB) *Servers {
	t.Helper()
	return startCluster(t, 0)
}

// ReplicatedCluster starts a cluster of three masters with a replica each: Replicas[i] is the replica of Masters[i].
func ReplicatedCluster(t testing.TB) *Servers {
	t.Helper()
	return startCluster(t, 1)
}

// startCluster starts a cluster of three masters, each with that many replicas.
func startCluster(t testing.TB, replicas int) *Servers {
	t.Helper()
	var members []*Server
	var addrs []string
	for range 3 * (1 + replicas) {
		s := Start(t, "--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf",
			"--cluster-node-timeout", "2000", "--repl-diskless-sync-delay", "0")
		members = append(members, s)
		addrs = append(addrs, s.Addr())
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	args := append([]string{"--cluster", "create"}, addrs...)
	args = append(args, "--cluster-replicas", strconv.Itoa(replicas), "--cluster-yes")
	if out, err := exec.CommandContext(ctx, "redis-cli", args...).CombinedOutput(); err != nil {
		t.Fatalf("redistest: create cluster: %v\n%s", err, out)
	}
	for _, s := range members {
		mustBecome(t, s, "cluster_state:ok", "cluster", "info")
	}
	c := &Servers{URL: "redis://" + strings.Join(addrs, ","), Masters: members[:3]}
	for _, master := range c.Masters {
		for _, s := range members[3:] {
			out, _ := s.Command("info", "replication")
			if strings.Contains(out, "master_port:"+strconv.Itoa(master.port)) {
				c.Replicas = append(c.Replicas, s)
			}
		}
	}
	if len(c.Replicas) != 3*replicas {
		t.Fatalf("redistest: %d replicas of the first three members, want %d", len(c.Replicas), 3*replicas)
	}
	for _, s := range c.Replicas {
		mustBecome(t, s, "master_link_status:up", "info", "replication")
		for _, member := range members { // the members that vote must also know its master
			id := mustPrint(t, c.Masters[slices.Index(c.Replicas, s)], "cluster", "myid")
			mustBecome(t, member, s.Addr(), "cluster", "replicas", id)
		}
	}
	return c
}

// mustPrint returns what a command prints.
func mustPrint(t testing.TB, s *Server, command ...string) string {
	t.Helper()
	out, err := s.Command(command...)
	if err != nil {
		t.Fatalf("redistest: %s: %v", strings.Join(command, " "), err)
	}
	return out
}

// masterName is the name of the master in Sentinel.
const masterName = "farhand"

// Sentinel starts a master with a replica, and one sentinel that watches them and decides alone. It fails over only in
// Promoted: on a loaded machine a master that is well may not answer it for seconds.
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
		"sentinel down-after-milliseconds "+masterName+" 60000",
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

// Promoted has Sentinel fail over because the first master has not answered for a second: the caller has killed or
// frozen it. It waits until the first replica is the master, and swaps the two in s.
func (s *Servers) Promoted() {
	replica := s.Replicas[0]
	replica.t.Helper()
	downAfter := func(ms string) {
		mustPrint(replica.t, s.Sentinels[0], "sentinel", "set", masterName, "down-after-milliseconds", ms)
	}
	downAfter("1000")
	defer downAfter("60000")
	mustBecome(replica.t, s.Sentinels[0], strconv.Itoa(replica.port), "sentinel", "get-master-addr-by-name",
		masterName)
	mustBecome(replica.t, replica, "role:master", "info", "replication")
	s.Masters[0], s.Replicas[0] = s.Replicas[0], s.Masters[0]
}

// Rejoin makes the first replica, which is up again after Promoted, follow the first master. It waits until it does and
// Sentinel counts on it. It sends what Sentinel sends, which would do so only after some ten seconds: in the
// transaction that demotes a server, its clients are disconnected. Otherwise subscribers there would hear, uncounted,
// what is published to the new master.
func (s *Servers) Rejoin() {
	replica := s.Replicas[0]
	replica.t.Helper()
	err := replica.transact(fmt.Sprintf("REPLICAOF %s %d", host, s.Masters[0].port), "CLIENT KILL TYPE normal",
		"CLIENT KILL TYPE pubsub")
	if err != nil {
		replica.t.Fatalf("redistest: demote: %v", err)
	}
	mustBecome(replica.t, replica, "master_link_status:up", "info", "replication")
	mustBecome(replica.t, s.Sentinels[0], "flags\nslave\n", "sentinel", "replicas", masterName)
}

// mustBecome waits until the output of a command contains want.
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
