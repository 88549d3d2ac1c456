package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"
)

// clusterSize is three masters with a replica each.
const clusterSize = 6

// busOffset is the distance of a Cluster member's bus port from its port.
const busOffset = 10_000

// startCluster starts a Redis Cluster without persistence, except for the files its members require.
func startCluster(ctx context.Context) (*redisServer, error) {
	for _, program := range []string{"redis-server", "redis-cli"} {
		if _, err := exec.LookPath(program); err != nil {
			return nil, fmt.Errorf("%s is not on the PATH", program)
		}
	}
	dir, err := os.MkdirTemp("", "farhand-bench-cluster-")
	if err != nil {
		return nil, err
	}
	var members []*redisServer
	stop := sync.OnceFunc(func() {
		for _, m := range members {
			m.stop()
		}
		_ = os.RemoveAll(dir)
	})
	var addrs []string
	for i := range clusterSize {
		addr, err := freeClusterAddr()
		if err == nil {
			var m *redisServer
			m, err = launchRedis(ctx, addr, "--cluster-enabled", "yes", "--dir", dir,
				"--cluster-config-file", fmt.Sprintf("nodes-%d.conf", i), "--repl-diskless-sync-delay", "0")
			if err == nil {
				members, addrs = append(members, m), append(addrs, addr)
			}
		}
		if err != nil {
			stop()
			return nil, err
		}
	}
	if err := joinCluster(ctx, addrs); err != nil {
		stop()
		return nil, fmt.Errorf("start a Redis Cluster: %w", err)
	}
	return &redisServer{url: "redis://" + strings.Join(addrs, ","), stop: stop}, nil
}

// joinCluster makes one Cluster of the servers, with a replica for each master, and waits until it is complete.
func joinCluster(ctx context.Context, addrs []string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*startTimeout)
	defer cancel()
	args := append([]string{"--cluster", "create"}, addrs...)
	args = append(args, "--cluster-replicas", "1", "--cluster-yes")
	if out, err := exec.CommandContext(ctx, "redis-cli", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	for _, addr := range addrs {
		if err := awaitMember(ctx, addr); err != nil {
			return err
		}
	}
	return nil
}

// awaitMember waits until a member sees the Cluster as complete, and a replica has its master's data.
func awaitMember(ctx context.Context, addr string) error {
	host, port, _ := net.SplitHostPort(addr)
	ask := func(command ...string) string {
		args := append([]string{"-h", host, "-p", port}, command...)
		out, _ := exec.CommandContext(ctx, "redis-cli", args...).Output()
		return string(out)
	}
	for {
		replication := ask("info", "replication")
		whole := strings.Contains(ask("cluster", "info"), "cluster_state:ok")
		synced := strings.Contains(replication, "role:master") || strings.Contains(replication, "master_link_status:up")
		if whole && synced {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.New("the members do not agree in time")
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// freeClusterAddr returns a loopback address whose port and bus port are both free.
func freeClusterAddr() (string, error) {
	for range 100 {
		port := 20_000 + rand.IntN(10_000)
		if isFree(port) && isFree(port+busOffset) {
			return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), nil
		}
	}
	return "", errors.New("no free port found")
}

func isFree(port int) bool {
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return false
	}
	_ = l.Close()
	return true
}
